"""Progress of a run: bars on a terminal, a line every few seconds elsewhere, nothing if quiet."""

import sys
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hebbseg.data.progress import Lines, Quiet, Reporter, shown_numbers


class Bars(Quiet):
    """One progress bar per stage, with the latest metrics and the remaining time."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<11}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total, numbers="")
        self._progress.update(self._tasks[stage], completed=done, total=total, numbers=shown_numbers(row))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()


def make_reporter(*, quiet: bool = False) -> Reporter:
    if quiet:
        return Quiet()
    return Bars() if sys.stderr.isatty() else Lines(sys.stderr)
