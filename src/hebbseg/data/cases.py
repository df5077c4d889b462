"""What every data source hands on: a list of cases and a way to read them.

A `Source` is the only thing the rest of the package knows about data; files, zips and generated phantoms look alike.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Case:
    """One image (2D or a volume) with, perhaps, its mask.

    ``image`` has several files when each channel is one (nnU-Net's ``_0000``, ``_0001``); ``mask`` has several when each
    instance is one. Both are empty tuples for generated cases. ``subset`` is the side of a published split, if any.
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


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong with the data: which file, what was found, what to do about it.

    ``fatal`` problems stop a training; the others are reported and the case is left out or used as described.
    """

    file: str
    finding: str
    remedy: str
    fatal: bool = False


class Source(Protocol):
    """A set of cases and how to read them. ``classes`` maps class index (0 is background) to the user's own id and name."""

    name: str
    cases: tuple[Case, ...]
    spatial_dims: int
    classes: tuple["ClassInfo", ...]
    problems: tuple[Problem, ...]

    def image(self, case: Case) -> np.ndarray:
        """Channels first, (C, *spatial), in the file's own number type."""
        ...

    def mask(self, case: Case) -> np.ndarray:
        """Class indices 0 … len(classes) − 1, uint8, (*spatial). Raises if the case has no mask."""
        ...


@dataclass(frozen=True, kw_only=True)
class ClassInfo:
    """One class: its index in our tensors, the value the user's masks use for it, and its name."""

    index: int
    value: int | tuple[int, ...]
    name: str = field(default="")
