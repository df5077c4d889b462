"""Masks from points and boxes: what they leave open is `IGNORE`, not annotated."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.ndimage import distance_transform_edt

from hebbseg.data.cases import IGNORE
from hebbseg.errors import FileError, HebbsegError
from hebbseg.text_files import read_rows

Numbers = tuple[float, ...]


def from_points(points: Iterable[Sequence[float]], shape: Sequence[int], *, radius: float, ring: float) -> np.ndarray:
    """Return a mask of discs: 1 within ``radius`` of a point, `IGNORE` within ``radius + ring``, else background.

    Every object must have a point. The ring is where the outline of an object may be.

    Args:
        points: one (row, column), or (plane, row, column), per object, in pixels.
        shape: shape of the image, two or three axes.
        radius: radius of the smallest object, in pixels.
        ring: how much larger the largest object is, in pixels.
    """
    if not (0 < radius < math.inf and 0 <= ring < math.inf):  # also if one is NaN
        raise HebbsegError(f"radius={radius}, ring={ring}: allowed are a radius above 0 and a ring of 0 or more, in pixels.")
    marked = np.ones(tuple(shape), bool)
    for row, point in enumerate(points, start=1):
        place = tuple(round(value) for value in _checked(point, shape, len(shape), f"point {row}"))
        marked[place] = False
    if marked.all():
        return np.zeros(marked.shape, np.uint8)
    distance = distance_transform_edt(marked)
    return np.select([distance <= radius, distance <= radius + ring], [1, IGNORE], 0).astype(np.uint8)


def from_boxes(boxes: Iterable[Sequence[float]], shape: Sequence[int]) -> np.ndarray:
    """Return a mask of boxes: 1 in the ellipse that touches a box, `IGNORE` in its corners, background outside of all boxes.

    Every object must have a box.

    Args:
        boxes: one (row, column, row, column) per object: its first and last pixel; six numbers for volumes.
        shape: shape of the image, two or three axes.
    """
    mask = np.zeros(tuple(shape), np.uint8)
    dims = len(shape)
    for row, box in enumerate(boxes, start=1):
        values = _checked(box, shape, 2 * dims, f"box {row}")
        low, high = np.array(values[:dims]), np.array(values[dims:])
        if (high < low).any():
            raise HebbsegError(f"box {row}, {values}: the last pixel lies before the first one. Order: first, then last pixel.")
        inside = tuple(slice(round(a), round(b) + 1) for a, b in zip(low, high, strict=True))
        grid = np.indices(mask[inside].shape).reshape(dims, -1).T  # (n, dims)
        half = np.array(mask[inside].shape) / 2
        ellipse = ((((grid + 0.5) / half - 1) ** 2).sum(axis=1) <= 1).reshape(mask[inside].shape)
        part = mask[inside]  # a view
        part[ellipse] = 1
        part[~ellipse & (part == 0)] = IGNORE
    return mask


def read_table(path: str | Path, columns: Sequence[str], other: str = "") -> list[Numbers]:
    """Read the numbers in these columns of a CSV file, for example ``("y", "x")`` of points.

    Args:
        other: what to do if the table has other columns.
    """
    remedy = f"Write a header with {', '.join(columns)} and one row of numbers per object.{other}"
    numbers = []
    for count, row in enumerate(read_rows(Path(path), remedy), start=1):
        try:
            numbers.append(tuple(float(row[name]) for name in columns))
        except KeyError as error:
            raise FileError(path, f"no column {error}; found {', '.join(row)}", remedy) from None
        except ValueError:
            raise FileError(path, f"row {count} is not numbers: {', '.join(row.values())}", remedy) from None
    return numbers


def _checked(numbers: Sequence[float], shape: Sequence[int], count: int, what: str) -> Numbers:
    """Return the numbers of a point or box. Raises if they are not ``count`` numbers within the image."""
    values = tuple(float(value) for value in numbers)
    sizes = [*shape] * (count // len(shape))
    if len(values) != count or not all(math.isfinite(v) and 0 <= round(v) < n for v, n in zip(values, sizes, strict=False)):
        raise HebbsegError(
            f"{what}, {values}: expected {count} numbers within the image of {'×'.join(map(str, shape))} pixels, rows first."
        )
    return values
