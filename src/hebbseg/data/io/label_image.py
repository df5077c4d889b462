"""Label images: the number of the object of each pixel, as 16-bit integers, or 32-bit beyond 65,535 objects."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.formats import FORMATS, suffix_of, write_mask, write_mask_parts
from hebbseg.data.io.image_file import Image, Place
from hebbseg.data.io.tiles import part_of, release_pages

_LARGEST_8_BIT = 255
_SLICES = 32  # that are copied at a time


def label_suffix(mask_suffix: str) -> str:
    """Return the suffix of label images: TIFF where masks are PNG or BMP, otherwise that of masks."""
    return ".tif" if FORMATS.get(mask_suffix) == "pillow" else mask_suffix


def write_label_image(path: str | Path, labels: np.ndarray, like: Image) -> Path:
    """Write the labels (*spatial) in the geometry of their image; the suffix of ``path`` becomes `label_suffix`."""
    if FORMATS.get(suffix_of(like.path)) == "pillow":
        like = replace(like, path=like.path.with_suffix(".tif"), geometry=None)
    # A mask whose class i has the value i; a value beyond 8 bits makes the file 16-bit.
    largest = max(int(labels.max(initial=0)), _LARGEST_8_BIT + 1)
    return write_mask(path, labels, like, tuple(ClassInfo(index=label, value=label) for label in range(largest + 1)))


def write_label_image_parts(path: Path, labels: np.ndarray, count: int, like: Image) -> None:
    """Write labels 1 … ``count`` on disk like `write_label_image`, part by part; volumes are encoded whole."""
    dtype = np.uint16 if count <= np.iinfo(np.uint16).max else np.uint32
    if labels.ndim == 3:
        whole = np.empty(labels.shape, dtype)
        for start in range(0, len(labels), _SLICES):
            whole[start : start + _SLICES] = labels[start : start + _SLICES]
            release_pages(labels)
        write_label_image(path, whole, like)
        return

    def read(rows: Place, columns: Place) -> np.ndarray:
        if isinstance(columns, slice) and columns.start == 0:
            release_pages(labels)
        return part_of(labels, rows, columns).astype(dtype)

    write_mask_parts(path, read, like, None)
