"""What files a folder has, listed once, with what is wrong with them; links that go round in circles included."""

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hebbseg.data.cases import DataError, Problem
from hebbseg.data.io.formats import is_dicom, stem_of, suffix_of

# What lies about in folders of images without being meant as one; anything else that is no image is reported.
_DOCUMENTS = {
    *(".csv", ".tsv", ".txt", ".md", ".json", ".xml", ".yaml", ".yml", ".toml", ".xlsx", ".xls", ".pdf", ".html"),
    *(".list", ".py", ".log", ".db", ".ini", ".raw", ".zraw", ".bib", ".docx", ".rtf"),
}
_JUNK = {"thumbs.db", "desktop.ini", "__macosx", "dicomdir"}
_LEVELS_DOWN = 4
_LEVELS_UP = 3


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file (or the folder of a DICOM series) that can be read: where it is, and its id, the path without suffix."""

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
    """Every readable image below ``folder``, sorted by id; hidden files and documents are passed over."""
    found: list[Found] = []
    problems: list[Problem] = []
    strange: dict[str, list[Path]] = {}
    for directory, files in _walk(folder, problems, skip):
        if directory != folder and files and _is_series(directory, files):
            found.append(Found(id=_id(directory, folder), path=directory))
            continue
        for name, size in files:
            path = directory / name
            suffix = suffix_of(name)
            if not suffix:
                if Path(name).suffix.lower() not in _DOCUMENTS:
                    strange.setdefault(Path(name).suffix, []).append(path)
            elif size == 0:
                problems.append(Problem(file=text(path), finding="zero bytes; left out", remedy="Copy or export it again."))
            else:
                found.append(Found(id=_id(path.with_name(stem_of(path)), folder), path=path))
    for suffix, paths in sorted(strange.items()):
        problems.append(
            Problem(
                file=text(min(paths)),
                finding=f"{len(paths)} file(s) of type {suffix or 'none'!r} cannot be read and are left out",
                remedy="Convert them to PNG, TIFF or NIfTI if they are images; otherwise nothing need be done.",
            )
        )
    return Listing(found=tuple(sorted(found, key=lambda f: (f.id, f.path.name))), problems=tuple(problems))


def visible(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of a folder, sorted, without hidden files and the litter of operating systems."""
    try:
        with os.scandir(folder) as entries:
            kept = [e for e in entries if not e.name.startswith(".") and e.name.lower() not in _JUNK]
    except PermissionError as error:
        raise DataError(text(folder), "no permission to list it", f"chmod u+rx {str(folder)!r}") from error
    return sorted(kept, key=lambda entry: entry.name)


def subfolders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in visible(folder) if _kind(entry) == "folder"]


def below(folder: Path, levels: int = _LEVELS_DOWN) -> Iterator[Path]:
    """The folder, then its subfolders level by level, without those that may not be listed."""
    level = [folder]
    for _ in range(levels + 1):
        yield from level
        level = [child for parent in level for child in subfolders(parent) if _may_list(child)]


def levels_around(folder: Path) -> Iterator[Path]:
    """The folder, what is below it, then what is above it: where a data set may begin when a user points near it."""
    yield from below(folder)
    yield from filter(_may_list, list(folder.resolve().parents)[:_LEVELS_UP])


def _may_list(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except PermissionError:
        return False
    return True


def text(path: str | Path) -> str:
    """A path that can always be printed: bytes that are no text become question marks."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def normal(name: str) -> str:
    """One spelling per name: an accent may be part of its letter or follow it, as the system likes that wrote it."""
    return unicodedata.normalize("NFC", name)


def _id(path: Path, root: Path) -> str:
    return normal(text(path.relative_to(root).as_posix()))


def _walk(root: Path, problems: list[Problem], skip: frozenset[Path]) -> Iterator[tuple[Path, list[tuple[str, int]]]]:
    """Folders with their files (name, size). A folder reached twice through a link is listed once and reported."""
    seen: dict[tuple[int, int], Path] = {}
    waiting: list[Path] = [root]
    links: list[Path] = []
    while waiting or links:
        # Links last, so that a folder is listed under its own name rather than a link's.
        directory = waiting.pop() if waiting else links.pop()
        status = directory.stat()
        key = status.st_dev, status.st_ino
        if key in seen:
            problems.append(
                Problem(
                    file=text(directory),
                    finding=f"a link to {text(seen[key])}, which is listed already; not followed",
                    remedy="Remove the link.",
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
            kind = _kind(entry)
            if kind == "file":
                files.append((entry.name, entry.stat().st_size))
            elif kind == "folder":
                folder = Path(entry.path)
                if folder not in skip:
                    (links if entry.is_symlink() else waiting).append(folder)
            else:
                problems.append(
                    Problem(
                        file=text(entry.path),
                        finding="a link that leads nowhere (or to itself); left out",
                        remedy="Mend or remove the link.",
                    )
                )
        yield directory, files


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        return "folder" if entry.is_dir() else "file" if entry.is_file() else "nothing"
    except OSError:  # a link to itself
        return "nothing"


def _is_series(directory: Path, files: list[tuple[str, int]]) -> bool:
    """A folder of nothing but DICOM slices, which as a whole are one volume."""
    names = [name for name, _ in files]
    if not all(Path(name).suffix.lower() in (".dcm", ".ima", "") or Path(name).suffix[1:].isdigit() for name in names):
        return False
    return all(suffix_of(name) for name in names) or is_dicom(directory / names[0])
