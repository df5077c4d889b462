"""How much memory decoded images may use before they are cached on disk."""

import os
from contextlib import suppress
from pathlib import Path

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
    return min([_physical(), *_limits()]) // SHARE


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
