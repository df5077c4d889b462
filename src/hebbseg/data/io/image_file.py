"""What a file on disk turns into: its header, its image, its raw mask. Shared by every file type."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from hebbseg.data.cases import ClassInfo

# The order of an array's spatial axes: slowest first (pictures are rows × columns), NIfTI's fastest first,
# or whatever the array was stored with (NumPy, HDF5), which then is taken to be that of its partner.
Axes = Literal["zyx", "xyz", "stored"]


@dataclass(frozen=True, kw_only=True)
class Header:
    """What is known of an image before its pixels are decoded. ``shape`` is spatial, in the order of the axes.

    ``affine`` (NIfTI, ITK) takes x, y, z indices to millimetres, right, anterior, superior positive, row by row.
    ``opacity`` says that the file has a channel for it, which is dropped and not counted in ``channels``.
    """

    channels: int
    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...] | None = None
    axes: Axes = "zyx"
    opacity: bool = False
    affine: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Image:
    """An image and all it takes to write a mask that lies on it exactly.

    Shapes:
        array: (C, *spatial), the file's own number type.

    ``geometry`` belongs to the file type that made it: the NIfTI header, ITK's origin and direction, TIFF's resolution.
    """

    array: np.ndarray
    path: Path
    spacing_mm: tuple[float, ...] | None = None
    axes: Axes = "zyx"
    geometry: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape[1:]


@dataclass(frozen=True, kw_only=True, eq=False)
class RawMask:
    """A mask as its file has it, before anybody says what the values mean.

    Shapes:
        values: (*spatial), or (*spatial, 3) when ``colour``.
        palette: (n, 3) for indexed pictures, whose ``values`` are indices.
    """

    values: np.ndarray
    colour: bool = False
    palette: np.ndarray | None = None
    lossy: bool = False
    axes: Axes = "zyx"


class FileType(Protocol):
    """The four functions every module of `hebbseg.data.io` has."""

    def read_header(self, path: Path) -> Header: ...

    def read_image(self, path: Path) -> Image: ...

    def read_labels(self, path: Path) -> RawMask: ...

    def write_mask(self, path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None: ...


def grey_or_colour(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """(*spatial, 3) → (*spatial) and False where all three channels agree, the same and True elsewhere.

    A fourth channel is opacity and is dropped.
    """
    values = values[..., :3]
    first = values[..., 0]
    if np.array_equal(first, values[..., 1]) and np.array_equal(first, values[..., 2]):
        return first, False
    return values, True


def user_values(indices: np.ndarray, classes: Sequence[ClassInfo]) -> np.ndarray:
    """Class indices → the values the user's masks use, in the smallest whole-number type that holds them all.

    Classes that are colours have no number; their index stands for them.
    """
    values = [c.value if isinstance(c.value, int) else c.index for c in classes]
    dtype = np.result_type(np.min_scalar_type(min(values)), np.min_scalar_type(max(values)))
    table = np.asarray(values, dtype=dtype)
    return table[indices]


def user_colours(indices: np.ndarray, classes: Sequence[ClassInfo]) -> np.ndarray | None:
    """Class indices → (*spatial, 3) uint8 colours, or None unless every class is a colour."""
    if any(isinstance(c.value, int) for c in classes):
        return None
    return np.asarray([c.value for c in classes], dtype=np.uint8)[indices]
