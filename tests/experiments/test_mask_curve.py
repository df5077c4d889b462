"""--curve: nested masks on the same test cases, a divided time budget, resuming, refusals."""

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.experiments import mask_curve
from hebbseg.experiments.mask_curve import mask_counts, train
from hebbseg.runs.metrics_file import dice_by_case, read_metrics
from tests.tiny import bright_folder, command


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "curve.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_masks_are_nested_and_the_test_cases_the_same(curve_run: Path) -> None:
    splits = [Split.load(run / "split.json") for run in (*sorted((curve_run / "curve").iterdir()), curve_run)]
    labelled = [split.training.labelled for split in splits]
    assert [len(each) for each in labelled] == mask_counts(len(labelled[-1])) == [2, 4, 7]
    for smaller, larger in pairwise(labelled):
        assert larger[: len(smaller)] == smaller
    assert len({split.test for split in splits}) == 1
    assert len({split.training.images for split in splits}) == 1, "the other images stay, without their masks"


def test_settings_and_plan_are_those_of_the_run(curve_run: Path) -> None:
    def settings(run: Path) -> dict[str, object]:
        stored = json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]
        planned = ("labelled", "patch", "unlabelled_batch", "pretrain_batch")
        return {name: value for name, value in stored.items() if name not in planned}

    for smaller in (curve_run / "curve").iterdir():
        assert settings(smaller) == settings(curve_run)


def test_the_table_has_means_and_paired_gains(curve_run: Path) -> None:
    found = rows(curve_run)
    assert [(row["masks"], row["kind"]) for row in found] == [
        ("2", "measured"), ("4", "measured"), ("7", "measured"), ("14", "extrapolated"),
    ]  # fmt: skip
    dice = [dice_by_case(read_metrics(curve_run / row["folder"])) for row in found[:3]]
    for row, values in zip(found, dice, strict=False):
        assert float(row["dice"]) == pytest.approx(sum(values.values()) / len(values))
        assert int(row["n"]) == len(values) == 5
    gains = [dice[2][case] - dice[1][case] for case in dice[1]]
    assert float(found[2]["gain"]) == pytest.approx(sum(gains) / len(gains))
    assert float(found[2]["gain_low"]) <= float(found[2]["gain"]) <= float(found[2]["gain_high"])
    assert found[3]["folder"] == "" and float(found[3]["dice_low"]) <= float(found[3]["dice_high"])


def test_an_interrupted_curve_is_completed_by_resume(curve_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(curve_run, run)
    shutil.rmtree(run / "curve" / "masks-4")
    (run / "curve.csv").unlink()
    kept = (run / "curve" / "masks-2" / "model.safetensors").stat().st_mtime_ns
    assert command(monkeypatch, "train", "--resume", "-o", run) == 0, "run.json tells that there is a curve"
    times = {"seconds"}
    assert [{k: v for k, v in row.items() if k not in times} for row in rows(run)] == [
        {k: v for k, v in row.items() if k not in times} for row in rows(curve_run)
    ]
    assert (run / "curve" / "masks-2" / "model.safetensors").stat().st_mtime_ns == kept


def test_a_time_budget_is_divided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run gets a third, also when the same command is repeated with --resume; nothing is trained here."""
    data = bright_folder(tmp_path / "data", "abcdefghij")
    given: list[float | None] = []
    monkeypatch.setattr(mask_curve, "_train_points", lambda out, counts, reporter: None)

    def record(settings, out, *, notes, **_):
        given.append(settings.finetune.time_budget_s)
        run = {"settings": settings.flat(), "split_hash": "", "status": "running"} | notes
        out.mkdir(exist_ok=True)
        if notes:
            (out / "run.json").write_text(json.dumps(run), encoding="utf-8")

    monkeypatch.setattr(mask_curve, "run", record)
    settings = make_settings(data, {"time_budget_s": 90})
    train(settings, tmp_path / "run", curve=True)
    train(settings, tmp_path / "run", curve=True, resume=True)
    train(settings.changed(time_budget_s=30.0), tmp_path / "run", resume=True, reporter=Quiet())
    train(settings, tmp_path / "other")
    assert given == [30, 30, 30, 90]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"test": "0"}, "--curve needs test cases"),
        ({"labelled": "1"}, "at least 2 labelled training images"),
        ({"devices": 2}, "single device"),
        ({"from_run": "earlier"}, "--curve and --from earlier"),
    ],
)
def test_what_can_have_no_curve(options: dict[str, object], said: str, tmp_path: Path) -> None:
    data = bright_folder(tmp_path / "data")
    with pytest.raises(HebbsegError, match=said):
        train(make_settings(data, options), tmp_path / "run", curve=True)
    assert not (tmp_path / "run").exists()


def test_a_trained_model_as_initial_weights_is_refused(curve_run: Path, tmp_path: Path) -> None:
    settings = make_settings(bright_folder(tmp_path / "data"), {"init": str(curve_run / "model.safetensors")})
    with pytest.raises(HebbsegError, match="has been trained with masks"):
        train(settings, tmp_path / "run", curve=True)
