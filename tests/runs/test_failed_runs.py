"""A run that an exception ends: its run.json says so, and it can be resumed once the cause is removed."""

import json
from pathlib import Path

import pytest

from hebbseg.errors import HebbsegError
from hebbseg.reporting.results import read_results
from hebbseg.training.interrupt import Interrupted
from tests.runs.test_damaged_folders import StopAt, start

FILES = ("model.safetensors", "metrics.csv", "history.csv", "split.json")


def described(out: Path) -> dict:
    return json.loads((out / "run.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "alone"
    start(out)
    return out


@pytest.mark.parametrize(
    ("stage", "error", "reason"),
    [
        ("stage 1", RuntimeError("out\nof memory"), "RuntimeError: out of memory"),
        ("stage 2", HebbsegError("image a.png has vanished."), "image a.png has vanished."),
    ],
)
def test_the_reason_is_recorded_and_the_run_can_be_resumed(
    stage: str, error: Exception, reason: str, alone: Path, tmp_path: Path
) -> None:
    def fail() -> None:
        raise error

    out = tmp_path / "run"
    with pytest.raises(type(error)):
        start(out, StopAt(stage, 3, fail))
    assert described(out)["status"] == "failed" and described(out)["error"].startswith(reason)
    with pytest.raises(HebbsegError, match=rf"already contains a run \(failed: {reason}.*Continue it with --resume"):
        start(out)
    (unread,) = read_results([out]).unread
    assert reason in unread.reason
    states: list[dict] = []
    start(out, StopAt("stage 2", 4, lambda: states.append(described(out))), resume=True)
    assert states[0]["status"] == "running" and "error" not in states[0]
    assert described(out)["status"] == "done"
    for name in FILES:
        assert (out / name).read_bytes() == (alone / name).read_bytes(), name


def test_a_stop_on_request_is_no_failure(tmp_path: Path) -> None:
    def stop() -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        start(tmp_path, StopAt("stage 2", 3, stop))
    assert described(tmp_path)["status"] == "running"


def test_a_failure_that_cannot_be_recorded_keeps_its_own_error(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def fail() -> None:
        (out / "run.json").write_text("{")
        raise RuntimeError("first")

    with pytest.raises(RuntimeError, match="first"):
        start(out, StopAt("stage 2", 3, fail))
