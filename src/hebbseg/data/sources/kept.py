"""Decoded files that are needed again soon, within a limit of memory."""

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values by key until they are taken, up to ``limit`` bytes; beyond it, values are not kept. Safe with several threads."""

    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._values: dict[K, tuple[V, int]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def keep(self, key: K, value: V, nbytes: int) -> None:
        """Keep the value, unless the limit would be exceeded."""
        with self._lock:
            if key not in self._values and self.bytes + nbytes <= self.limit:
                self._values[key] = value, nbytes
                self.bytes += nbytes

    def take(self, key: K) -> V | None:
        """Return the value and forget it; None if it is not kept."""
        with self._lock:
            value, nbytes = self._values.pop(key, (None, 0))
            self.bytes -= nbytes
            return value
