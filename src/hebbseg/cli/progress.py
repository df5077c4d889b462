"""What a person sees while a run goes on: a bar on a terminal, a line now and then elsewhere, nothing if quiet."""

import sys
import time
from pathlib import Path
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hebbseg.errors import HebbsegError

SHOWN = ("loss", "dice", "moved", "effective_units")
PLAIN_EVERY_S = 10.0


class Reporter(Protocol):
    def say(self, text: str) -> None: ...

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def _numbers(row: dict[str, Any]) -> str:
    return "  ".join(f"{name} {row[name]:.3g}" for name in SHOWN if isinstance(row.get(name), float))


class Quiet:
    """Says nothing."""

    def say(self, text: str) -> None: ...

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...


class Lines(Quiet):
    """Plain lines, one every few seconds, for logs and pipes."""

    def __init__(self) -> None:
        self._stage, self._start, self._last = "", 0.0, 0.0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._start, self._last = stage, now, now
        if now - self._last >= PLAIN_EVERY_S or done == total:
            self._last = now
            self.say(f"{stage}  {done}/{total}  {_numbers(row)}  {now - self._start:.0f} s")


class Bars(Quiet):
    """A bar for each stage with the newest numbers and the time left."""

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
        self._progress.update(self._tasks[stage], completed=done, total=total, numbers=_numbers(row))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()


def require_tensorboard() -> None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise HebbsegError(
            "tensorboard=True: TensorBoard is not installed; `pip install hebbseg[tensorboard]`."
        ) from None


class WithTensorBoard:
    """Passes everything on, and writes the numbers of every row to a folder that TensorBoard reads."""

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._reporter = reporter
        self._writer = SummaryWriter(str(folder), flush_secs=10)
        self._written: dict[tuple[str, int], float] = {}

    def say(self, text: str) -> None:
        self._reporter.say(text)

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        self._reporter.step(stage, done, total, row)
        # A row may get further numbers after it was first shown: the Dice of a later look at the validation cases.
        for name, value in row.items():
            place = (f"{stage}/{name}", row["step"])
            if isinstance(value, float) and self._written.get(place) != value:
                self._written[place] = value
                self._writer.add_scalar(place[0], value, row["step"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()


def make_reporter(*, quiet: bool = False) -> Reporter:
    if quiet:
        return Quiet()
    return Bars() if sys.stderr.isatty() else Lines()
