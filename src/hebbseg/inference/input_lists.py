"""IMAGES of ``hebbseg predict``: patterns such as ``'scans/**/*.png'``, and lists of files on standard input."""

from collections.abc import Iterable, Sequence
from glob import has_magic
from pathlib import Path

from hebbseg.errors import HebbsegError

STDIN = "-"


def expanded(specs: Sequence[str], listed: Iterable[str] = ()) -> list[str]:
    """Return the specifications with patterns replaced by the files they match, and ``-`` by the lines of a list.

    Args:
        specs: files, folders, patterns or ``-``; a name that exists is never a pattern.
        listed: lines with one file each, such as `sys.stdin`; empty lines are ignored.
    """
    found: list[str] = []
    for spec in specs:
        if spec == STDIN:
            lines = [line.strip() for line in listed if line.strip()]
            if not lines:
                raise HebbsegError("-: standard input has no file name. Example: ls scans/*.png | hebbseg predict RUN - -o OUT")
            absent = [line for line in lines if not Path(line).exists()]
            if absent:
                raise HebbsegError(f"-: {len(absent)} of {len(lines)} files of the list do not exist, first {absent[0]!r}.")
            found += lines
        elif has_magic(spec) and not Path(spec).exists() and ":" not in spec:
            matches = _matching(spec)
            if not matches:
                raise HebbsegError(f"{spec!r}: no file matches this pattern. ** also matches subfolders.")
            found += matches
        else:
            found.append(spec)
    return list(dict.fromkeys(found))


def _matching(pattern: str) -> list[str]:
    """Return the files and folders that match, sorted, without hidden ones."""
    root = Path(Path(pattern).anchor)
    found = root.glob(str(Path(pattern).relative_to(root)))
    return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))
