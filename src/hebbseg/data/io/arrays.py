"""NumPy (.npy, .npz) and HDF5 (.h5, .hdf5): arrays without geometry, axes as stored.

2D arrays have no channel axis. In 3D and 4D arrays, the channel axis is the last axis if its size is at most 4, else the
first axis if its size is at most 4; a 3D array without one is a volume. Npz and HDF5 files contain ``image`` and, optionally,
``label``.
"""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Header, Image, RawMask, grey_or_colour, user_colours, user_values
from hebbseg.errors import did_you_mean

IMAGE_KEYS = ("image", "img", "data")
LABEL_KEYS = ("label", "labels", "mask", "seg")
_MOST_CHANNELS = 4
_HDF5 = (".h5", ".hdf5")


def read_header(path: Path) -> Header:
    with _stored(path, IMAGE_KEYS) as stored:
        axis = _channel_axis(stored.shape, path)
        shape = tuple(size for a, size in enumerate(stored.shape) if a != axis)
        return Header(channels=1 if axis is None else stored.shape[axis], shape=shape, axes="stored")


def read_image(path: Path) -> Image:
    with _stored(path, IMAGE_KEYS) as stored:
        array = _numbers(stored[()], path)
    axis = _channel_axis(array.shape, path)
    array = array[None] if axis is None else np.moveaxis(array, axis, 0)  # → (C, *spatial)
    return Image(array=np.ascontiguousarray(array), path=path, axes="stored")


def read_labels(path: Path) -> RawMask:
    with _stored(path, LABEL_KEYS) as stored:
        values = _numbers(stored[()], path)
    axis = _channel_axis(values.shape, path)
    if axis is None:
        return RawMask(values=values, axes="stored")
    values = np.moveaxis(values, axis, -1)  # → (*spatial, C)
    if values.shape[-1] == 1:
        return RawMask(values=values[..., 0], axes="stored")
    if values.shape[-1] == 2:
        raise DataError(path, f"mask of shape {values.shape}", "Store one class index per pixel, not a one-hot encoding.")
    values, colour = grey_or_colour(values)
    return RawMask(values=values, colour=colour, axes="stored")


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    colours = user_colours(indices, classes)
    values = user_values(indices, classes) if colours is None else colours
    if path.suffix.lower() == ".npy":
        np.save(path, values)
    elif path.suffix.lower() == ".npz":
        np.savez_compressed(path, label=values)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("label", data=values, compression="gzip")


def has_label(path: Path) -> bool:
    """Return whether an image file contains its mask; reads only the names of the arrays."""
    if path.suffix.lower() in _HDF5:
        with h5py.File(path, "r") as file:
            return any(key in file for key in LABEL_KEYS)
    if path.suffix.lower() == ".npz":
        with zipfile.ZipFile(path) as file:
            return any(f"{key}.npy" in file.namelist() for key in LABEL_KEYS)
    return False


@contextmanager
def _stored(path: Path, keys: Sequence[str]) -> Iterator[Any]:
    """Yield the array of a file, with a shape, not yet read; ``[()]`` reads it."""
    if path.suffix.lower() == ".npy":
        yield np.load(path, mmap_mode="r", allow_pickle=False)
    elif path.suffix.lower() == ".npz":
        with np.load(path, allow_pickle=False) as file:
            yield file[_key(path, list(file.keys()), keys)]
    else:
        with h5py.File(path, "r") as file:
            yield file[_key(path, [name for name in file if isinstance(file[name], h5py.Dataset)], keys)]


def _key(path: Path, names: list[str], keys: Sequence[str]) -> str:
    for key in keys:
        if key in names:
            return key
    if len(names) == 1 and names[0] not in (*IMAGE_KEYS, *LABEL_KEYS):
        return names[0]
    found = ", ".join(repr(name) for name in names) or "nothing"
    raise DataError(path, f"contains {found} but no {keys[0]!r}", f"Rename the array. {did_you_mean('', keys)}")


def _numbers(array: np.ndarray, path: Path) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if array.dtype.kind not in "uif":
        raise DataError(path, f"unsupported data type {array.dtype}", "Store integers or floating-point numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _channel_axis(shape: tuple[int, ...], path: Path) -> int | None:
    if len(shape) == 2:
        return None
    if len(shape) in (3, 4):
        if shape[-1] <= _MOST_CHANNELS:
            return len(shape) - 1
        if shape[0] <= _MOST_CHANNELS:
            return 0
        if len(shape) == 3:
            return None
    raise DataError(
        path,
        f"unsupported array shape {shape}",
        f"Allowed: 2D or 3D, with an optional first or last axis of at most {_MOST_CHANNELS} channels.",
    )
