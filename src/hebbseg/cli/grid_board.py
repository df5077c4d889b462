"""Progress of a grid: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hebbseg.data.progress import duration
from hebbseg.experiments.tasks import Outcome, Task

STATES = ("done", "running", "failed", "left")


class Board:
    """Counts of tasks by arm and state, elapsed and remaining time.

    Args:
        tasks: all tasks of the grid; their rows have the order of first appearance.
        done: ids of tasks finished before this start, with their duration in seconds if known.
        slots: number of parallel tasks.
    """

    def __init__(self, tasks: Sequence[Task], done: dict[str, float | None], slots: int) -> None:
        self.state: dict[str, str] = {}
        self.slots = slots
        # Counts and sums by row: a grid of thousands of runs is summarized after each of them.
        self._counts: dict[str, Counter[str]] = {}
        self._seconds: dict[str, tuple[float, int]] = {}
        for task in tasks:
            self._set(task, "done" if task.id in done else "left")
            if (seconds := done.get(task.id)) is not None:
                self._timed(task, seconds)
        self._start = time.monotonic()
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=2, get_renderable=self._shown)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._line(self.summary())
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def started(self, task: Task) -> None:
        self._set(task, "running")

    def ended(self, task: Task, outcome: Outcome, *, again: bool = False) -> None:
        """``again``: the task will be retried."""
        finished = outcome.status == "done"
        self._set(task, "done" if finished else "left" if again or outcome.status == "stopped" else "failed")
        if finished:
            self._timed(task, outcome.seconds)
        word = "lost, retrying" if again else outcome.status
        note = "" if finished else f": {outcome.message}"
        if not finished or not self._console.is_terminal:
            self._line(f"{word}  {task.id}  {outcome.seconds:.1f} s{note}  [{self.summary()}]")

    def blocked(self, task: Task) -> None:
        """The task cannot start because a task it depends on has failed."""
        self._set(task, "failed")

    def summary(self) -> str:
        counts = sum(self._counts.values(), Counter[str]())
        parts = [f"{counts[state]} {state}" for state in STATES if counts[state] or state in ("done", "left")]
        if left := self.seconds_left():
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def seconds_left(self) -> float | None:
        """Estimate the remaining time from finished tasks of the same row; None if there are none."""
        if not self._seconds:
            return None
        every = [sum(column) for column in zip(*self._seconds.values(), strict=True)]
        total = 0.0
        for row, counts in self._counts.items():
            seconds, known = self._seconds.get(row, every)
            total += (counts["left"] + 0.5 * counts["running"]) * seconds / known
        return total / self.slots

    def _shown(self) -> Group:
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("")
        for state in STATES:
            table.add_column(state, justify="right")
        for row, counts in self._counts.items():
            table.add_row(Text(row), *(str(counts[state] or "") for state in STATES))
        elapsed = duration(time.monotonic() - self._start)
        return Group(table, Text(f"{self.summary()}; {elapsed} elapsed. Ctrl-C stops and keeps finished runs."))

    def _set(self, task: Task, state: str) -> None:
        counts = self._counts.setdefault(row_of(task), Counter())
        if task.id in self.state:
            counts[self.state[task.id]] -= 1
        counts[state] += 1
        self.state[task.id] = state

    def _timed(self, task: Task, seconds: float) -> None:
        total, number = self._seconds.get(row_of(task), (0.0, 0))
        self._seconds[row_of(task)] = total + seconds, number + 1

    def _line(self, text: str) -> None:
        if self._console.is_terminal:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)


def row_of(task: Task) -> str:
    """Return the row of the table that counts a task."""
    if task.kind == "stage1":
        return f"(stage 1: {task.settings.pretrain.init})"
    return str(task.note["arm"])
