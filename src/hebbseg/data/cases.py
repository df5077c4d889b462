"""What every data source hands on: a list of cases and a way to read them.

A `Source` is the only thing the rest of the package knows about data; files, zips and generated phantoms look alike.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from hebbseg.errors import HebbsegError


@dataclass(frozen=True, kw_only=True)
class Case:
    """One image (2D or a volume) with, perhaps, its mask.

    ``image`` has several files when each channel is one (nnU-Net's ``_0000``, ``_0001``); ``mask`` has several when
    each instance is one. Both are empty tuples for generated cases. ``subset`` is the side of a published split, if
    any (``"train"`` or ``"test"``). ``spacing_mm`` has one number per spatial axis, in the order of the array's axes.
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

    def __str__(self) -> str:
        return f"{self.file}: {self.finding}. {self.remedy}"


class DataError(HebbsegError):
    """A problem that leaves no way on, as an exception: the file, the finding and the remedy."""

    def __init__(self, file: str | Path, finding: str, remedy: str) -> None:
        self.problem = Problem(file=str(file), finding=finding, remedy=remedy, fatal=True)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[type["DataError"], tuple[str, str, str]]:
        # An exception that crosses to another process (a loader's worker) is rebuilt from its arguments.
        return type(self), (self.problem.file, self.problem.finding, self.problem.remedy)


@dataclass(frozen=True, kw_only=True)
class ClassInfo:
    """One class: its index in our tensors, the value the user's masks use for it, its name, and its palette colour.

    ``value`` is a number, or a colour (red, green, blue) where the masks are colour pictures.
    """

    index: int
    value: int | tuple[int, ...]
    name: str = ""
    colour: tuple[int, int, int] | None = None


class Source(Protocol):
    """A set of cases and how to read them.

    ``classes`` maps class index (0 is background) to the user's own id and name. Whoever works without masks must not
    ask for it: finding the classes may need a look at every mask. Everything else never opens a mask file.
    """

    @property
    def name(self) -> str: ...

    @property
    def cases(self) -> tuple[Case, ...]: ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What listing the files brought to light; reading them may bring more (`hebbseg.data.inspect`)."""
        ...

    @property
    def spatial_dims(self) -> int:
        """2 for pictures, 3 for volumes; one number for the whole source."""
        ...

    @property
    def channels(self) -> int:
        """The C of every image of the source."""
        ...

    @property
    def classes(self) -> tuple[ClassInfo, ...]: ...

    def image(self, case: Case) -> np.ndarray:
        """Channels first, (C, *spatial), in the file's own number type."""
        ...

    def mask(self, case: Case) -> np.ndarray:
        """Class indices 0 … len(classes) − 1, uint8, (*spatial). Raises if the case has no mask."""
        ...
