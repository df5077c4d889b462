"""A report says when compared arms were not trained for equally long."""

import json
from pathlib import Path
from typing import Any

from hebbseg.reporting.budgets import budget_remark
from hebbseg.reporting.comparison import comparisons
from hebbseg.reporting.html import write_report
from hebbseg.reporting.results import read_results
from tests.reporting.runs import described, summary, write


def runs(root: Path, lengths: dict[str, list[dict[str, Any]]]) -> Path:
    for arm, repetitions in lengths.items():
        for seed, length in enumerate(repetitions):
            grid = {"recipe": "r", "dataset": "d", "arm": arm, "baseline": "Scratch", "order": list(lengths).index(arm)}
            note = described("d", {"seed": seed, "updates": 100}, grid | {"axes": {"seed": seed}})
            write(root / f"{arm}-{seed}", note | length, summary(0.8 + 0.01 * seed))
    return root


def remark(root: Path) -> str:
    return budget_remark(comparisons(read_results([root]).runs)[0])


def ended(done: int, why: str = "updates", planned: int = 100) -> dict[str, Any]:
    return {"updates_done": done, "updates_planned": planned, "stopped_by": why}


def test_equal_budgets_need_no_remark(tmp_path: Path) -> None:
    assert remark(runs(tmp_path / "new", {"Scratch": [ended(100)] * 2, "Ours": [ended(100)] * 2})) == ""
    assert remark(runs(tmp_path / "old", {"Scratch": [{}], "Ours": [{}]})) == "", "versions that did not record it"


def test_arms_that_a_time_budget_ended_after_different_updates(tmp_path: Path) -> None:
    arms = {"Scratch": [ended(100), ended(100)], "Ours": [ended(40, "time_budget"), ended(52, "time_budget")]}
    assert remark(runs(tmp_path, arms)) == (
        "The arms have different budgets, which differences between them include. Updates of stage 2: Scratch: 100; "
        "Ours: 40 to 52 of 100 (2 of 2 runs ended by the time budget)."
    )
    page = write_report([tmp_path], tmp_path / "report.html").page.read_text(encoding="utf-8")
    assert "The arms have different budgets" in page
    assert page.index("The arms have different budgets") < page.index("Paired difference to Scratch")


def test_arms_with_other_settings_of_the_length(tmp_path: Path) -> None:
    text = remark(runs(tmp_path, {"Scratch": [ended(300, planned=300)], "Ours": [ended(100)]}))
    assert "different budgets" in text and "Scratch: 300; Ours: 100" in text


def test_runs_that_ended_early_alike(tmp_path: Path) -> None:
    text = remark(runs(tmp_path, {"Scratch": [ended(60, "patience")], "Ours": [ended(60, "patience")]}))
    assert text.startswith("Runs were ended early") and "1 of 1 runs ended by early stopping" in text


def test_old_runs_have_the_updates_of_their_settings(tmp_path: Path) -> None:
    runs(tmp_path, {"Scratch": [{}]})
    assert "updates_done" not in json.loads((tmp_path / "Scratch-0" / "run.json").read_text(encoding="utf-8"))
    (found,) = read_results([tmp_path]).runs
    assert (found.updates_done, found.updates_planned, found.stopped_by) == (100, 100, "")
