"""Limits of what is read into memory. Sizes that a header declares are checked before anything is allocated."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hebbseg.data.cases import DataError
from hebbseg.data.io.image_file import Header, Image
from hebbseg.errors import HebbsegError

VARIABLE = "HEBBSEG_MAX_PIXELS"
MAX_PIXELS = 2**29  # a volume of 812³, a color image of 13,377²
SMALL_BYTES = 2**25  # allowed whatever the size of the file
MOST_COMPRESSED = 2000  # deflate reaches 1,032
EXPORT_AGAIN = "Copy or export it again, or remove it."


def max_pixels() -> int:
    """Return the largest number of values (pixels × channels) of an image: ``HEBBSEG_MAX_PIXELS``, or `MAX_PIXELS`."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return MAX_PIXELS
    if not given.isdecimal() or int(given) < 1:
        raise HebbsegError(f"{VARIABLE}={given!r}: allowed is a positive integer, such as {MAX_PIXELS}.")
    return int(given)


def check_declared(
    path: Path,
    shape: Sequence[int],
    *,
    bits: float,
    file_bytes: int | None = None,
    compressed: bool = True,
    limited: bool = True,
) -> None:
    """Raise unless an array of this shape, as declared by a header, can be in the file and fits into the limit.

    Args:
        path: the file, for errors.
        shape: all axes, with channels.
        bits: stored bits per value.
        file_bytes: bytes that are available for the values; default: the size of the file.
        compressed: whether the file can be smaller than its values.
        limited: False for arrays that are mapped, not read.
    """
    if not shape or min(shape) < 1:
        raise DataError(path, f"declares an image of size {_times(shape)}", f"Sizes must be positive. {EXPORT_AGAIN}")
    count = math.prod(int(size) for size in shape)
    declared = count * bits / 8
    available = path.stat().st_size if file_bytes is None else file_bytes
    most = max(SMALL_BYTES, MOST_COMPRESSED * available) if compressed else available
    if declared > most:
        remedy = f"{EXPORT_AGAIN} If it is intact, store it without compression." if compressed else EXPORT_AGAIN
        raise DataError(
            path,
            f"truncated, damaged or not of the type in its name (it declares {_times(shape)} values, {_size(declared)}, but "
            f"has {_size(available)}, which holds at most {_size(most)})",
            remedy,
        )
    if limited and count > max_pixels():
        raise DataError(
            path,
            f"{_times(shape)} = {count} values, more than {VARIABLE} allows ({max_pixels()})",
            f"Split the image, or set {VARIABLE}={count} if the memory suffices.",
        )


def check_header(path: Path, header: Header) -> Header:
    """Return the header; raise if a size, the number of channels or the spacing is impossible."""
    if header.channels < 1 or not header.shape or min(header.shape) < 1:
        raise DataError(
            path,
            f"image of size {_times(header.shape)} with {header.channels} channel(s)",
            f"Sizes and channels must be positive. {EXPORT_AGAIN}",
        )
    _check_spacing(path, header.spacing_mm)
    return header


def check_image(path: Path, image: Image) -> Image:
    """Return the image; raise if its size, spacing or range of values is impossible."""
    array = image.array
    if 0 in array.shape:
        raise DataError(path, f"image of size {_times(array.shape)}", f"Sizes and channels must be positive. {EXPORT_AGAIN}")
    _check_spacing(path, image.spacing_mm)
    if array.dtype.kind == "c":
        raise DataError(path, f"complex values ({array.dtype})", "Store real values, such as the magnitude.")
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        _check_range(path, array)
    return image


def _check_spacing(path: Path, spacing_mm: Sequence[float] | None) -> None:
    if spacing_mm is not None and not all(math.isfinite(step) and step > 0 for step in spacing_mm):
        shown = " × ".join(f"{step:g}" for step in spacing_mm)
        raise DataError(path, f"spacing of {shown} mm", "Spacings must be positive numbers. Correct the header of the file.")


def _check_range(path: Path, array: np.ndarray) -> None:
    """Networks compute in float32: larger numbers become infinite there, smaller ones zero."""
    largest = max((float(np.max(np.abs(part), where=np.isfinite(part), initial=0.0)) for part in array), default=0.0)
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    if largest > most or 0 < largest < least:
        raise DataError(
            path,
            f"float64 values up to {largest:.3g}, outside the range of float32 ({least:.3g} … {most:.3g})",
            "Rescale the values.",
        )


def _times(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) or "none"


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"
