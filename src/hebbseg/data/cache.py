"""Prepared arrays on disk, for sets that do not fit into memory: written once, then mapped."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hebbseg.atomic_files import replacing

# Raised whenever the same settings come to mean other numbers.
FORMAT = 2
# A tensor must be writable; what is written to it never reaches the file.
COPY_ON_WRITE: Literal["c"] = "c"


def cache_folder() -> Path:
    """``HEBBSEG_CACHE``, else ``hebbseg`` in the user's cache folder (XDG). May be deleted at any time."""
    if os.environ.get("HEBBSEG_CACHE"):
        return Path(os.environ["HEBBSEG_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hebbseg"


def cache_key(source: str, case: str, files: Sequence[Path], settings: dict[str, Any]) -> str:
    """A name for "this case of this source, in these files as they are now, prepared like this".

    Files are known by path, size and time of change. A generated case has none: its source's name tells all.
    """
    stamps = [_stamp(path) for path in files]
    facts = {"format": FORMAT, "source": source, "case": case, "files": stamps, "settings": settings}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def mapped(key: str, make: Callable[[], np.ndarray], folder: Path | None = None) -> np.ndarray:
    """The array of that name, mapped from disk, made first if it is not there.

    Two processes may ask at once: each writes its own temporary file, and the renaming of a finished file is atomic.
    """
    path = (folder or cache_folder()) / key[:2] / f"{key}.npy"
    array = _opened(path)
    if array is None:
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, make())
        array = np.load(path, mmap_mode=COPY_ON_WRITE)
    return array


def _opened(path: Path) -> np.ndarray | None:
    try:
        return np.load(path, mmap_mode=COPY_ON_WRITE)
    except (FileNotFoundError, ValueError, EOFError):
        # Absent, or damaged by something other than us: made anew.
        return None


def _stamp(path: Path) -> list[Any]:
    # A member of a zip file has no entry of its own on disk: the archive's counts.
    for existing in (path, *path.parents):
        if existing.exists():
            facts = existing.stat()
            return [str(path.absolute()), facts.st_size, facts.st_mtime_ns]
    return [str(path.absolute())]
