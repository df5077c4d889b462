"""hebbseg train and pretrain from the command line: results, resuming and user errors."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hebbseg.cli.options import parse_assignments, seconds
from hebbseg.errors import HebbsegError
from tests.data.trees import save
from tests.tiny import GLANDS, TINY, bright_folder, command


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert command(monkeypatch, "train", GLANDS, "-o", folder, "--labelled", "25%", "--seed", "3", *TINY) == 0
    return folder


def test_a_run_prints_its_results_and_files(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert command(monkeypatch, "train", "--resume", "-o", run_folder) == 0
    out, err = capsys.readouterr()
    summary = json.loads((run_folder / "summary.json").read_text(encoding="utf-8"))
    assert f"Dice {100 * summary['dice']['mean']:.1f}" in out
    for name in ("model.safetensors", "metrics.csv", "summary.json", "progress.png", "test.png"):
        assert name in out
    assert "already complete" in err
    settings = json.loads((run_folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["labelled"], settings["seed"], settings["features"]) == ("25%", 3, [4, 8])
    assert (settings["labelled_batch"], settings["pretrain_epochs"]) == (2, 1)


def test_an_output_folder_with_a_run_is_left_alone(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    before = (run_folder / "run.json").read_bytes()
    assert command(monkeypatch, "train", GLANDS, "-o", run_folder, *TINY) == 2
    assert "--resume" in capsys.readouterr().err
    assert command(monkeypatch, "train", "--resume", "-o", run_folder, "--seed", "4") == 2
    assert "seed: 3 then, 4 now" in capsys.readouterr().err
    started_with = json.loads(before)["settings"]["method"]
    assert command(monkeypatch, "train", "--resume", "-o", run_folder, "--method", "uamt") == 2
    assert f"method: '{started_with}' then, 'uamt' now" in capsys.readouterr().err
    assert command(monkeypatch, "train", "--resume", "-o", run_folder, "--method", "auto") == 0
    assert (run_folder / "run.json").read_bytes() == before


def test_options_reach_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = bright_folder(tmp_path / "data")
    arguments = [
        "--init",
        "random",
        "--method",
        "supervised",
        "--labelled",
        "2",
        "--time-budget",
        "1m",
        "--patch",
        "16x16",
    ]
    arguments += ["--size", "native", "--label-map", "square=255", "--group", "^(.)", "--tta", "flips", "--protocol"]
    arguments += ["few-label", "--folds", "3", "--fold", "1", "--accelerator", "cpu", "--precision", "32-true"]
    arguments += ["--features", "4,8", "--updates", "2", "--devices", "1", "--num-nodes", "1", "--set", "ema=0.5"]
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *arguments) == 0
    settings = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["settings"]
    expected = {
        "init": "random", "labelled": "2", "time_budget_s": 60.0, "patch": [16, 16], "size": "native", "group": "^(.)",
        "label_map": "square=255", "tta": "flips", "folds": 3, "fold": 1, "accelerator": "cpu", "ema": 0.5,
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected


def test_pretrain_shows_its_layers_and_its_weights_start_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    data = bright_folder(tmp_path / "data", masks="")
    small = ("--size", "32x32", "--features", "4,8", "--set", "pretrain_epochs=1")
    assert command(monkeypatch, "pretrain", data, "-o", tmp_path / "stage1", *small) == 0
    out = capsys.readouterr().out
    assert "encoder.level1.conv1" in out and "|cos|" in out and "norm" in out and "…" not in out
    weights = tmp_path / "stage1" / "pretrained.safetensors"
    assert f"--init {weights}" in out
    bright_folder(data)
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", "--init", weights, *TINY) == 0


def test_train_without_masks_reports_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    data = bright_folder(tmp_path / "data", masks="")
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *TINY) == 2
    err = capsys.readouterr().err
    assert "mask" in err and ("pretrain" in err or "pre-train" in err) and "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_a_single_mask_needs_an_empty_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    data = bright_folder(tmp_path / "data", masks="c")
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *TINY) == 2
    assert "test=0" in capsys.readouterr().err
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *TINY, "--set", "test=0") == 0
    assert "no test cases" in capsys.readouterr().out
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.parametrize("value", [0, 255])
def test_masks_of_one_class_only(
    value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    data = bright_folder(tmp_path / "data", masks="")
    for name in "abcdef":
        save(data / "masks" / f"{name}.png", np.full((24, 32), value, np.uint8))
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *TINY) == 2
    err = capsys.readouterr().err
    assert f"(only {value})" in err and "Training needs masks" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "-o"),
        (["train", "x"], "-o"),
        (["train", "-o", "run"], "DATA is missing"),
        (["train", "--resume", "-o", "run"], "no run to resume"),
        (["train", GLANDS, "-o", "run", "--set", "learning_rte=1"], "Did you mean 'learning_rate'"),
        (["train", GLANDS, "-o", "run", "--set", "ema"], "NAME=VALUE"),
        (["train", GLANDS, "-o", "run", "--set", "ema=2"], "ema='2'"),
        (["train", GLANDS, "-o", "run", "--set", "ema=0.1", "--set", "ema=0.2"], "twice"),
        (["train", GLANDS, "-o", "run", "--updates", "3", "--set", "updates=4"], "twice"),
        (["train", GLANDS, "-o", "run", "--learning-rate", "1"], "--set learning_rate=VALUE"),
        (["train", GLANDS, "-o", "run", "--labled", "10%"], "--labelled"),
        (["train", GLANDS, "-o", "run", "--init", "hebian"], "Did you mean 'hebbian'"),
        (["train", GLANDS, "-o", "run", "--method", "supervized"], "Did you mean 'supervised'"),
        (["train", GLANDS, "-o", "run", "--time-budget", "soon"], "30m"),
        (["train", GLANDS, "-o", "run", "--protocol", "papr"], "'few-label', 'paper' or 'selection'"),
        (["train", GLANDS, "-o", "run", "--updates", "many"], "--updates"),
        (["train", GLANDS, "-o", "run", "--tta", "flip"], "'flips'"),
        (["train", "phantom:glnds", "-o", "run"], "Did you mean 'glands'"),
        (["train", GLANDS, "-o", "a_file"], "is a file"),
        (["trian", "x"], "train"),
    ],
)
def test_mistakes_are_named_with_exit_code_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    assert command(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert words in err and "Traceback" not in err and out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_file"]


def test_settings_can_be_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from hebbseg.config import FLAT_NAMES

    assert command(monkeypatch, "train", "--list-settings") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in FLAT_NAMES if name != "data")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5 h", 5400),
        ("1M 30S", 90),
        ("5min", 300),
    ],
)
def test_durations(text: str, expected: float):
    assert seconds(text) == expected


def test_labeled_is_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = bright_folder(tmp_path / "data")
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", "--labeled", "2", "--method", "supervised", *TINY) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["settings"]["labelled"] == "2"


@pytest.mark.parametrize("text", ["4", "90.5", "1h30"])
def test_durations_need_a_unit(text: str):
    with pytest.raises(HebbsegError, match=r"--time-budget.*(has no unit. Write \S+s, \S+m or \S+h|Examples: 90s)"):
        seconds(text)


@pytest.mark.parametrize("text", ["", "m", "3d", "-5s", "0", "1.2.3s", "m30", "nan"])
def test_invalid_durations(text: str):
    with pytest.raises(HebbsegError, match="--time-budget"):
        seconds(text)


def test_assignments():
    assert parse_assignments(["learning-rate=0.01", "size = 8x8"]) == {"learning_rate": "0.01", "size": "8x8"}
    options = parse_assignments(["method_options.weight=5", "method_options.kind=hard", "method_options.on=True"])
    assert options == {"method_options": {"weight": 5, "kind": "hard", "on": True}}


@pytest.mark.slow
def test_ctrl_c_saves_exits_with_130_and_prints_the_resume_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    small = ["--size", "32x32", "--features", "4,8", "--set", "labelled_batch=2", "--init", "random"]
    arguments = ["train", GLANDS, "-o", str(tmp_path / "run"), *small, "--updates", "100000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hebbseg", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    for _ in range(600):
        # Stage 2 starts once the initial weights are written.
        if (tmp_path / "run" / "pretrained.safetensors").exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"hebbseg train --resume -o {tmp_path / 'run'}" in err and "Traceback" not in err
    assert (tmp_path / "run" / "checkpoint.pt").is_file()
    # The printed command needs no settings: they are stored in the run, and other values are an error.
    assert command(monkeypatch, "train", "--resume", "-o", tmp_path / "run", "--updates", "7") == 2
    assert "updates: 100000 then, 7 now" in capsys.readouterr().err


def test_help_method_explains_the_method_and_its_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "train", "--method", "uamt", "--help-method") == 0
    printed = capsys.readouterr().out
    assert "passes=8" in printed and "T stochastic passes" in printed
    assert command(monkeypatch, "train", "--help-method") == 0
    assert "auto: " in capsys.readouterr().out


def test_tensorboard_gets_every_number_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="the extra hebbseg[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # Validation follows the row of the history it belongs to: its Dice must not be lost.
    paper = ["--protocol", "paper", "--folds", "3", "--fold", "0", "--set", "validate_every=3", "--updates", "401"]
    arguments = [*TINY[:4], *TINY[6:], *paper, "--set", "patience=1", "--tensorboard"]
    assert command(monkeypatch, "train", GLANDS, "-o", tmp_path / "run", *arguments) == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    written = {(tag, scalar.step): scalar.value for tag in events.Tags()["scalars"] for scalar in events.Scalars(tag)}
    expected = {}
    for row in csv.DictReader((tmp_path / "run" / "history.csv").open(encoding="utf-8")):
        stage = {"pretrain": "stage 1", "fit": "stage 2"}[row["stage"]]
        for name in set(row) - {"stage", "phase", "epoch", "step"}:
            if row[name]:
                expected[f"{stage}/{name}", int(row["step"])] = float(row[name])
    assert written == pytest.approx(expected, rel=1e-5)
    assert any(tag == "stage 2/dice" for tag, _ in written)


@pytest.mark.parametrize("name", ["train", "pretrain"])
def test_without_tensorboard_no_run_starts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it were not installed
    assert command(monkeypatch, name, GLANDS, "-o", tmp_path / "run", "--set", "tensorboard=true") == 2
    assert "pip install hebbseg[tensorboard]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("value", "shown"), [(255, "foreground"), (0, "background")])
def test_labelled_masks_of_one_class_are_a_warning(value: int, shown: str, tmp_path: Path, monkeypatch, capsys):
    data = bright_folder(tmp_path / "data")
    for name in "abcde":
        save(data / "masks" / f"{name}.png", np.full((24, 32), value, np.uint8))
    arguments = ("train", data, "-o", tmp_path / "run", "--set", "test=0", "--labelled", "1", *TINY)
    assert command(monkeypatch, *arguments) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert f"warning: the masks of 1 labelled training image show only {shown}" in err
