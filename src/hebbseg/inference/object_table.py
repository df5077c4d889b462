"""Measurements of objects: one row per object, in pixels and, if the spacing is known, in physical units."""

import json
import math
import os
import tempfile
from collections.abc import Sequence
from itertools import chain, combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
from skimage.measure import regionprops_table

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.image_file import Axes
from hebbseg.data.io.tiles import release_pages
from hebbseg.data.labels.instances import Objects
from hebbseg.inference.areas import row_bands
from hebbseg.inference.object_parts import LargeObjects
from hebbseg.text_files import csv_text

Row = dict[str, Any]
UM_PER_MM = 1000
FIRST_COLUMNS = ("case", "object", "class", "class_name")
_IN_MEMORY = 2**24  # bytes of rows


def object_rows(
    objects: Objects,
    image: np.ndarray,
    classes: Sequence[ClassInfo],
    *,
    case: str = "",
    spacing_mm: Sequence[float] | None = None,
    axes: Axes = "zyx",
    numbers: Sequence[int] | np.ndarray | None = None,
    offset: Sequence[int] | None = None,
) -> list[Row]:
    """Return one row per object.

    Columns: case, object (its number in the label image), class and class_name; area (2D) or volume (3D); centroid and
    bounding box by axis, from 0 at the center of the first pixel (the box excludes its maximum); in 2D, the perimeter; major
    and minor axis of the ellipse (ellipsoid) with the same second moments; mean intensity of each channel. Columns end in
    their unit. Perimeters in micrometers need the same spacing along both axes.

    Args:
        objects: the objects (*S).
        image: (C, *S).
        classes: names the classes.
        case: name of the image.
        spacing_mm: distance of neighboring pixels along each axis in millimeters.
        axes: order of the axes, for the names of columns.
        numbers: the numbers of the objects; default: 1 … n.
        offset: place of the first pixel in the image, one number per axis.
    """
    if not len(objects):
        return []
    dims = objects.labels.ndim
    properties = ["label", "area", "centroid", "bbox", "intensity_mean", "axis_major_length", "axis_minor_length"]
    table = regionprops_table(
        objects.labels, np.moveaxis(image, 0, -1), properties=[*properties, "perimeter"] if dims == 2 else properties
    )
    shift = np.zeros(dims, int) if offset is None else np.asarray(offset)
    centroids = np.stack([table[f"centroid-{axis}"] for axis in range(dims)], axis=1) + shift
    boxes = np.stack([table[f"bbox-{axis}"] for axis in range(2 * dims)], axis=1).reshape(-1, 2, dims) + shift
    columns = _sizes_and_places(table["area"], centroids, boxes, spacing_mm, axes)
    if dims == 2:
        columns["perimeter_px"] = table["perimeter"]
        if spacing_mm is not None and math.isclose(*spacing_mm, rel_tol=1e-6):
            columns["perimeter_um"] = table["perimeter"] * spacing_mm[0] * UM_PER_MM
    columns |= _axis_lengths(table, "px")
    if spacing_mm is not None:
        in_mm = regionprops_table(objects.labels, properties=["axis_major_length", "axis_minor_length"], spacing=spacing_mm)
        columns |= _axis_lengths(in_mm, "mm")
    for channel in range(len(image)):
        columns[f"mean_intensity_{channel}"] = table[f"intensity_mean-{channel}"]
    return _rows(columns, range(1, len(objects) + 1) if numbers is None else numbers, objects.classes, classes, case)


def rows_of_larger(
    objects: LargeObjects,
    image: np.ndarray,
    classes: Sequence[ClassInfo],
    *,
    case: str = "",
    spacing_mm: Sequence[float] | None = None,
    axes: Axes = "zyx",
) -> list[Row]:
    """Like `object_rows`, for the objects in no part, without perimeter. Labels and image are read band by band."""
    numbers = objects.larger
    if not len(numbers):
        return []
    dims = objects.labels.ndim
    position = np.zeros(len(objects) + 1, np.int64)
    position[numbers] = np.arange(1, len(numbers) + 1)
    boxes = objects.boxes[numbers - 1]
    first = np.concatenate([np.zeros((1, dims), np.int64), boxes[:, 0]])  # places are counted from there
    pairs = list(combinations_with_replacement(range(dims), 2))
    sums = np.zeros((1 + dims + len(pairs) + image.shape[0], len(numbers) + 1))
    for rows in row_bands(objects.labels.shape):
        here = position[objects.labels[rows]]
        known = here > 0
        if known.any():
            which = here[known]
            places = [place - first[which, axis] for axis, place in enumerate(np.nonzero(known))]
            places[0] += rows.start
            products = (places[a] * places[b] for a, b in pairs)
            values = np.asarray(image[:, rows])[:, known]
            for row, weights in enumerate(chain([np.ones(len(which))], places, products, values)):
                sums[row] += np.bincount(which, weights, len(numbers) + 1)
        release_pages(objects.labels)
        release_pages(image)
    area, means = sums[0, 1:], (sums[1:] / sums[0].clip(1))[:, 1:]
    center, squares, intensity = np.split(means, [dims, dims + len(pairs)])
    columns = _sizes_and_places(area, center.T + boxes[:, 0], boxes, spacing_mm, axes)
    covariance = np.zeros((len(numbers), dims, dims))
    for (a, b), square in zip(pairs, squares, strict=True):
        covariance[:, a, b] = covariance[:, b, a] = square - center[a] * center[b]
    columns |= _axis_lengths(_axes_of(covariance), "px")
    if spacing_mm is not None:
        columns |= _axis_lengths(_axes_of(covariance * np.outer(spacing_mm, spacing_mm)), "mm")
    columns |= {f"mean_intensity_{channel}": values for channel, values in enumerate(intensity)}
    return _rows(columns, numbers, objects.classes[numbers - 1], classes, case)


class ObjectTable:
    """The rows of many images, on disk if they are many; their columns may differ, as some images have no spacing."""

    def __init__(self) -> None:
        # It is deleted with the table.
        self._rows = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, mode="w+", encoding="utf-8")  # noqa: SIM115
        self._columns = dict.fromkeys(FIRST_COLUMNS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._columns.update(dict.fromkeys(row))
            self._rows.write(json.dumps(row) + "\n")
        self._count += len(rows)

    def write(self, path: Path) -> None:
        self._rows.seek(0)
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(csv_text([list(self._columns)]))
            for line in self._rows:
                row = json.loads(line)
                file.write(csv_text([[row.get(name, "") for name in self._columns]]))
        self._rows.seek(0, os.SEEK_END)


def _rows(
    columns: dict[str, np.ndarray],
    numbers: Sequence[int] | np.ndarray,
    indices: np.ndarray,
    classes: Sequence[ClassInfo],
    case: str,
) -> list[Row]:
    return [
        {"case": case, "object": int(number), "class": int(k), "class_name": classes[k].name}
        | {name: values[place].item() for name, values in columns.items()}
        for place, (number, k) in enumerate(zip(numbers, indices, strict=True))
    ]


def _sizes_and_places(
    area: np.ndarray, centroids: np.ndarray, boxes: np.ndarray, spacing_mm: Sequence[float] | None, axes: Axes
) -> dict[str, np.ndarray]:
    """Return the columns of area or volume (n,), centroids (n, dims) and boxes (n, 2, dims)."""
    dims = centroids.shape[1]
    names = "zyx"[-dims:] if axes != "xyz" else "xyz"[:dims]
    size = "area" if dims == 2 else "volume"
    columns = {f"{size}_px": area.astype(int)}
    if spacing_mm is not None:
        columns[f"{size}_um{dims}"] = area * math.prod(step * UM_PER_MM for step in spacing_mm)
        columns[f"{size}_mm{dims}"] = area * math.prod(spacing_mm)
    for axis, name in enumerate(names):
        columns[f"centroid_{name}_px"] = centroids[:, axis]
    for axis, name in enumerate(names if spacing_mm is not None else ""):
        columns[f"centroid_{name}_mm"] = centroids[:, axis] * spacing_mm[axis]  # type: ignore[index]
    for axis, name in enumerate(names):
        columns[f"box_{name}_min"], columns[f"box_{name}_max"] = boxes[:, 0, axis], boxes[:, 1, axis]
    return columns


def _axes_of(covariance: np.ndarray) -> dict[str, np.ndarray]:
    """Return the axes of the ellipses (ellipsoids) with these second moments (n, dims, dims), as `regionprops_table` does.

    A disc of radius r has the variance r²/4 along each axis, a ball r²/5.
    """
    variances = np.linalg.eigvalsh(covariance).clip(0)  # in ascending order
    scale = 2 * math.sqrt(covariance.shape[-1] + 2)
    return {f"axis_{which}_length": scale * np.sqrt(variances[:, place]) for which, place in (("major", -1), ("minor", 0))}


def _axis_lengths(table: dict[str, np.ndarray], unit: str) -> dict[str, np.ndarray]:
    return {f"{which}_axis_{unit}": table[f"axis_{which}_length"] for which in ("major", "minor")}
