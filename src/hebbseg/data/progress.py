"""Progress reports: the interface, a silent implementation, and plain lines for logs."""

import time
from typing import Any, Protocol, Self, TextIO

SHOWN = ("loss", "dice", "moved", "effective_units", "validation")
PLAIN_EVERY_S = 10.0


class Reporter(Protocol):
    def say(self, text: str) -> None: ...

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def shown_numbers(row: dict[str, Any]) -> str:
    return "  ".join(f"{name} {row[name]:.3g}" for name in SHOWN if isinstance(row.get(name), float))


class Quiet:
    """Show nothing."""

    def say(self, text: str) -> None: ...

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...


class Lines(Quiet):
    """Plain lines for logs and pipes, at most one every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage, self._start, self._last = "", 0.0, 0.0

    def say(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._start, self._last = stage, now, now
        if now - self._last >= PLAIN_EVERY_S or done == total:
            self._last = now
            self.say(f"{stage}  {done}/{total}  {shown_numbers(row)}  {now - self._start:.0f} s")


def duration(seconds: float) -> str:
    """``"1 h 05 min"``, ``"12 min"`` or ``"40 s"``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "image"), counted(2, "image"), counted(0, "class", "classes")
    ('1 image', '2 images', '0 classes')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
