"""LA 2018, preprocessed for semi-supervised learning: ``<id>/mri_norm2.h5`` (``image``, ``label``), train.list, test.list."""

from dataclasses import replace
from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.labels.label_map import parse_label_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.folder import with_own_labels
from hebbseg.data.sources.listing import levels_around, subfolders, text
from hebbseg.data.sources.tables import read_lines

_FILE = "mri_norm2.h5"


def looks_like(folder: Path) -> bool:
    return any((child / _FILE).is_file() for child in subfolders(folder)[:5])


def la(path: Path, masks: MaskOptions) -> FileSource:
    """100 left atria, 80 for training and 20 for testing; axes as stored, no spacing in the files."""
    root = next((folder for folder in levels_around(path) if looks_like(folder)), None)
    if root is None:
        raise DataError(
            text(path), f"no <id>/{_FILE}", "Pass the folder that contains train.list and test.list, or its zip archive."
        )
    cases, problems = [], []
    for folder in subfolders(root):
        file = folder / _FILE
        if not file.is_file() or file.stat().st_size == 0:
            problems.append(Problem(text(file), "missing or empty file; case skipped", "Download or extract the data again."))
            continue
        cases.append(Case(id=folder.name, image=(file,)))
    cases = _with_sides(with_own_labels(cases), root, problems)
    usual = MaskOptions(label_map=parse_label_map("background=0;left atrium=1"))
    return FileSource(name="la", root=root, cases=cases, problems=problems, masks=masks.over(usual))


def _with_sides(cases: list[Case], root: Path, problems: list[Problem]) -> list[Case]:
    ids = {case.id for case in cases}
    side: dict[str, str] = {}
    for subset in ("train", "test"):
        name = f"{subset}.list"
        file = next((f for f in (root / name, root.resolve().parent / name) if f.is_file()), None)
        if file is None:
            problems.append(
                Problem(
                    text(root.parent / name),
                    "file not found; the published split is unknown",
                    "Copy train.list and test.list from the download.",
                )
            )
            continue
        listed = read_lines(file)
        absent = [id for id in listed if id not in ids]
        if absent:
            problems.append(
                Problem(
                    text(file),
                    f"lists {len(absent)} missing case(s), such as {absent[0]}; the published split is incomplete",
                    "Download the missing volumes.",
                )
            )
        side.update(dict.fromkeys(listed, subset))
    return [replace(case, subset=side.get(case.id)) for case in cases]
