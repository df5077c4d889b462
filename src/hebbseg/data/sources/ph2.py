"""PH2: ``IMD002/IMD002_Dermoscopic_Image/IMD002.bmp`` and ``IMD002/IMD002_lesion/IMD002_lesion.bmp``.

Masks are 1-bit, except for one color mask; all are read as 0 and 255.
"""

import re
from pathlib import Path

from hebbseg.data.cases import Case, Problem
from hebbseg.data.labels.label_map import parse_label_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import find_root, subfolders, text, visible

_CASE = re.compile(r"IMD\d+\Z")


def looks_like(folder: Path) -> bool:
    return any(_CASE.match(child.name) and _image(child) is not None for child in subfolders(folder)[:5])


def ph2(path: Path, masks: MaskOptions) -> FileSource:
    """200 dermoscopic images with lesion masks; patients are unknown, and there is no published split."""
    remedy = "Pass the downloaded folder PH2Dataset or its zip archive."
    root = find_root(path, looks_like, "IMD…/IMD…_Dermoscopic_Image folder", remedy)
    cases, problems = [], []
    for folder in (child for child in subfolders(root) if _CASE.match(child.name)):
        image, mask = _image(folder), _bitmap(folder / f"{folder.name}_lesion")
        if image is None:
            problems.append(
                Problem(text(folder), "dermoscopic image missing or empty; case skipped", "Download or extract the data again.")
            )
            continue
        if mask is None:
            problems.append(
                Problem(
                    text(folder / f"{folder.name}_lesion"),
                    "lesion mask missing or empty; used as an unlabelled image",
                    "If this is not intended, download or extract the data again.",
                )
            )
        cases.append(Case(id=folder.name, image=(image,), mask=None if mask is None else (mask,)))
    usual = MaskOptions(label_map=parse_label_map("background=0;lesion=255"))
    return FileSource(name="ph2", root=root, cases=cases, problems=problems, masks=masks.over(usual))


def _image(folder: Path) -> Path | None:
    return _bitmap(folder / f"{folder.name}_Dermoscopic_Image")


def _bitmap(folder: Path) -> Path | None:
    if not folder.is_dir():
        return None
    files = [Path(e.path) for e in visible(folder) if e.name.lower().endswith(".bmp") and e.stat().st_size > 0]
    return files[0] if files else None
