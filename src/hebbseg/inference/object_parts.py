"""Objects of images too large for memory: those of `find_objects`, found part by part from predicted classes on disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from skimage.segmentation import watershed

from hebbseg.data.io.tiles import release_pages
from hebbseg.data.io.volume_map import new_map
from hebbseg.data.labels.instances import Objects
from hebbseg.inference.areas import Areas, Window, connected_areas, row_bands, too_large, windows
from hebbseg.inference.objects import ObjectOptions, grown, neck_seeds


@dataclass(frozen=True, kw_only=True)
class LargeObjects:
    """Numbered objects of a large image.

    Shapes:
        labels: (*S) int32 on disk; 0 is background, objects are 1 … n.
        classes: (n,) class index of each object.
        boxes: (n, 2, dims) first and last + 1 pixel of each object.
        whole: number of areas that were too large to be cut by watershed.
    """

    labels: np.ndarray
    classes: np.ndarray
    boxes: np.ndarray
    whole: int = 0

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def larger(self) -> np.ndarray:
        """The numbers of objects that are in no part."""
        return np.flatnonzero(too_large(self.boxes)) + 1

    def parts(self) -> Iterator[tuple[Window, np.ndarray, Objects]]:
        """Yield windows, and the numbers of the objects in them as 1 … m; all but the `larger` objects are in one window."""
        table = np.zeros(len(self) + 1, np.int32)
        for window, members in windows(self.boxes, self.labels.shape):
            table[members + 1] = np.arange(1, len(members) + 1)
            yield window, members + 1, Objects(labels=table[self.labels[window]], classes=self.classes[members])
            table[members + 1] = 0
            release_pages(self.labels)


def find_in_parts(
    indices: np.ndarray,
    n_classes: int,
    options: ObjectOptions,
    scratch: Path,
    *,
    inside: np.ndarray | None = None,
    spacing: Sequence[float] | None = None,
) -> LargeObjects:
    """Return the objects of each foreground class, as `find_objects` does for images in memory.

    Components are numbered alike. The parts of a watershed are numbered in another order, and pixels that are equally far
    from both sides of a cut can belong to the other side. Nine bytes per pixel are written to ``scratch``. Connected areas
    whose box has more than `hebbseg.inference.areas.LARGEST` pixels are not cut.

    Args:
        indices: (*S) class indices on disk, without border.
        n_classes: number of classes, with background.
        options: how objects are found.
        scratch: a folder for temporary files, which the result uses.
        inside: (*S) of a model of borders: the probability of inside, negative where that of border is not smaller.
        spacing: distance of neighboring pixels along each axis.
    """
    shape = indices.shape
    options.check(prod(shape))
    labels, stored = (new_map(scratch / name, shape, np.int32) for name in ("objects", "areas"))
    mask = new_map(scratch / "mask", shape, np.bool_)
    classes: list[np.ndarray] = []
    boxes: list[np.ndarray] = []
    count = whole = 0
    for index in range(1, n_classes):
        _fill_mask(mask, indices, labels, index, stored, fill_holes=options.fill_holes)
        areas = connected_areas(lambda rows: mask[rows], stored)
        if inside is not None or options.method == "watershed":
            whole += _divide(areas, options, inside, spacing)
        kept = np.flatnonzero(areas.sizes >= max(1, options.min_size))
        number = np.zeros(len(areas.sizes), np.int32)
        number[kept] = count + np.arange(1, len(kept) + 1)
        for rows in row_bands(shape):
            found = number[areas[rows]]
            labels[rows] = np.where(found > 0, found, labels[rows])
            release_pages(labels)
            release_pages(stored)
        classes.append(np.full(len(kept), index))
        boxes.append(areas.boxes[kept])
        count += len(kept)
    return LargeObjects(labels=labels, classes=np.concatenate(classes), boxes=np.concatenate(boxes), whole=whole)


def _fill_mask(
    mask: np.ndarray, indices: np.ndarray, labels: np.ndarray, index: int, stored: np.ndarray, *, fill_holes: bool
) -> None:
    """Write the pixels of a class, with the enclosed background that belongs to no object yet."""
    is_hole: np.ndarray = np.zeros(1, bool)
    if fill_holes:
        outside = connected_areas(lambda rows: indices[rows] != index, stored)
        is_hole = np.all((outside.boxes[:, 0] > 0) & (outside.boxes[:, 1] < indices.shape), axis=1)
        is_hole[0] = False
    for rows in row_bands(indices.shape):
        here = indices[rows]
        mask[rows] = here == index
        if is_hole.any():
            mask[rows] |= is_hole[outside[rows]] & (here == 0) & (labels[rows] == 0)
        for array in (mask, indices, labels, stored):
            release_pages(array)


def _divide(areas: Areas, options: ObjectOptions, inside: np.ndarray | None, spacing: Sequence[float] | None) -> int:
    """Replace areas by the objects in them; return the number of areas that are too large for that."""
    chosen = np.zeros(len(areas.sizes), bool)
    boxes = areas.boxes[1:]
    for window, members in windows(boxes, areas.stored.shape):
        chosen[members + 1] = True
        here = areas[window]
        area = chosen[np.where(here < len(chosen), here, 0)]
        chosen[members + 1] = False
        if inside is None:
            seeds, distance = neck_seeds(area, spacing)
            parts = watershed(-distance, seeds, mask=area)
        else:
            signed = np.asarray(inside[window], np.float32)
            parts = grown(area, np.abs(signed), area & (signed > 0), options, spacing)
        areas.replace(window, area, parts)
        release_pages(areas.stored)
    return int(np.count_nonzero(too_large(boxes)))
