"""2018 Data Science Bowl: ``stage1_train/<id>/images/<id>.png`` and ``masks/*.png``, one file per nucleus."""

from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import levels_around, list_images, subfolders, text

_NUCLEUS = 255


def looks_like(folder: Path) -> bool:
    """Return whether the folder contains case folders; those of the test stages have no masks."""
    return any((c / "images").is_dir() and (c / "images" / f"{c.name}.png").is_file() for c in subfolders(folder)[:5])


def dsb2018(path: Path, masks: MaskOptions) -> FileSource:
    """Nuclei in various stains; stages without masks are read as unlabelled images."""
    stages: list[Path] = []
    for folder in levels_around(path):
        if stages and folder.parent != stages[0].parent:
            break
        if looks_like(folder):
            stages.append(folder)
    if not stages:
        raise DataError(
            text(path), "no <id>/images/<id>.png", "Pass the folder that contains stage1_train, or its zip archive."
        )
    cases, problems = [], []
    for stage in stages:
        for folder in subfolders(stage):
            image = folder / "images" / f"{folder.name}.png"
            if not image.is_file() or image.stat().st_size == 0:
                problems.append(
                    Problem(text(image), "missing or empty file; case skipped", "Download or extract the data again.")
                )
                continue
            nuclei: tuple[Path, ...] = ()
            if (folder / "masks").is_dir():
                listed = list_images(folder / "masks")
                problems += listed.problems
                nuclei = tuple(found.path for found in listed.found)
            cases.append(Case(id=folder.name, image=(image,), mask=nuclei or None))
    cases.sort(key=lambda case: case.id)
    usual = MaskOptions(instances=True, foreground_value=_NUCLEUS, names=("background", "nucleus"))
    return FileSource(name="dsb2018", root=stages[0].parent, cases=cases, problems=problems, masks=masks.over(usual))
