"""Orientation of volumes: the anatomical directions of their axes, and turning them by flips and transpositions.

An orientation such as ``"RAS"`` names the direction in which the x, y and z index increase: right or left, anterior or
posterior, superior or inferior. It does not depend on the order in which a library stores the axes (see `Axes`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hebbseg.data.io.image_file import Axes, Header

CANONICAL = "RAS"
DIRECTIONS = ("RL", "AP", "SI")


def orientation_of(affine: Sequence[float] | np.ndarray | None) -> str | None:
    """Return the orientation of an affine (RAS+, of x, y, z indices); None if it has none. An oblique one has the closest.

    >>> orientation_of([-1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1])
    'LPS'
    """
    if affine is None:
        return None
    from nibabel.orientations import aff2axcodes

    matrix = np.reshape(affine, (4, 4)).astype(float)
    if not np.isfinite(matrix).all():
        return None
    codes = aff2axcodes(matrix)
    return None if None in codes else "".join(map(str, codes))


def is_orientation(text: str) -> bool:
    """Return whether the letters name three different axes of the body."""
    return len(text) == 3 and all(sum(letter in pair for letter in text) == 1 for pair in DIRECTIONS)


def to_grid(array: np.ndarray, found: tuple[Axes, str | None], wanted: tuple[Axes, str | None], *, dims: int) -> np.ndarray:
    """Bring the first ``dims`` axes to another order of axes and orientation, by flips and transpositions only (a view).

    Args:
        found, wanted: order of axes and orientation. Where one of them is unknown ("stored", None), nothing changes.
    """
    order = _axis_order(found[0], wanted[0], dims)
    array = array.transpose([*order, *range(dims, array.ndim)])
    change = _change(found[1], wanted[1], dims)
    if change is None:
        return array
    from nibabel.orientations import apply_orientation

    reversed_axes = _known(found[0], wanted[0]) == "zyx"
    turn = [*reversed(range(dims)), *range(dims, array.ndim)]
    turned = apply_orientation(array.transpose(turn) if reversed_axes else array, change)
    return turned.transpose(turn) if reversed_axes else turned


def values_to_grid(values: Sequence[Any], found: tuple[Axes, str | None], wanted: tuple[Axes, str | None]) -> tuple[Any, ...]:
    """Bring one value per axis, such as a shape or a spacing, to another order of axes and orientation.

    >>> values_to_grid((1, 2, 3), ("xyz", "RAS"), ("zyx", "LSA"))
    (2, 3, 1)
    """
    dims = len(values)
    moved = [values[axis] for axis in _axis_order(found[0], wanted[0], dims)]
    change = _change(found[1], wanted[1], dims)
    if change is None:
        return tuple(moved)
    reversed_axes = _known(found[0], wanted[0]) == "zyx"
    in_xyz = moved[::-1] if reversed_axes else moved
    result = [in_xyz[int(np.flatnonzero(change[:, 0] == axis)[0])] for axis in range(dims)]
    return tuple(result[::-1] if reversed_axes else result)


def header_to_grid(header: Header, wanted: tuple[Axes, str | None]) -> Header:
    """Return the header with shape and spacing in another order of axes and orientation; the rest is that of the file."""
    found, spacing = (header.axes, header.orientation), header.spacing_mm
    return replace(
        header,
        shape=values_to_grid(header.shape, found, wanted),
        spacing_mm=None if spacing is None else values_to_grid(spacing, found, wanted),
        axes=header.axes if "stored" in (header.axes, wanted[0]) else wanted[0],
    )


def _axis_order(found: Axes, wanted: Axes, dims: int) -> list[int]:
    turned = "stored" not in (found, wanted) and found != wanted
    return list(reversed(range(dims))) if turned else list(range(dims))


def _known(found: Axes, wanted: Axes) -> Axes:
    return found if wanted == "stored" else wanted


def _change(found: str | None, wanted: str | None, dims: int) -> np.ndarray | None:
    """Return nibabel's transformation between two orientations of volumes; None if nothing changes."""
    if dims != 3 or found is None or wanted is None or found == wanted:
        return None
    from nibabel.orientations import axcodes2ornt, ornt_transform

    return ornt_transform(axcodes2ornt(found), axcodes2ornt(wanted))
