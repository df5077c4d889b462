"""What the files of a folder probably are, from a few of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hebbseg.data.io.formats import read_labels
from hebbseg.data.labels.masks import pack_colours
from hebbseg.errors import HebbsegError

_LOOKED_AT = 4
_FEW_VALUES = 20
_FLAT = 0.9  # share of neighboring pixels that are equal: masks consist of areas
SAME_AREA = 0.95


@dataclass(frozen=True, kw_only=True)
class Guess:
    """``words`` say what the files look like."""

    words: str
    like_masks: bool = False
    is_field_of_view: bool = False


def guess(files: Sequence[Path]) -> Guess:
    """Guess from up to four files, evenly spaced."""
    chosen = [files[i * len(files) // min(_LOOKED_AT, len(files))] for i in range(min(_LOOKED_AT, len(files)))]
    arrays = [array for path in chosen if (array := _values(path)) is not None]
    if not arrays:
        return Guess(words="unreadable as masks")
    values = sorted({int(value) for array in arrays for value in np.unique(array)[: _FEW_VALUES + 1]})
    flat = min(_flatness(array) for array in arrays)
    if len(values) > _FEW_VALUES and flat < _FLAT:
        return Guess(words="images, with many values per file")
    if len(arrays) > 1 and len(values) > 1 and _same_area(arrays):
        return Guess(words="nearly the same in every file, such as a field of view", like_masks=True, is_field_of_view=True)
    if len(values) > _FEW_VALUES or max(values) > 0xFFFF:
        return Guess(words="masks with many values or colors", like_masks=True)
    shown = ", ".join(map(str, values[:5])) + (" …" if len(values) > 5 else "")
    return Guess(words=f"masks with the values {shown}", like_masks=len(values) > 1)


def area_overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Return the Dice coefficient of two boolean arrays of the same shape; 1 if both are empty."""
    total = int(one.sum()) + int(other.sum())
    return 2 * int((one & other).sum()) / total if total else 1.0


def thumbnail(array: np.ndarray) -> np.ndarray:
    """Return an array (*S) at 64 × 64 pixels (24 × 24 × 24 voxels) without interpolation, to compare masks of any size."""
    size = 64 if array.ndim == 2 else 24
    return array[np.ix_(*(np.arange(size) * n // size for n in array.shape))]


def _values(path: Path) -> np.ndarray | None:
    """Return the values of a file, colors packed into one integer, or None if it cannot be read."""
    try:
        raw = read_labels(path)
    except HebbsegError:
        return None
    return pack_colours(raw.values) if raw.colour else raw.values


def _flatness(array: np.ndarray) -> float:
    return float((array[..., 1:] == array[..., :-1]).mean()) if array.shape[-1] > 1 else 1.0


def _same_area(arrays: Sequence[np.ndarray]) -> bool:
    if len({array.ndim for array in arrays}) > 1:
        return False
    first, *others = (thumbnail(array) > arrays[0].min() for array in arrays)
    return all(area_overlap(first, other) > SAME_AREA for other in others)
