"""GlaS (Warwick-QU): ``train_1.bmp`` … ``testB_20.bmp``, ``*_anno.bmp`` with numbered glands, ``Grade.csv``."""

import re
from dataclasses import replace
from pathlib import Path

from hebbseg.data.cases import Case, Problem
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import find_root, list_images, text, visible
from hebbseg.data.sources.tables import read_table, require_columns

_IMAGE = re.compile(r"^(train|testA|testB)_\d+\Z")


def looks_like(folder: Path) -> bool:
    names = {entry.name for entry in visible(folder)}
    return {"train_1.bmp", "testA_1.bmp"} <= names or (
        "Grade.csv" in names and any(re.match(r"(train|testA|testB)_\d+\.bmp$", name) for name in names)
    )


def glas(path: Path, masks: MaskOptions) -> FileSource:
    """85 training and 80 test images (testA and testB), grouped by patient; some patients are in both sets."""
    remedy = "Pass the folder 'Warwick QU Dataset …' or its zip archive."
    root = find_root(path, looks_like, "train_1.bmp and testA_1.bmp", remedy)
    listed = list_images(root)
    files = {found.id: found.path for found in listed.found}
    problems = list(listed.problems)
    cases = []
    for id, file in files.items():
        match = _IMAGE.match(id)
        if match is None:
            if id.removesuffix("_anno") not in files or not id.endswith("_anno"):
                problems.append(
                    Problem(
                        text(file),
                        "not a GlaS file name, or a mask with no matching image; skipped",
                        "Remove the file, or read the folder as your own data: folder:PATH.",
                    )
                )
            continue
        mask = files.get(f"{id}_anno")
        subset = "train" if match.group(1) == "train" else "test"
        cases.append(Case(id=id, image=(file,), mask=(mask,) if mask else None, subset=subset))
    cases = _with_patients(cases, root, problems)
    usual = MaskOptions(instances=True, names=("background", "gland"))
    return FileSource(name="glas", root=root, cases=cases, problems=problems, masks=masks.over(usual))


def _with_patients(cases: list[Case], root: Path, problems: list[Problem]) -> list[Case]:
    table = root / "Grade.csv"
    if not table.is_file():
        problems.append(Problem(text(table), "file not found; patients are unknown", "Copy it from the download."))
        return cases
    rows = read_table(table)
    require_columns(table, rows, "name", "patient ID")
    patient = {row["name"]: row["patient ID"] for row in rows}
    unknown = [case.id for case in cases if not patient.get(case.id)]
    if unknown:
        problems.append(
            Problem(
                text(table),
                f"no patient ID for {len(unknown)} image(s), such as {unknown[0]}",
                "Use Grade.csv from the same download as the images.",
            )
        )
    return [replace(case, group=patient.get(case.id) or None) for case in cases]
