"""What the fuzzer mutates."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of file: valid contents, and the function that reads a mutated one."""

    name: str
    suffix: str
    contents: tuple[bytes, ...]
    read: Callable[[Path], object]
