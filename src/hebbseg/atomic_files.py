"""Atomic file writes."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hebbseg.errors import HebbsegError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success, flush it to disk and rename it to ``path``.

    On failure (an exception, a full disk, a killed process), the old file is unchanged. The temporary file has the same
    suffix, for writers that choose the format by it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = "".join(path.suffixes[-2:])
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-", suffix=suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_unwritable(folder: Path) -> None:
    """Raise if ``folder``, which need not exist, is not writable."""
    try:
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not there.is_dir():
            raise HebbsegError(f"{folder}: {there} is a file, not a folder. Choose another folder.")
        # Permissions are not enough: the disk may be full or read-only.
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise HebbsegError(
            f"{folder}: the folder is not writable ({error.strerror or error}). Choose another folder."
        ) from error


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
