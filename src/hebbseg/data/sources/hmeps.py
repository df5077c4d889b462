"""HMEPS: ``fullFrames/*.jpeg``, ``annotation/png/*.png`` (red is the pupil), ``annotation/annotations.csv``."""

from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import levels_around, list_images, text
from hebbseg.data.sources.tables import read_table
from hebbseg.errors import did_you_mean

_RED = 0


def looks_like(folder: Path) -> bool:
    return (folder / "fullFrames").is_dir() and (folder / "annotation" / "png").is_dir()


def hmeps(path: Path, masks: MaskOptions) -> FileSource:
    """Infrared eyes; the group is the subject (column ``sub``)."""
    # A set whose masks were taken away is still HMEPS: frames alone will do when nothing better is near.
    levels = list(levels_around(path))
    root = next((f for f in levels if looks_like(f)), None) or next((f for f in levels if (f / "fullFrames").is_dir()), None)
    if root is None:
        raise DataError(
            text(path),
            "no fullFrames beside annotation/png",
            "Give the folder that holds both, as downloaded, or its zip.",
        )
    frames = list_images(root / "fullFrames")
    problems = list(frames.problems)
    mask_of: dict[str, Path] = {}
    if (root / "annotation" / "png").is_dir():
        drawn = list_images(root / "annotation" / "png")
        problems += drawn.problems
        mask_of = {found.id: found.path for found in drawn.found}
    subject_of = _subjects(root / "annotation" / "annotations.csv", problems)
    cases = [
        Case(
            id=found.id,
            image=(found.path,),
            mask=(mask_of[found.id],) if found.id in mask_of else None,
            group=subject_of.get(found.path.name),
        )
        for found in frames.found
    ]
    known = {case.id for case in cases}
    _report(problems, [mask_of[id] for id in mask_of if id not in known], "a mask without its frame; left out")
    if subject_of:
        unknown = [case.image[0] for case in cases if case.group is None]
        _report(problems, unknown, "a frame that annotations.csv does not name; its subject is unknown")
        names = {case.image[0].name for case in cases}
        absent = [root / "fullFrames" / name for name in subject_of if name not in names]
        _report(problems, absent, "named in annotations.csv, but not there")
    usual = MaskOptions(threshold=128, channel=_RED, names=("background", "pupil"))
    return FileSource(name="hmeps", root=root, cases=cases, problems=problems, masks=masks.over(usual))


def _subjects(table: Path, problems: list[Problem]) -> dict[str, str]:
    if not table.is_file():
        problems.append(Problem(file=text(table), finding="not there; subjects unknown", remedy="Copy it from the download."))
        return {}
    rows = read_table(table)
    for column in ("filename", "sub"):
        if rows and column not in rows[0]:
            raise DataError(text(table), f"no column {column!r}", did_you_mean(column, rows[0]))
    return {row["filename"]: row["sub"] for row in rows}


def _report(problems: list[Problem], files: list[Path], finding: str) -> None:
    """One problem for all files with the same fault: a set of 12,000 can miss thousands."""
    if files:
        others = f" ({len(files)} such)" if len(files) > 1 else ""
        problems.append(Problem(file=text(min(files)), finding=finding + others, remedy="Download or unpack the set again."))
