"""The study's final table: which columns, which arms, and differences that are paired by seed."""

import csv
import sys
from collections import Counter
from pathlib import Path

import pytest

from studies import recipe
from tests.reporting.runs import make_sota


def test_the_table_has_the_arms_of_the_study_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = make_sota(tmp_path / "runs", arms=("Supervised", "EM"), regimes=("1%", "10%"), seeds=3)
    monkeypatch.setattr(sys, "argv", ["recipe", str(tmp_path / "recipe.csv"), str(runs)])
    recipe.main()
    rows = list(csv.DictReader((tmp_path / "recipe.csv").open()))
    assert list(rows[0]) == ["dataset", "labelled_percent", "seed", "arm", "dice", "dice_pooled"]
    assert [(row["labelled_percent"], row["seed"]) for row in rows] == [(p, s) for p in ("1", "10") for s in "012"]
    assert {row["arm"] for row in rows} == {"scratch"}
    assert capsys.readouterr().out.startswith("glas 1 % scratch: ")


def test_rows_that_were_not_run_again_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = make_sota(tmp_path / "runs", arms=("Supervised",), regimes=("1%",), seeds=2)
    table = tmp_path / "recipe.csv"
    old = {"labelled_percent": "5", "seed": "7", "dice": "50.0", "dice_pooled": "51.0"}
    there = [("glas", "hebbian"), ("glas", "scratch"), ("pupils", "hebbian")]
    recipe.write_table(table, recipe.COLUMNS, [old | {"dataset": name, "arm": arm} for name, arm in there])
    monkeypatch.setattr(sys, "argv", ["recipe", str(table), str(runs)])
    recipe.main()
    rows = [(row["dataset"], row["seed"], row["arm"]) for row in csv.DictReader(table.open())]
    new = [("glas", "0", "scratch"), ("glas", "1", "scratch")]
    assert rows == [*new, ("glas", "7", "hebbian"), ("glas", "7", "scratch"), ("pupils", "7", "hebbian")]


def test_differences_are_paired_by_seed() -> None:
    def row(arm: str, seed: int, dice: float) -> dict[str, str]:
        return {"dataset": "d", "labelled_percent": "5", "seed": str(seed), "arm": arm, "dice": str(dice)}

    rows = [row("scratch", s, 50.0 + 10 * s) for s in range(4)]
    rows += [row("random-rescaled", s, 49.0 + 10 * s) for s in range(4)]
    rows += [row("hebbian", s, 52.0 + 10 * s) for s in range(1, 4)]  # seed 0 has no partner
    line = next(line for line in recipe.differences(rows) if " hebbian:" in line)
    assert "− scratch +2.00 ± 0.00 (90 % interval, n = 3)" in line
    assert "− random-rescaled +3.00 ± 0.00 (90 % interval, n = 3)" in line


def test_the_mean_over_few_labels_takes_seeds_that_have_all_of_them() -> None:
    rows = [
        {"dataset": "d", "labelled_percent": percent, "seed": str(seed), "arm": arm, "dice": str(50 + seed + gain)}
        for arm, gains in {"scratch": (0, 0, 0, 0, 0), "hebbian": (1, 2, 3, 6, 50)}.items()
        for percent, gain in zip(("1", "2", "5", "10", "20"), gains, strict=True)
        for seed in range(3)
        if (percent, seed, arm) != ("5", 2, "hebbian")
    ]
    assert "d 1-10 % hebbian: +53.50 (n = 2); − scratch +3.00 (n = 2)" in recipe.differences(rows)[-2]


def test_label_efficiency_is_read_from_the_baseline_of_the_same_data_set() -> None:
    rows = [
        {"dataset": name, "labelled_percent": percent, "seed": str(seed), "arm": arm, "dice": str(dice + seed)}
        for name, arm, percent, dice in [
            ("a", "scratch", "1", 50), ("a", "scratch", "4", 60), ("a", "hebbian", "1", 60),
            ("a", "hebbian", "4", 70), ("b", "scratch", "1", 10), ("b", "hebbian", "1", 60),
        ]
        for seed in range(3)
    ]  # fmt: skip
    said = recipe.efficiencies(rows)
    assert said[0].startswith("a 1 % hebbian: scratch needs 4 %, 4 × ")
    assert said[1].startswith("a 4 % hebbian: scratch needs > 4 %, > 1 × ")
    assert said[2].startswith("b 1 % hebbian: scratch needs > 1 %")


def test_scratch_on_a_later_day_is_another_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = make_sota(tmp_path / "runs", arms=("Supervised",), regimes=("1%", "10%"), seeds=2)
    table = tmp_path / "recipe.csv"
    old = {"dataset": "glas", "labelled_percent": "1", "dice_pooled": "51.0"}
    first = [
        old | {"seed": seed, "arm": arm, "dice": dice}
        for arm, dice in [("scratch", "50.0"), ("default", "99.0")]
        for seed in "01"
    ]
    recipe.write_table(table, recipe.COLUMNS, first)
    monkeypatch.setattr(sys, "argv", ["recipe", str(table), str(runs), "--again"])
    recipe.main()
    counts = Counter(row["arm"] for row in csv.DictReader(table.open()))
    assert counts == {"scratch": 2, "default": 2, "scratch-again": 4}
    said = next(line for line in capsys.readouterr().out.splitlines() if "default:" in line)
    assert "− scratch +49.00" in said and "− scratch-again +" in said
