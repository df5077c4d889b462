"""Recursive listing of the images in a folder, with the problems found."""

import os
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from hebbseg.data.cases import DataError, Problem
from hebbseg.data.io.formats import FOLDERS, is_dicom, stem_of, suffix_of
from hebbseg.errors import printable

# Ignored silently; other files that are not images are reported.
_DOCUMENTS = {
    *(".csv", ".tsv", ".txt", ".md", ".json", ".xml", ".yaml", ".yml", ".toml", ".xlsx", ".xls", ".pdf", ".html"),
    *(".list", ".py", ".log", ".db", ".ini", ".raw", ".zraw", ".bib", ".docx", ".rtf"),
}
_JUNK = {"thumbs.db", "desktop.ini", "__macosx", "dicomdir"}
_NO_FILE = "a broken or circular link, a pipe or a device, not a file; skipped"
_LEVELS_DOWN = 4
_LEVELS_UP = 3


@dataclass(frozen=True, kw_only=True)
class Found:
    """An image file (or the folder of a DICOM series) and its id: the relative path without suffix."""

    id: str
    path: Path

    @property
    def parent_id(self) -> str:
        return self.id.rpartition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Listing:
    found: tuple[Found, ...]
    problems: tuple[Problem, ...]


def list_images(folder: Path, *, skip: frozenset[Path] = frozenset()) -> Listing:
    """Return all images below ``folder``, sorted by id; hidden files and documents are ignored."""
    found: list[Found] = []
    problems: list[Problem] = []
    unsupported: dict[str, list[Path]] = {}
    for directory, files in _walk(folder, problems, skip):
        if directory != folder and files and _is_series(directory, files):
            found.append(Found(id=_id(directory, folder), path=directory))
            continue
        for name, size in files:
            path = directory / name
            suffix = suffix_of(name)
            if not suffix:
                if Path(name).suffix.lower() not in _DOCUMENTS:
                    unsupported.setdefault(Path(name).suffix, []).append(path)
            elif size == 0:
                problems.append(Problem(text(path), "empty file; skipped", "Copy or export it again."))
            else:
                found.append(Found(id=_id(path.with_name(stem_of(path)), folder), path=path))
    for suffix, paths in sorted(unsupported.items()):
        problems.append(
            Problem(
                text(min(paths)),
                f"{len(paths)} file(s) of unsupported type {suffix or 'none'!r}; skipped",
                "If they are images, convert them to PNG, TIFF or NIfTI; otherwise, no action is needed.",
            )
        )
    return Listing(found=tuple(sorted(found, key=lambda f: (f.id, f.path.name))), problems=tuple(problems))


def visible(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted, without hidden and operating system files."""
    try:
        with os.scandir(folder) as entries:
            kept = [e for e in entries if not e.name.startswith(".") and e.name.lower() not in _JUNK]
    except PermissionError as error:
        raise DataError(text(folder), "no permission to list this folder", f"Run chmod u+rx {quote(str(folder))}") from error
    return sorted(kept, key=lambda entry: entry.name)


def is_file(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is an image file or another file; False for circular links, pipes and devices."""
    return _kind(entry) == "file"


def subfolders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in visible(folder) if _kind(entry) == "folder"]


def below(folder: Path, levels: int = _LEVELS_DOWN) -> Iterator[Path]:
    """Yield the folder, then its subfolders level by level, without unreadable ones."""
    level = [folder]
    for _ in range(levels + 1):
        yield from level
        level = [child for parent in level for child in subfolders(parent) if _may_list(child)]


def levels_around(folder: Path) -> Iterator[Path]:
    """Yield the folder, its subfolders, then its parents: the candidates for the root of a data set."""
    yield from below(folder)
    yield from filter(_may_list, list(folder.resolve().parents)[:_LEVELS_UP])


def find_root(path: Path, looks_like: Callable[[Path], bool], expected: str, remedy: str) -> Path:
    """Return the root of a data set in or around ``path``; raise if there is none."""
    for folder in levels_around(path):
        if looks_like(folder):
            return folder
    raise DataError(text(path), f"no {expected}", remedy)


def _may_list(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except PermissionError:
        return False
    return True


def text(path: str | Path) -> str:
    """Return a printable path, see `printable`."""
    return printable(path)


def normal(name: str) -> str:
    """Return the composed Unicode form (NFC) of a name; file systems differ in how they store accents."""
    return unicodedata.normalize("NFC", name)


def _id(path: Path, root: Path) -> str:
    return normal(text(path.relative_to(root).as_posix()))


def _walk(root: Path, problems: list[Problem], skip: frozenset[Path]) -> Iterator[tuple[Path, list[tuple[str, int]]]]:
    """Yield folders with their files (name, size). A folder linked twice is listed once and reported."""
    seen: dict[tuple[int, int], Path] = {}
    waiting: list[Path] = [root]
    links: list[Path] = []
    while waiting or links:
        # Follow links last, so that a folder is listed under its own path.
        directory = waiting.pop() if waiting else links.pop()
        try:
            status = directory.stat()
        except OSError:
            problems.append(Problem(text(directory), "the folder has vanished; skipped", "Start the command again."))
            continue
        key = status.st_dev, status.st_ino
        if key in seen:
            problems.append(
                Problem(
                    text(directory),
                    f"symbolic link to {text(seen[key])}, which is already listed; not followed",
                    "Remove the link.",
                )
            )
            continue
        seen[key] = directory
        files = []
        try:
            entries = visible(directory)
        except DataError as error:
            problems.append(error.problem)
            continue
        for entry in entries:
            kind, size = _kind(entry), _size(entry)
            if kind == "file" and size is not None:
                files.append((entry.name, size))
            elif kind == "folder":
                folder = Path(entry.path)
                if folder not in skip:
                    (links if entry.is_symlink() else waiting).append(folder)
            else:
                problems.append(Problem(text(entry.path), _NO_FILE, "Fix or remove it."))
        yield directory, files


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_dir() and suffix_of(entry.name) in FOLDERS:
            return "file"
        return "folder" if entry.is_dir() else "file" if entry.is_file() else "nothing"
    except OSError:  # a circular link
        return "nothing"


def _size(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_size
    except OSError:  # a circular link, or deleted meanwhile
        return None


def _is_series(directory: Path, files: list[tuple[str, int]]) -> bool:
    """Return whether a folder contains only DICOM slices, which form one volume."""
    names = [name for name, _ in files]
    if not all(Path(name).suffix.lower() in (".dcm", ".ima", "") or Path(name).suffix[1:].isdigit() for name in names):
        return False
    return all(suffix_of(name) for name in names) or is_dicom(directory / names[0])
