"""Headers, images and raw masks, as read from all file formats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from hebbseg.data.cases import ClassInfo, DataError

# Order of the spatial axes: "zyx" (2D: rows, columns), NIfTI's "xyz", or "stored" for NumPy and HDF5, which is assumed to
# be the same for an image and its mask.
Axes = Literal["zyx", "xyz", "stored"]
_BAND_PIXELS = 2**22  # that are converted at a time


@dataclass(frozen=True, kw_only=True)
class Header:
    """Properties of an image that do not require decoding. ``shape`` is spatial, in the order of ``axes``.

    ``affine`` (NIfTI, ITK) maps x, y, z indices to millimeters (RAS+), flattened row by row. ``orientation`` is that of the
    file (see `hebbseg.data.io.orientation`), None if the file does not state it. ``opacity`` marks an alpha channel, which is
    ignored and not counted in ``channels``.
    """

    channels: int
    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...] | None = None
    axes: Axes = "zyx"
    opacity: bool = False
    affine: tuple[float, ...] | None = None
    orientation: str | None = None


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level of a pyramid: its spatial size, and the distance of its pixels if it is known."""

    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...] | None = None

    def __str__(self) -> str:
        """Return ``"5000×4000, 0.5 µm"``: height, width and distance of the columns."""
        size = "×".join(map(str, self.shape))
        return size if self.spacing_mm is None else f"{size}, {1000 * self.spacing_mm[-1]:.4g} µm"


@dataclass(frozen=True, kw_only=True, eq=False)
class Image:
    """An image, (C, *spatial) in the data type of the file, with the geometry for writing its mask.

    ``geometry`` is specific to the format: the NIfTI header, ITK's origin and direction, or TIFF's resolution.
    """

    array: np.ndarray
    path: Path
    spacing_mm: tuple[float, ...] | None = None
    axes: Axes = "zyx"
    geometry: Any = None
    orientation: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape[1:]


@dataclass(frozen=True, kw_only=True, eq=False)
class RawMask:
    """A mask with the values of its file.

    Shapes:
        values: (*spatial), or (*spatial, 3) if ``colour``.
        palette: (n, 3) for indexed images, whose ``values`` are indices.
    """

    values: np.ndarray
    colour: bool = False
    palette: np.ndarray | None = None
    lossy: bool = False
    axes: Axes = "zyx"

    @classmethod
    def from_channels(cls, values: np.ndarray, path: Path, *, axes: Axes = "zyx", lossy: bool = False) -> "RawMask":
        """Return the mask of (*spatial, C) values: one value per pixel, or a color without its alpha channel."""
        if values.shape[-1] == 1:
            return cls(values=values[..., 0], axes=axes, lossy=lossy)
        if values.shape[-1] not in (3, 4):
            raise DataError(
                path, f"mask with {values.shape[-1]} channels", "Store one class value per pixel, not one-hot masks."
            )
        values, colour = grey_or_colour(values)
        return cls(values=values, colour=colour, axes=axes, lossy=lossy)


Place = slice | np.ndarray  # of rows or columns: a slice, or their numbers
ReadPart = Callable[[Place, Place], np.ndarray]
"""(rows, columns) → that part of an image."""

MappedLabels = tuple[Any, Callable[[np.ndarray], RawMask]]
"""A mask that is read in parts: an array (C, H, W) that can be sliced, and what makes a `RawMask` of a part (C, h, w)."""


class FileType(Protocol):
    """The functions of every format module of `hebbseg.data.io`; only those of formats with pyramids take ``level``."""

    def read_header(self, path: Path, **level: int) -> Header: ...

    def read_image(self, path: Path, **level: int) -> Image: ...

    def read_labels(self, path: Path, **level: int) -> RawMask: ...

    def write_mask(self, path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None: ...


def checked_level(path: Path, level: int, shapes: Sequence[Sequence[int]]) -> int:
    """Return the level of a pyramid whose levels have these sizes; raise if there is no such level."""
    if 0 <= level < len(shapes):
        return level
    found = ", ".join(f"{number} ({'×'.join(map(str, shape))})" for number, shape in enumerate(shapes))
    raise DataError(path, f"has no pyramid level {level}; its levels are {found}", "Pass --level with one of these numbers.")


def grey_or_colour(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return (*spatial) and False if the three channels are equal, else (*spatial, 3) and True. Drops an alpha channel."""
    values = values[..., :3]
    first = values[..., 0]
    if np.array_equal(first, values[..., 1]) and np.array_equal(first, values[..., 2]):
        return first, False
    return values, True


def user_values(indices: np.ndarray, classes: Sequence[ClassInfo]) -> np.ndarray:
    """Convert class indices to the values of the user's masks, in the smallest integer type.

    Classes defined by color keep their index.
    """
    values = [c.value if isinstance(c.value, int) else c.index for c in classes]
    dtype = np.result_type(np.min_scalar_type(min(values)), np.min_scalar_type(max(values)))
    if values == list(range(len(values))):
        return np.asarray(indices).astype(dtype, copy=False)
    table, found = np.asarray(values, dtype=dtype), np.empty(indices.shape, dtype)
    step = max(1, _BAND_PIXELS // max(1, prod(indices.shape[1:])))  # NumPy makes 8 bytes of each index
    for start in range(0, len(indices), step):
        found[start : start + step] = table[indices[start : start + step]]
    return found


def user_part(indices: np.ndarray, classes: Sequence[ClassInfo] | None) -> np.ndarray:
    """Return the values or colors of a part of a mask as they are written; without classes, those that it has."""
    if classes is None:
        return indices
    colours = user_colours(indices, classes)
    return user_values(indices, classes) if colours is None else colours


def user_colours(indices: np.ndarray, classes: Sequence[ClassInfo]) -> np.ndarray | None:
    """Convert class indices to colors, (*spatial, 3) uint8; None unless every class is defined by color."""
    if any(isinstance(c.value, int) for c in classes):
        return None
    return np.asarray([c.value for c in classes], dtype=np.uint8)[indices]
