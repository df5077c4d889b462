"""Files of a data set that are not used, with a guess at what they are."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hebbseg.data.io.formats import suffix_of
from hebbseg.data.sources.guess import guess
from hebbseg.data.sources.listing import is_file, subfolders, text, visible
from hebbseg.errors import HebbsegError

_MOST_GUESSED = 12  # folders whose files are opened


@dataclass(frozen=True, kw_only=True)
class Unused:
    """Unused files of one folder. ``place`` is relative to the data set: a folder (with a slash) or a single file."""

    place: str
    files: int
    guess: str
    remedy: str = ""


def find_unused(root: Path, used: Collection[Path], reported: Collection[str] = ()) -> list[Unused]:
    """List the files below ``root`` that are neither used nor reported as a problem, by folder."""
    taken = set(used)
    groups: dict[tuple[str, bool], list[Path]] = {}
    waiting = [root]
    seen = set()  # links may lead to a folder again
    while waiting:
        directory = waiting.pop(0)
        if directory in taken or (real := directory.resolve()) in seen:  # a DICOM series
            continue
        seen.add(real)
        try:
            entries = visible(directory)
            waiting += subfolders(directory)
        except (OSError, HebbsegError):  # may not be listed
            continue
        for entry in entries:
            path = Path(entry.path)
            if is_file(entry) and path not in taken and text(path) not in reported:
                groups.setdefault((text(directory), bool(suffix_of(path.name))), []).append(path)
    folders = {path.parent for path in taken}
    return [
        _described(root, files, images, opened=n < _MOST_GUESSED, beside_used=files[0].parent in folders)
        for n, ((_, images), files) in enumerate(groups.items())
    ]


def _described(root: Path, files: list[Path], images: bool, *, opened: bool, beside_used: bool) -> Unused:
    folder = text(files[0].parent.relative_to(root).as_posix())
    single = files[0].relative_to(root).as_posix()
    place = text(single) if len(files) == 1 else ("./" if folder == "." else f"{folder}/")
    if len(files) > 1 and beside_used:
        place = f"{text(single)} …"
    if not images:
        suffixes = sorted({path.suffix.lower() or "no ending" for path in files})
        return Unused(place=place, files=len(files), guess="not images (" + ", ".join(suffixes[:4]) + ")")
    if not opened:
        return Unused(place=place, files=len(files), guess="images or masks")
    found = guess(files)
    name = shlex.quote(files[0].parent.name if folder != "." else ".")
    remedy = ""
    if folder != "." and not beside_used:
        remedy = f"to use them: --masks {name}" if found.like_masks else f"to use them: --images {name}"
    return Unused(place=place, files=len(files), guess=found.words, remedy=remedy)
