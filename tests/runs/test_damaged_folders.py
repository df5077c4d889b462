"""Damaged, deleted and half-written run folders: an error that names the file, or a run that works."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from hebbseg import Segmenter
from hebbseg.atomic_files import remove_litter, replacing
from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.errors import HebbsegError
from hebbseg.runs.train import run
from hebbseg.training.interrupt import Interrupted
from tests.data.trees import save
from tests.runs.test_train import DATA, TINY

SECONDS = 120


class StopAt(Quiet):
    """Does something at a step of a stage."""

    def __init__(self, stage: str, number: int, action) -> None:
        self.stage, self.number, self.action = stage, number, action

    def step(self, stage: str, done: int, total: int, row: dict) -> None:
        if (stage, done) == (self.stage, self.number):
            self.action()


def start(out: Path, reporter: Quiet | None = None, *, resume: bool = False) -> None:
    run(make_settings(DATA, TINY), out, resume=resume, reporter=reporter)


@pytest.fixture(scope="module", params=["stage 1", "stage 2"])
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    number = 8 if request.param == "stage 1" else 6

    def stop() -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        start(out, StopAt(request.param, number, stop))
    assert (out / "checkpoint.pt").exists()
    return out


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "list": lambda content: b"[1, 2]",
    "deep": lambda content: b"[" * 100_000,
    "bytes": lambda content: b"\xff\xfe\x00" * 50,
    "no keys": lambda content: b"{}",
}


@pytest.mark.parametrize("name", ["run.json", "split.json", "checkpoint.pt"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_with_a_remedy(interrupted: Path, name: str, damage: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    (out / name).write_bytes(DAMAGES[damage]((out / name).read_bytes()))
    remedy = "Delete it|delete the checkpoint|Restore it"
    with pytest.raises(HebbsegError, match=rf"{name}: .*({remedy})") as caught:
        start(out, resume=True)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    "change",
    [{"settings": 5}, {"settings": {}}, {"settings": {"data": 5, "updates": []}}, {"split_hash": 7}, {"status": None}],
    ids=str,
)
def test_wrong_types_in_run_json(interrupted: Path, change: dict, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    described = json.loads((out / "run.json").read_text(encoding="utf-8"))
    (out / "run.json").write_text(json.dumps(described | change), encoding="utf-8")
    with pytest.raises(HebbsegError):
        start(out, resume=True)


def test_wrong_content_of_a_checkpoint(interrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    inner = state["state"]
    damaged = [
        [1], {}, state | {"stage": "?"}, state | {"state": 5}, state | {"state": {}},
        state | {"state": dict.fromkeys(inner, 5)},
        *(state | {"state": {key: value for key, value in inner.items() if key != name}} for name in inner),
    ]  # fmt: skip
    for wrong in damaged:
        torch.save(wrong, out / "checkpoint.pt")
        with pytest.raises(HebbsegError, match=r"checkpoint\.pt: "):
            start(out, resume=True)
    (out / "checkpoint.pt").unlink()
    start(out, resume=True)
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["status"] == "done"


def test_another_split_stops_the_run(interrupted: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(interrupted, out)
    with pytest.raises(Interrupted):
        run(make_settings(DATA, TINY | {"seed": 5}), other, reporter=StopAt("stage 1", 1, lambda: os.kill(os.getpid(), 2)))
    shutil.copy(other / "split.json", out / "split.json")
    with pytest.raises(HebbsegError, match=r"split\.json: another split .* than in run\.json"):
        start(out, resume=True)


def test_a_deleted_folder_is_noticed_during_training(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(HebbsegError, match=r"run: the run folder was deleted or moved during the run"):
        start(out, StopAt("stage 2", 3, lambda: shutil.rmtree(out)))
    assert not out.exists(), "it is not created again"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_test_ends_with_a_message(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stop = StopAt("test", 1, lambda: os.kill(os.getpid(), number))
    with pytest.raises(Interrupted, match=r"Stopped after 1 of \d+ test cases\. The trained model is .*--resume"):
        start(out, stop)
    start(out, resume=True)
    assert (out / "summary.json").exists()


def test_other_commands_end_with_a_message_after_sigterm(tmp_path: Path) -> None:
    code = (
        "import os, signal; from hebbseg.cli import app; app.app = lambda a: os.kill(os.getpid(), signal.SIGTERM); app.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=SECONDS)
    assert ended.returncode == 143 and "Stopped by SIGTERM." in ended.stderr


def test_litter_of_killed_processes_is_ignored_and_removed(tmp_path: Path) -> None:
    code = f"import os\nfrom hebbseg.atomic_files import replacing\nwith replacing({str(tmp_path / 'a.json')!r}): os._exit(9)"
    subprocess.run([sys.executable, "-c", code], timeout=SECONDS)
    assert [path.name.startswith(".writing-") for path in tmp_path.iterdir()] == [True]
    (tmp_path / ".writing-of-an-old-version").touch()
    os.utime(tmp_path / ".writing-of-an-old-version", (time.time() - 10_000,) * 2)
    start(tmp_path)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    with replacing(tmp_path / "b.json") as temporary:
        remove_litter(tmp_path)
        assert temporary.exists(), "of a process that runs"


@pytest.mark.parametrize("target", ["progress.png", "test.png", "metrics.csv", "summary.json", "model.safetensors"])
def test_a_full_disk_is_a_user_error(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def full(self: Path, other: Path) -> Path:
        if other.name == target:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, other)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(HebbsegError, match=rf"{target}: could not be written \(the disk is full\)"):
        start(tmp_path / "run")
    monkeypatch.undo()
    start(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("side", [1, 2])
@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_images_too_small_for_the_norm_are_refused_before_training(side: int, norm: str, tmp_path: Path) -> None:
    for name in "abcd":
        save(tmp_path / "data" / "images" / f"{name}.png", np.full((side, side), ord(name), np.uint8))
        save(tmp_path / "data" / "masks" / f"{name}.png", np.full((side, side), 255 * (name < "c"), np.uint8))
    with pytest.raises(HebbsegError, match=rf"{side}×{side} pixels is too small for a UNet of 3 levels with norm={norm}"):
        Segmenter.train(tmp_path / "data", tmp_path / "run", quiet=True, size="native", norm=norm, features=(4, 8, 8))
    assert not (tmp_path / "run").exists()
