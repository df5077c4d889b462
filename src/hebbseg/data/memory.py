"""Arrays in memory up to a limit, beyond it on disk, and the limit."""

import os
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from hebbseg.data.cache import mapped
from hebbseg.errors import HebbsegError

VARIABLE = "HEBBSEG_MEMORY_MB"
SHARE = 4  # of the memory: a quarter
UNKNOWN = 16 * 2**30
# Limits of a container or of a job of a cluster, cgroup v2 and v1.
_CGROUP = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def default_memory_limit() -> int:
    """Return ``HEBBSEG_MEMORY_MB`` in bytes, or a quarter of the memory of the machine, or of the container if it has less."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        if not given.isdecimal():
            raise HebbsegError(f"{VARIABLE}={given!r}: allowed is a number of megabytes, such as 4000.")
        return int(given) * 10**6
    return machine_memory() // SHARE


def machine_memory() -> int:
    """Return the memory of the machine, or of the container if it has less, in bytes."""
    return min([_physical(), *_limits()])


class MemoryThenDisk:
    """Tensors by key, made once. They stay in memory up to ``limit`` bytes; those beyond it are in the cache on disk.

    Those on disk are mapped at each access: many thousand mappings would exceed the limit of the system, and the pages of a
    mapping that stays open stay in memory.

    Args:
        limit: bytes.
        folder: folder of the cache; default: the user's cache folder.
    """

    def __init__(self, *, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self.folder = folder
        self.bytes = 0
        self.in_memory: dict[Hashable, Tensor] = {}
        self.on_disk: dict[Hashable, str] = {}

    def get(self, name: Hashable, make: Callable[[], Tensor], key: Callable[[], str]) -> Tensor:
        """Return the tensor of this name; ``key`` returns its key in the cache (`hebbseg.data.cache`)."""
        if (found := self.in_memory.get(name)) is not None:
            return found
        if name not in self.on_disk and self.bytes < self.limit:
            found = make()
            self.bytes += found.numel() * found.element_size()
            if self.bytes <= self.limit:
                self.in_memory[name] = found
                return found
        if name not in self.on_disk:
            self.on_disk[name] = key()
        return torch.from_numpy(mapped(self.on_disk[name], lambda: (make() if found is None else found).numpy(), self.folder))


def _physical() -> int:
    if not hasattr(os, "sysconf"):
        return UNKNOWN
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limits() -> list[int]:
    found = []
    for path in _CGROUP:
        with suppress(OSError, ValueError):  # "max": no limit
            found.append(int(path.read_text().strip()))
    return found
