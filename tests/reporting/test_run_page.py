"""report.html of one run: what it says, that it is self-contained, and that names are text."""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hebbseg.reporting.run_page.advice import next_steps, options
from hebbseg.reporting.run_page.facts import RunFacts, read_run
from hebbseg.reporting.run_page.mask_curve import Point, curve_sentences
from hebbseg.reporting.run_page.page import add_run_page, write_run_page
from hebbseg.reporting.run_page.pictures import WINDOW, smoothed
from hebbseg.reporting.run_page.tables import changed_settings
from tests.reporting.test_html import Outline
from tests.tiny import command


@pytest.fixture
def run(curve_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(curve_run, tmp_path / "run")
    return tmp_path / "run"


def text_of(page: Path) -> str:
    return " ".join(" ".join(Outline(page.read_text(encoding="utf-8")).text).split())


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")


def said(run: Path) -> str:
    return " ".join(step.sentence for step in next_steps(read_run(run)))


def rewrite(file: Path, **columns: Any) -> None:
    """Change columns of a table; a value may be a function of the row."""
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    for row in rows:
        row |= {name: value(row) if callable(value) else value for name, value in columns.items()}
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_training_writes_the_page(curve_run: Path) -> None:
    text = text_of(curve_run / "report.html")
    summary = json.loads((curve_run / "summary.json").read_text(encoding="utf-8"))
    for expected in (
        "Task: segment foreground in",
        "trained on 7 images with a mask and none without",
        "Outcome: 3 of 3 updates of stage 2; the whole run took",
        f"On 5 held-out test cases, the mean Dice is {100 * summary['dice']['mean']:.1f} %",
        "Stage 2 had 3 updates; the default is 2000.",
        "From 4 to 7 masks, the mean Dice changed by",
        "they contain neither the choice of the masks nor the random seed",
        "Masks used for training (7)",
        "Settings that differ from the defaults",
        "labelled_batch",
        "whole images fit a batch",
        "all updates done",
        "The test has 5 cases",
    ):
        assert expected in text, expected
    assert "learning_rate" not in text, "a setting with its default is not listed"


def test_a_run_that_ended_before_its_pseudo_labels_says_so(run: Path) -> None:
    settings = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]
    for updates_done, shown in ((3, True), (4, False)):
        options = {"method": "fixmatch", "method_options": {"start_updates": 3}}
        change(run / "run.json", settings=settings | options, updates_done=updates_done)
        text = text_of(write_run_page(run)[0])
        assert ("pseudo-labels begin after 3 updates, so only the labelled images were used" in text) is shown
    assert "chosen at random" in text


def test_the_page_is_self_contained_and_names_are_text(curve_run: Path) -> None:
    html = (curve_run / "report.html").read_text(encoding="utf-8")
    outline = Outline(html)
    assert len(outline.images) == 7  # three cases, the curve, loss, stage 1, filters
    assert all(image["alt"] and len(image["alt"]) > 30 for image in outline.images)
    assert all(link.startswith(("data:", "#")) for link in outline.loaded)
    assert "<img src=x" not in html and "<b>data" not in html and "<i>run" not in html
    assert "<img src=x onerror=alert(1)>" in " ".join(outline.text), "the name is shown"


def test_report_of_one_run_refreshes_its_page(run: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (run / "report.html").write_text("old", encoding="utf-8")
    assert command(monkeypatch, "report", run) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    assert "Training run" in text_of(run / "report.html")
    other = run / "other.html"
    assert command(monkeypatch, "report", run, "-o", other, "--tables", run / "tables") == 0
    assert {"test.csv", "test.tex", "curve.csv", "all.tex"} <= {path.name for path in (run / "tables").iterdir()}
    capsys.readouterr()
    assert command(monkeypatch, "report", run, "-o", other) == 2
    assert "--force" in capsys.readouterr().err


def test_the_page_needs_no_data(run: Path, tmp_path: Path) -> None:
    settings = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]
    change(run / "run.json", settings=settings | {"data": str(tmp_path / "moved")})
    text = text_of(write_run_page(run)[0])
    assert "Groups (patients) are not known" in text and "worst:" in text


def test_damaged_and_missing_files_cost_their_section_only(run: Path) -> None:
    (run / "pretrained.safetensors").write_bytes(b"x")
    (run / "figures" / "cases" / "cases.json").write_text('{"cases": [{"role": "worst"}]}', encoding="utf-8")
    (run / "curve.csv").write_text("masks\n1\n", encoding="utf-8")
    text = text_of(write_run_page(run)[0])
    assert "Filters not shown" in text and "not a list of test cases" in text and "not a table of the curve" in text
    assert "Metrics by class" in text
    shutil.rmtree(run / "figures")
    (run / "curve.csv").unlink()
    assert "without drawing test cases" in text_of(write_run_page(run)[0])


def test_pictures_are_read_from_the_run_folder_only(run: Path) -> None:
    secret = run.parent / "secret.jpg"
    secret.write_bytes(b"\xff\xd8secret")
    entry = {"role": "worst", "case": "a", "dice": 0.5, "file": "../../../secret.jpg"}
    (run / "figures" / "cases" / "cases.json").write_text(json.dumps({"cases": [entry]}), encoding="utf-8")
    assert "image/jpeg" not in write_run_page(run)[0].read_text(encoding="utf-8")


def test_an_unfinished_run_has_a_page(run: Path) -> None:
    change(run / "run.json", status="running")
    for name in ("summary.json", "metrics.csv", "model.safetensors", "history.csv"):
        (run / name).unlink()
    text = text_of(write_run_page(run)[0])
    assert "not finished" in text and "hebbseg train --resume" in text


def test_a_page_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    assert "hebbseg report" in add_run_page(tmp_path) and "not written" in add_run_page(tmp_path)


def test_settings_that_method_auto_chose_are_defaults(curve_run: Path) -> None:
    facts = read_run(curve_run)
    assert facts.settings.finetune.method == "supervised" and "method" not in changed_settings(facts)
    assert options(facts) == {
        "size": "16x16", "features": "4,8", "updates": "3", "pretrain_epochs": "1", "labelled_batch": "2", "test": "0.4",
    }  # fmt: skip


def test_advice_on_length_follows_the_end_of_the_run(run: Path) -> None:
    change(run / "run.json", stopped_by="time_budget", updates_planned=30)
    assert "The time budget ended stage 2 after 3 of 30 updates. Without a validation set" in said(run)
    for scores, expected in (((0.1, 0.2, 0.3), "may help"), ((0.1, 0.3, 0.2), "unlikely to help")):
        rewrite(run / "history.csv", dice=lambda row, s=scores: s[int(row["step"]) - 1] if row["stage"] == "fit" else "")
        assert expected in said(run)
    change(run / "run.json", updates_planned=None)
    assert "The time budget ended stage 2 after 3 updates. The" in said(run)
    change(run / "run.json", stopped_by="patience", updates_planned=30)
    assert "ended early, after 3 of 30" in said(run) and "more masks or other settings" in said(run)
    change(run / "run.json", stopped_by="updates", updates_done=2000, updates_planned=2000)
    rewrite(run / "history.csv", dice="")
    assert "updates" not in said(run)


def test_advice_on_classes(run: Path) -> None:
    rewrite(run / "metrics.csv", n_prediction="0")
    assert "never predicts foreground, which is in 5 test cases" in said(run)
    rewrite(run / "metrics.csv", n_target="0")
    assert "No test case contains foreground" in said(run)


def many_cases(run: Path, rows: list[dict[str, Any]]) -> None:
    columns = ["case", "class", "dice", "n_prediction", "n_target"]
    lines = [",".join(columns), *(",".join(str(row[name]) for name in columns) for row in rows)]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_advice_on_bad_cases_only_beyond_chance(run: Path) -> None:
    def cases(dice: list[float], target: list[int], ratio: float = 1.0) -> None:
        rows = zip(dice, target, strict=True)
        many_cases(run, [
            {"case": str(k), "class": 1, "dice": d, "n_prediction": round(ratio * n), "n_target": n}
            for k, (d, n) in enumerate(rows)
        ])  # fmt: skip

    rising = [0.05 * k for k in range(20)]
    cases(rising, list(range(100, 120)))
    assert "a small annotated area have a lower Dice (rank correlation 1.00, n = 20)" in said(run)
    cases(rising[::-1], list(range(100, 120)), ratio=2.0)
    assert "a large annotated area" in said(run) and "correlation −1.00" in said(run)
    assert "is larger than the ground truth by a factor of more than 1.5 (median 2.0)" in said(run)
    cases(rising, [100] * 20, ratio=0.5)
    assert "smaller than the ground truth" in said(run) and "annotated area have" not in said(run)
    cases(np.random.default_rng(0).permutation(rising).tolist(), list(range(100, 120)))
    assert "annotated area" not in said(run) and "predicted area" not in said(run)


def test_advice_on_masks_and_stage_1(run: Path, curve_run: Path) -> None:
    assert "How many masks would help?" not in said(run), "the curve is there"
    (run / "curve.csv").unlink()
    assert "How many masks would help?" in said(run)
    split = json.loads((run / "split.json").read_text(encoding="utf-8"))
    labelled = split["training"]["labelled"]
    facts = read_run(run)
    hidden = facts.split.training.__class__(labelled=tuple(labelled[:2]), unlabelled=tuple(labelled[2:]))
    changed = RunFacts(**{**vars(facts), "split": facts.split.__class__(**{**vars(facts.split), "training": hidden})})
    assert "5 training images counted as unlabelled" in " ".join(step.sentence for step in next_steps(changed))
    layers = json.loads((run / "pretrain.json").read_text(encoding="utf-8"))
    change(run / "pretrain.json", **{name: layer | {"moved": 0.001, "effective_units": 1.0} for name, layer in layers.items()})
    assert "by less than 1%" in said(run) and "fewer than a quarter of the units" in said(run)


def test_words_of_the_curve_follow_its_intervals() -> None:
    def points(gain: float, half: float, exponent: tuple[float, float]) -> list[Point]:
        empty = dict.fromkeys([f"{n}{e}" for n in ("dice", "gain", "exponent") for e in ("", "_low", "_high")])
        gained = {"gain": gain, "gain_low": gain - half, "gain_high": gain + half}
        far = {"dice": 0.8, "dice_low": 0.75, "dice_high": 0.84, "exponent_low": exponent[0], "exponent_high": exponent[1]}
        measured = [Point(masks=m, measured=True, n=9, values=empty | {"dice": 0.6} | gained) for m in (3, 5, 10)]
        return [*measured, Point(masks=20, measured=False, n=9, values=empty | far)]

    up = curve_sentences(points(0.1, 0.05, (0.1, 0.3)))
    assert "+10.0 percentage points" in up and "More masks helped" in up and "20 masks would give a Dice of about 80 %" in up
    assert "That is a guess" in up
    flat = curve_sentences(points(0.01, 0.05, (-0.1, 0.3)))
    assert "no detectable effect" in flat and "there is no estimate for 20 masks" in flat and "−0.10" in flat
    assert "did not help" in curve_sentences(points(-0.1, 0.05, (-0.3, -0.1)))


def test_running_mean_is_that_of_a_loop() -> None:
    values = np.random.default_rng(0).normal(size=83)
    half = max(1, round(WINDOW * 83 / 2))
    slow = [np.mean([values[j] for j in range(83) if abs(i - j) <= half]) for i in range(83)]
    assert smoothed(values) == pytest.approx(slow)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.reporting.test_report_browser import CHROMIUM, playwright

    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_page_in_a_browser(browser: Any, curve_run: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto((curve_run / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.evaluate("Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))")
    assert len(sizes) == 7 and min(sizes) > 100 and complaints == []
    page.close()
