"""Masks from tables of points or boxes, one table per image."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hebbseg.data.cases import IGNORE, ClassInfo, DataError
from hebbseg.data.io.formats import mask_suffix, read_image, write_mask
from hebbseg.data.labels.points import from_boxes, from_points, read_table
from hebbseg.data.sources.listing import list_images
from hebbseg.errors import HebbsegError

POINT = ("z", "y", "x")
BOX = ("front", "top", "left", "back", "bottom", "right")
_VALUES = tuple(ClassInfo(index=value, value=value) for value in range(IGNORE + 1))  # 0, 1 and IGNORE are written as they are


@dataclass(frozen=True, kw_only=True)
class Work:
    """A table, its image and the mask to write."""

    table: Path
    image: Path
    mask: Path


def find_tables(images: Path, tables: Path, out: Path, *, overwrite: bool = False) -> list[Work]:
    """Return the work for each table ``NAME.csv`` of an image ``NAME.*``; raise before anything is written.

    Images without a table stay unlabelled.
    """
    for folder in (images, tables):
        if not folder.is_dir():
            raise HebbsegError(f"{folder}: no such folder. Pass a folder of images and a folder of tables.")
    known = {found.id: found.path for found in list_images(images).found}
    found = []
    for table in sorted(tables.rglob("*.csv")):
        name = table.relative_to(tables).with_suffix("").as_posix()
        if name not in known:
            raise DataError(table, f"no image {name} in {images}", "Name the table like its image, or move it elsewhere.")
        image = known[name]
        found.append(Work(table=table, image=image, mask=out / f"{name}{mask_suffix(image)}"))
    if not found:
        raise HebbsegError(f"{tables}: no table found. Write one NAME.csv per image NAME, with a row per object.")
    existing = [work.mask for work in found if work.mask.exists()]
    if existing and not overwrite:
        raise HebbsegError(f"{existing[0]} already exists. Choose another -o, or pass --overwrite. Nothing was written.")
    return found


def write_masks(
    works: list[Work], *, radius: float | None, ring: float, on_mask: Callable[[], None] = lambda: None
) -> tuple[int, float]:
    """Write a mask for each table, in the format and geometry of its image.

    Args:
        works: from `find_tables`.
        radius: of the discs around points, in pixels; None: the tables contain boxes.
        ring: width of the ring around discs that is not annotated.
        on_mask: called after each mask.

    Returns:
        The number of objects, and the annotated share of the pixels.
    """
    objects = known = pixels = 0
    for work in works:
        image = read_image(work.image)
        upright = image.shape[::-1] if image.axes == "xyz" else image.shape
        dims = len(upright)
        columns = POINT[-dims:] if radius is not None else (*BOX[3 - dims : 3], *BOX[6 - dims :])
        other = " If it has points, pass --radius." if radius is None else " If it has boxes, pass --boxes."
        places = read_table(work.table, columns, other)
        try:
            mask = from_boxes(places, upright) if radius is None else from_points(places, upright, radius=radius, ring=ring)
        except HebbsegError as error:
            raise HebbsegError(f"{work.table}: {error}") from None
        mask = mask.T if image.axes == "xyz" else mask
        write_mask(work.mask, np.ascontiguousarray(mask), image, _VALUES)
        objects, known, pixels = objects + len(places), known + int((mask != IGNORE).sum()), pixels + mask.size
        on_mask()
    return objects, known / pixels
