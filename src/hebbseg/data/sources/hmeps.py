"""HMEPS: ``fullFrames/*.jpeg``, ``annotation/png/*.png`` (red is the pupil), ``annotation/annotations.csv``."""

from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import levels_around, list_images, text
from hebbseg.data.sources.tables import read_table, require_columns

_RED = 0


def looks_like(folder: Path) -> bool:
    return (folder / "fullFrames").is_dir() and (folder / "annotation" / "png").is_dir()


def hmeps(path: Path, masks: MaskOptions) -> FileSource:
    """Infrared images of eyes, grouped by subject (column ``sub``)."""
    # Without masks, a folder with fullFrames is accepted.
    levels = list(levels_around(path))
    root = next((f for f in levels if looks_like(f)), None) or next((f for f in levels if (f / "fullFrames").is_dir()), None)
    if root is None:
        raise DataError(
            text(path),
            "no fullFrames folder next to annotation/png",
            "Pass the downloaded folder that contains both, or its zip archive.",
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
    _report(problems, [mask_of[id] for id in mask_of if id not in known], "mask with no matching frame; skipped")
    if subject_of:
        unknown = [case.image[0] for case in cases if case.group is None]
        _report(problems, unknown, "frame not listed in annotations.csv; its subject is unknown")
        names = {case.image[0].name for case in cases}
        absent = [root / "fullFrames" / name for name in subject_of if name not in names]
        _report(problems, absent, "listed in annotations.csv, but missing")
    usual = MaskOptions(threshold=128, channel=_RED, names=("background", "pupil"))
    return FileSource(name="hmeps", root=root, cases=cases, problems=problems, masks=masks.over(usual))


def _subjects(table: Path, problems: list[Problem]) -> dict[str, str]:
    if not table.is_file():
        problems.append(Problem(text(table), "file not found; subjects are unknown", "Copy it from the download."))
        return {}
    rows = read_table(table)
    require_columns(table, rows, "filename", "sub")
    return {row["filename"]: row["sub"] for row in rows if row["filename"] and row["sub"]}


def _report(problems: list[Problem], files: list[Path], finding: str) -> None:
    """Report all files with the same problem at once: thousands of 12,000 can be affected."""
    if files:
        count = f" ({len(files)} files)" if len(files) > 1 else ""
        problems.append(Problem(text(min(files)), finding + count, "Download or extract the data again."))
