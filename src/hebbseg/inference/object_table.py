"""Measurements of objects: one row per object, in pixels and, if the spacing is known, in physical units."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from skimage.measure import regionprops_table

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.image_file import Axes
from hebbseg.data.labels.instances import Objects

Row = dict[str, Any]
UM_PER_MM = 1000


def object_rows(
    objects: Objects,
    image: np.ndarray,
    classes: Sequence[ClassInfo],
    *,
    case: str = "",
    spacing_mm: Sequence[float] | None = None,
    axes: Axes = "zyx",
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
    """
    if not len(objects):
        return []
    dims = objects.labels.ndim
    names = ("zyx"[-dims:] if axes != "xyz" else "xyz"[:dims])  # fmt: skip
    properties = ["label", "area", "centroid", "bbox", "intensity_mean", "axis_major_length", "axis_minor_length"]
    table = regionprops_table(
        objects.labels, np.moveaxis(image, 0, -1), properties=[*properties, "perimeter"] if dims == 2 else properties
    )
    size = "area" if dims == 2 else "volume"
    columns: dict[str, np.ndarray] = {f"{size}_px": table["area"].astype(int)}
    if spacing_mm is not None:
        columns[f"{size}_um{dims}"] = table["area"] * math.prod(step * UM_PER_MM for step in spacing_mm)
        columns[f"{size}_mm{dims}"] = table["area"] * math.prod(spacing_mm)
    for axis, name in enumerate(names):
        columns[f"centroid_{name}_px"] = table[f"centroid-{axis}"]
    for axis, name in enumerate(names if spacing_mm is not None else ""):
        columns[f"centroid_{name}_mm"] = table[f"centroid-{axis}"] * spacing_mm[axis]  # type: ignore[index]
    for axis, name in enumerate(names):
        columns[f"box_{name}_min"], columns[f"box_{name}_max"] = table[f"bbox-{axis}"], table[f"bbox-{axis + dims}"]
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
    return [
        {"case": case, "object": number, "class": int(k), "class_name": classes[k].name}
        | {name: values[number - 1].item() for name, values in columns.items()}
        for number, k in enumerate(objects.classes, start=1)
    ]


def _axis_lengths(table: dict[str, np.ndarray], unit: str) -> dict[str, np.ndarray]:
    return {f"{which}_axis_{unit}": table[f"axis_{which}_length"] for which in ("major", "minor")}
