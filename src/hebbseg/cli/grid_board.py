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
        tasks: all tasks of the grid.
        done: ids of tasks finished before this start, with their duration in seconds if known.
        slots: number of parallel tasks.
    """

    def __init__(self, tasks: Sequence[Task], done: dict[str, float | None], slots: int) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.state = {task.id: "done" if task.id in done else "left" for task in tasks}
        self.slots = slots
        self._seconds: dict[str, list[float]] = {}
        for name, seconds in done.items():
            if seconds is not None:
                self._seconds.setdefault(row_of(self.tasks[name]), []).append(seconds)
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
        self.state[task.id] = "running"

    def ended(self, task: Task, outcome: Outcome, *, again: bool = False) -> None:
        """``again``: the task will be retried."""
        finished = outcome.status == "done"
        self.state[task.id] = "done" if finished else "left" if again or outcome.status == "stopped" else "failed"
        if finished:
            self._seconds.setdefault(row_of(task), []).append(outcome.seconds)
        word = "lost, retrying" if again else outcome.status
        note = "" if finished else f": {outcome.message}"
        if not finished or not self._console.is_terminal:
            self._line(f"{word}  {task.id}  {outcome.seconds:.1f} s{note}  [{self.summary()}]")

    def blocked(self, task: Task) -> None:
        """The task cannot start because a task it depends on has failed."""
        self.state[task.id] = "failed"

    def summary(self) -> str:
        counts = Counter(self.state.values())
        parts = [f"{counts[state]} {state}" for state in STATES if counts[state] or state in ("done", "left")]
        if left := self.seconds_left():
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def seconds_left(self) -> float | None:
        """Estimate the remaining time from finished tasks of the same row; None if there are none."""
        every = [seconds for known in self._seconds.values() for seconds in known]
        if not every:
            return None
        total = 0.0
        for name, state in self.state.items():
            known = self._seconds.get(row_of(self.tasks[name]), every)
            total += {"left": 1.0, "running": 0.5}.get(state, 0.0) * sum(known) / len(known)
        return total / self.slots

    def _shown(self) -> Group:
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("")
        for state in STATES:
            table.add_column(state, justify="right")
        rows: dict[str, Counter[str]] = {}
        for name, state in self.state.items():
            rows.setdefault(row_of(self.tasks[name]), Counter())[state] += 1
        for row, counts in rows.items():
            table.add_row(Text(row), *(str(counts[state] or "") for state in STATES))
        elapsed = duration(time.monotonic() - self._start)
        return Group(table, Text(f"{self.summary()}; {elapsed} elapsed. Ctrl-C stops and keeps finished runs."))

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
