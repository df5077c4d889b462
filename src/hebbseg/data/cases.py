"""Cases and sources: the interface between data sets (files, zip archives, phantoms) and the rest of the package."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from hebbseg.errors import FileError

IGNORE = 255
"""Index, in masks of class indices, of pixels that are not annotated. It is not a class."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An image (2D or 3D) with an optional mask.

    ``image`` has one file per channel (nnU-Net's ``_0000``, ``_0001``) or a single file; ``mask`` has one file per
    instance or a single file. Both are empty tuples for generated cases. ``subset`` is ``"train"`` or ``"test"`` if the
    data set has a published split. ``spacing_mm`` has one value per spatial axis, in array order.
    """

    id: str
    image: tuple[Path, ...] = ()
    mask: tuple[Path, ...] | None = None
    group: str | None = None
    spacing_mm: tuple[float, ...] | None = None
    subset: str | None = None

    @property
    def has_mask(self) -> bool:
        return self.mask is not None


@dataclass(frozen=True)
class Problem:
    """A problem with the data: the file, what was found, and the remedy. ``fatal`` problems prevent training."""

    file: str
    finding: str
    remedy: str
    fatal: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.file}: {self.finding}. {self.remedy}"


class DataError(FileError):
    """A fatal `Problem` as an exception."""

    @property
    def problem(self) -> Problem:
        return Problem(self.file, self.finding, self.remedy, fatal=True)


@dataclass(frozen=True, kw_only=True)
class ClassInfo:
    """A class: its index, its value in the mask files, its name and its palette color.

    ``value`` is an integer, or a color (red, green, blue) if the masks are color images.
    """

    index: int
    value: int | tuple[int, ...]
    name: str = ""
    colour: tuple[int, int, int] | None = None


class Source(Protocol):
    """A data set: its cases and how to read them.

    Accessing ``classes`` (index 0 is background) may read every mask. Apart from it, only `mask` opens mask files.
    """

    @property
    def name(self) -> str: ...

    @property
    def cases(self) -> tuple[Case, ...]: ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems found while listing the files; `hebbseg.data.inspect` reads the files and may find more."""

    @property
    def spatial_dims(self) -> int:
        """2 for 2D images, 3 for volumes; the same for all cases."""

    @property
    def channels(self) -> int:
        """Number of channels, the same for all images."""

    @property
    def classes(self) -> tuple[ClassInfo, ...]: ...

    def image(self, case: Case) -> np.ndarray:
        """Return the image, (C, *spatial), in the data type of the file."""

    def mask(self, case: Case) -> np.ndarray:
        """Return the class indices 0 … len(classes) − 1 and `IGNORE`, uint8, (*spatial). Raises if the case has no mask."""
