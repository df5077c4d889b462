"""The same function over many files, a few at a time: decoders let go of the interpreter while they work."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def parallel_map(function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """``map`` in threads, results in order. The first exception is raised where its result would have been."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        yield from pool.map(function, items)
