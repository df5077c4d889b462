"""Files that are either the old one or the new one, never half of either."""

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
    """Gives a temporary path beside ``path`` to write to; on success it is flushed to disk and takes its place.

    Whatever goes wrong before (an exception, a full disk, a killed process), the old file stays as it was.
    The temporary name keeps the suffix, for writers that choose a format by it.
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
    """Raises unless files can be written to ``folder``, which need not exist yet; nothing is left there."""
    try:
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not there.is_dir():
            raise HebbsegError(f"{folder}: {there} is a file, so nothing can be written there. Choose another folder.")
        # Permissions do not tell all: a disk may be full or mounted for reading only.
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise HebbsegError(
            f"{folder}: nothing can be written there ({error.strerror or error}). Choose another folder."
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
