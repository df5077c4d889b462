"""Ctrl-C handling: a run stops between two updates."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hebbseg.errors import HebbsegError


class Interrupted(HebbsegError):
    """The user stopped the run, which can be resumed."""


class Request:
    """Whether a stop was requested."""

    made: bool = False


@contextmanager
def interrupt_requests() -> Iterator[Request]:
    """Turn the first Ctrl-C (or SIGTERM) into a request that a loop checks; the second one stops immediately."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if request.made:
            raise KeyboardInterrupt
        request.made = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
