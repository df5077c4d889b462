"""Atomic file writes."""

import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hebbseg.errors import FileError, HebbsegError, reason_of

WRITING = ".writing-"
_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # as Python decodes such bytes in names
LITTER_AGE_S = 3600  # of files whose process is unknown
_HOST = re.sub(r"\W", "_", platform.node())[:40]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success, flush it to disk and rename it to ``path``.

    On failure (an exception, a full disk, a killed process), the old file is unchanged. The temporary file has the same
    suffix, for writers that choose the format by it.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        suffix = "".join(path.suffixes[-2:])
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{WRITING}{owner()}-", suffix=suffix)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        kept = "The previous file is intact. " if path.exists() else ""
        remedy = f"{kept}Free disk space or choose another folder, then try again."
        raise FileError(path, f"could not be written ({reason_of(error)})", remedy) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def owner() -> str:
    """Return the part of a temporary file's name that tells whether its process still runs."""
    return f"{_HOST}-{os.getpid()}"


def is_running(name: str) -> bool | None:
    """Return whether the process runs that wrote ``name``, which starts with its `owner`; None on another machine."""
    host, _, rest = name.partition("-")
    process = rest.partition("-")[0]
    if host != _HOST or not process.isdecimal():
        return None
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # a process of another user
        return True
    return True


def remove_litter(folder: Path, prefix: str = WRITING) -> None:
    """Remove the temporary files of killed processes in a folder; those of running processes are kept."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(prefix) and _is_litter(entry, prefix):
                (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)


def is_empty(folder: Path) -> bool:
    """Return whether a folder contains nothing but temporary files."""
    return all(entry.name.startswith(WRITING) for entry in folder.iterdir())


def _is_litter(entry: "os.DirEntry[str]", prefix: str) -> bool:
    running = is_running(entry.name.removeprefix(prefix))
    if running is not None:
        return not running
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > LITTER_AGE_S


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


def reserve(file: int, size: int) -> None:
    """Give an open file this size and reserve its disk space; raises an OSError on a full disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


def write_text(path: str | Path, text: str) -> None:
    """Write a text; bytes of file names that are not UTF-8 become �."""
    with replacing(path) as temporary:
        temporary.write_text(_NOT_UTF8.sub("\ufffd", text), encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON; file names that are not UTF-8 are kept, as escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_text(path, _NOT_UTF8.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
