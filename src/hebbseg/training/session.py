"""The connection of a training stage to its run: resume state, checkpoints, progress, stop requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hebbseg.errors import explaining
from hebbseg.training.interrupt import Interrupted, Request

State = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Session:
    """How a stage resumes, saves, reports and stops. The default does none of these.

    Args:
        state: the last saved state of an interrupted session.
        save: called with a function that returns the state (plain values and tensors), and whether to save it now.
        report: called after every step with (steps done, total steps, latest row of the history).
        request: checked after every step.
        checkpoint: the file of the state, for errors.
        ended: called at the end of stage 2 with (updates done, what ended it: "updates", "time_budget" or "patience").
    """

    state: State | None = None
    save: Callable[[Callable[[], State], bool], None] = lambda make_state, now: None
    report: Callable[[int, int, Row], None] = lambda done, total, row: None
    request: Request | None = None
    checkpoint: str | Path = "checkpoint.pt"
    ended: Callable[[int, str], None] = lambda done, stopped_by: None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Report a state that does not fit this stage as an error about the checkpoint."""
        remedy = "Delete it and resume the run: training starts again, with the same settings and split."
        with explaining(self.checkpoint, "its state is incomplete or of another run", remedy):
            yield

    @property
    def stop_requested(self) -> bool:
        return self.request is not None and self.request.made

    def stop_if_requested(self, message: str) -> None:
        if self.stop_requested:
            raise Interrupted(message)
