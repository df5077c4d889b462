"""NumPy (.npy, .npz) and HDF5 (.h5, .hdf5): arrays without geometry, axes as stored.

2D arrays have no channel axis. In 3D and 4D arrays, the channel axis is the last axis if its size is at most 4, else the
first axis if its size is at most 4; a 3D array without one is a volume. Npz and HDF5 files contain ``image`` and, optionally,
``label``.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Header, Image, RawMask, user_colours, user_values
from hebbseg.data.io.limits import EXPORT_AGAIN, SMALL_BYTES, check_declared
from hebbseg.errors import did_you_mean

IMAGE_KEYS = ("image", "img", "data")
LABEL_KEYS = ("label", "labels", "mask", "seg")
_MOST_CHANNELS = 4
_HDF5 = (".h5", ".hdf5")
_SMALL_CHUNK = 2**17  # compressed bytes; deflate makes at most 135 MB of them


def read_header(path: Path) -> Header:
    with _stored(path, IMAGE_KEYS) as stored:
        axis = _channel_axis(stored.shape, path)
        shape = tuple(size for a, size in enumerate(stored.shape) if a != axis)
        return Header(channels=1 if axis is None else stored.shape[axis], shape=shape, axes="stored")


def read_image(path: Path) -> Image:
    with _stored(path, IMAGE_KEYS) as stored:
        array = _numbers(stored, path)
    axis = _channel_axis(array.shape, path)
    array = array[None] if axis is None else np.moveaxis(array, axis, 0)  # → (C, *spatial)
    return Image(array=np.ascontiguousarray(array), path=path, axes="stored")


def read_labels(path: Path) -> RawMask:
    with _stored(path, LABEL_KEYS) as stored:
        values = _numbers(stored, path)
    axis = _channel_axis(values.shape, path)
    if axis is None:
        return RawMask(values=values, axes="stored")
    return RawMask.from_channels(np.moveaxis(values, axis, -1), path, axes="stored")  # (*spatial, C)


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    colours = user_colours(indices, classes)
    values = user_values(indices, classes) if colours is None else colours
    if path.suffix.lower() == ".npy":
        np.save(path, values)
    elif path.suffix.lower() == ".npz":
        np.savez_compressed(path, label=values)
    else:
        # In memory first: HDF5 reports a full disk only when the file is closed, where h5py ignores it.
        with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
            file.create_dataset("label", data=values, compression="gzip")
            file.flush()
            content = file.id.get_file_image()
        path.write_bytes(content)


def has_label(path: Path) -> bool:
    """Return whether an image file contains its mask; reads only the names of the arrays."""
    if path.suffix.lower() in _HDF5:
        with h5py.File(path, "r") as file:
            return any(file.get(key, getlink=True) is not None for key in LABEL_KEYS)
    if path.suffix.lower() == ".npz":
        with zipfile.ZipFile(path) as file:
            return any(f"{key}.npy" in file.namelist() for key in LABEL_KEYS)
    return False


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """An array in a file: its shape and type are known, and ``read`` returns its values."""

    shape: tuple[int, ...]
    dtype: np.dtype
    compressed: bool
    read: Callable[[], np.ndarray]


@contextmanager
def _stored(path: Path, keys: Sequence[str]) -> Iterator[_Stored]:
    """Yield the array of a file, not yet read."""
    if path.suffix.lower() == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        yield _Stored(shape=array.shape, dtype=array.dtype, compressed=False, read=lambda: np.array(array))
    elif path.suffix.lower() == ".npz":
        with zipfile.ZipFile(path) as file:
            names = [name.removesuffix(".npy") for name in file.namelist() if name.endswith(".npy")]
            member = f"{_key(path, names, keys)}.npy"
            with file.open(member) as start:
                shape, dtype = _npy_header(path, start)

            def read() -> np.ndarray:
                with file.open(member) as stream:
                    return np.lib.format.read_array(stream, allow_pickle=False)

            yield _Stored(shape=shape, dtype=dtype, compressed=True, read=read)
    else:
        with h5py.File(path, "r") as file:
            names = [name for name in file if not _is_inside(file, name) or isinstance(file[name], h5py.Dataset)]
            name = _key(path, names, keys)
            dataset = file[name] if _is_inside(file, name) else None
            if dataset is None or dataset.external or dataset.is_virtual:
                raise DataError(
                    path,
                    f"{name!r} is a link, or its values are in another file",
                    "Files must contain their arrays. Store the values themselves, for example with h5repack or h5py.",
                )
            yield _Stored(
                shape=dataset.shape or (), dtype=dataset.dtype, compressed=True, read=lambda: _read_hdf5(dataset, path)
            )


def _read_hdf5(dataset: Any, path: Path) -> np.ndarray:
    """Return the values; raises if a chunk would be decoded to more bytes than it can have."""
    if dataset.chunks is not None:
        chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
        if chunk > max(SMALL_BYTES, 4 * dataset.nbytes):
            raise DataError(path, f"chunks of {chunk} bytes for {dataset.nbytes} bytes of values", EXPORT_AGAIN)
        if dataset.compression == "gzip":
            packed: list[tuple[int, ...]] = []
            dataset.id.chunk_iter(lambda info: packed.append(info.chunk_offset) if info.size > _SMALL_CHUNK else None)
            for place in packed:
                skipped_filters, stored = dataset.id.read_direct_chunk(place)
                if not skipped_filters and len(zlib.decompressobj().decompress(stored, chunk + 1)) > chunk:
                    raise DataError(path, f"the chunk at {place} has more than its {chunk} bytes", EXPORT_AGAIN)
    values: np.ndarray = dataset[()]
    return values


def _is_inside(file: Any, name: str) -> bool:
    """Return whether an entry is stored in this file, and not a link that could point to any file."""
    return isinstance(file.get(name, getlink=True), h5py.HardLink)


def _npy_header(path: Path, stream: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        # numpy would read a header of up to 4 GB.
        length = stream.read(4)
        if int.from_bytes(length, "little") > 2**16:
            raise DataError(path, "header of more than 64 kB", "Store the array again with numpy.savez.")
        shape, _, dtype = np.lib.format.read_array_header_2_0(io.BytesIO(length + stream.read(2**16)))
    else:
        raise DataError(path, f"unsupported version {version} of numpy's format", "Store the array again with numpy.savez.")
    return shape, dtype


def _key(path: Path, names: list[str], keys: Sequence[str]) -> str:
    for key in keys:
        if key in names:
            return key
    if len(names) == 1 and names[0] not in (*IMAGE_KEYS, *LABEL_KEYS):
        return names[0]
    found = ", ".join(repr(name) for name in names) or "nothing"
    raise DataError(path, f"contains {found} but no {keys[0]!r}", f"Rename the array. {did_you_mean('', keys)}")


def _numbers(stored: _Stored, path: Path) -> np.ndarray:
    if stored.dtype.kind not in "buif":
        raise DataError(path, f"unsupported data type {stored.dtype}", "Store integers or floating-point numbers.")
    check_declared(path, stored.shape, bits=8 * stored.dtype.itemsize, compressed=stored.compressed)
    array = np.asarray(stored.read())
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
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
