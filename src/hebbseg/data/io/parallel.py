"""Parallel map over files, in threads: decoders release the interpreter lock."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def parallel_map(function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Yield the results in order; an exception is raised in place of its result."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        yield from pool.map(function, items)
