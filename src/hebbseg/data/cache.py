"""On-disk cache of preprocessed arrays for data sets that do not fit into memory (memory-mapped)."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hebbseg.atomic_files import replacing

# Incremented whenever the same settings produce different arrays.
FORMAT = 2
# PyTorch needs writable memory; writes never reach the file.
COPY_ON_WRITE: Literal["c"] = "c"


def default_memory_limit() -> int:
    """Return a quarter of the physical memory in bytes, or 4 GiB if its size is unknown."""
    if not hasattr(os, "sysconf"):
        return 4 * 2**30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def cache_folder() -> Path:
    """Return ``HEBBSEG_CACHE``, or ``hebbseg`` in the user's cache folder (XDG). It can be deleted at any time."""
    if os.environ.get("HEBBSEG_CACHE"):
        return Path(os.environ["HEBBSEG_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hebbseg"


def cache_key(source: str, case: str, files: Sequence[Path], settings: dict[str, Any]) -> str:
    """Return a key for a case preprocessed with these settings.

    Files are identified by path, size and modification time. Generated cases have no files; the source name suffices.
    """
    facts = {"format": FORMAT, "source": source, "case": case, "files": [_stamp(path) for path in files], "settings": settings}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def mapped(key: str, make: Callable[[], np.ndarray], folder: Path | None = None) -> np.ndarray:
    """Return the cached array, memory-mapped; compute and store it first if it is missing. Safe with several processes."""
    path = (folder or cache_folder()) / key[:2] / f"{key}.npy"
    with suppress(FileNotFoundError, ValueError, EOFError):  # missing or damaged
        return np.load(path, mmap_mode=COPY_ON_WRITE)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, make())
    return np.load(path, mmap_mode=COPY_ON_WRITE)


def _stamp(path: Path) -> list[Any]:
    # A member of a zip archive is identified by the archive.
    for existing in (path, *path.parents):
        if existing.exists():
            facts = existing.stat()
            return [str(path.absolute()), facts.st_size, facts.st_mtime_ns]
    return [str(path.absolute())]
