"""Ctrl-C between two updates, never in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hebbseg.errors import HebbsegError


class Interrupted(HebbsegError):
    """The user asked to stop, and everything is saved."""


class Request:
    """Whether somebody has asked to stop."""

    made: bool = False


@contextmanager
def interrupt_requests() -> Iterator[Request]:
    """Turns the first Ctrl-C (or a TERM signal) into a request that a loop can look at; the second one stops at once."""
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
