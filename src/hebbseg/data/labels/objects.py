"""Recognition of masks whose values number objects, and of values that are no classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_FEWEST_OBJECTS = 4  # in the data set: fewer values are classes
_NUMBERED = 0.8  # share of masks with the values 1 … n
_CONNECTED = 0.8  # areas per value, inverse
_DIFFERENT = 0.3  # overlap (Jaccard) of the values of two masks, if they are not numbered from 1
IGNORE_VALUE = 255


@dataclass(frozen=True, kw_only=True)
class MaskValues:
    """The foreground values of a mask, sorted, and the number of connected areas of equal value (None: not counted)."""

    values: tuple[int, ...]
    areas: int | None = None


def number_objects(masks: Sequence[MaskValues]) -> bool:
    """Return whether the values number objects: each is one connected area, and masks differ in how many they have.

    Masks number their objects 1 … n or, if they were cropped from larger ones, have few values in common.
    """
    drawn = [mask for mask in masks if mask.values]
    every = {value for mask in drawn for value in mask.values}
    if len(every) < _FEWEST_OBJECTS:
        return False
    counts = {len(mask.values) for mask in drawn}
    if len(counts) < 3 and not (len(masks) <= 3 and len(every) >= 2 * _FEWEST_OBJECTS):
        return False
    counted = [(len(mask.values), mask.areas) for mask in drawn if mask.areas is not None]
    if sum(n for n, _ in counted) < _CONNECTED * sum(areas for _, areas in counted):
        return False
    numbered = sum(mask.values == tuple(range(1, len(mask.values) + 1)) for mask in drawn)
    return numbered >= _NUMBERED * len(drawn) or _overlap(drawn) < _DIFFERENT


def has_ignore_value(values: Sequence[int | tuple[int, ...]]) -> bool:
    """Return whether the values are 0 … n and 255, which often marks pixels that are not annotated."""
    return len(values) > 2 and list(values) == [*range(len(values) - 1), IGNORE_VALUE]


def _overlap(masks: Sequence[MaskValues]) -> float:
    """Return the mean Jaccard coefficient of the values of consecutive masks."""
    sets = [set(mask.values) for mask in masks]
    pairs = list(pairwise(sets))
    return sum(len(a & b) / len(a | b) for a, b in pairs) / len(pairs) if pairs else 1.0
