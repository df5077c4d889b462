import sys
from pathlib import Path

import pytest

from hebbseg.data.progress import Lines, Quiet
from hebbseg.training.tensorboard import WithTensorBoard


def test_lines_come_now_and_then_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(sys.stderr)
    for done in range(1, 101):
        lines.step("stage 2", done, 100, {"loss": 0.5, "dice": 0.25})
    printed = capsys.readouterr().err.strip().splitlines()
    assert len(printed) == 1 and printed[0].startswith("stage 2  100/100  loss 0.5  dice 0.25")


def test_tensorboard_gets_each_row_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with WithTensorBoard(Quiet(), tmp_path / "tb") as reporter:
        for row in ({}, {"step": 5, "loss": 0.5}, {"step": 5, "loss": 0.5}, {"step": 10, "loss": 0.25, "stage": "fit"}):
            reporter.step("stage 2", 1, 10, row)
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("stage 2/loss")] == [(5, 0.5), (10, 0.25)]
