"""What connects a stage of training to its run: the state to resume from, checkpoints, progress, requests to stop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hebbseg.training.interrupt import Interrupted, Request

State = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Session:
    """How a stage resumes, saves, reports and stops. The default does none of it.

    Args:
        state: of an earlier session that was cut short, as it was last given to ``save``.
        save: called with a function that makes the state (plain values and tensors), and whether it must be saved now.
        report: called after every step with (steps done, steps in all, newest row of the history).
        request: looked at after every step.
    """

    state: State | None = None
    save: Callable[[Callable[[], State], bool], None] = lambda make_state, now: None
    report: Callable[[int, int, Row], None] = lambda done, total, row: None
    request: Request | None = None

    @property
    def stop_requested(self) -> bool:
        return self.request is not None and self.request.made

    def stop_if_requested(self, message: str) -> None:
        if self.stop_requested:
            raise Interrupted(message)
