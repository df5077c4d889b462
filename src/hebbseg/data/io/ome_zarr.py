"""OME-Zarr images, 2D, of versions 0.4 (Zarr 2) and 0.5 (Zarr 3): folders with one array per level of a pyramid.

Needs the extra ``zarr``. The axis ``c`` has the channels; ``t`` and ``z`` must have length one.
"""

import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.atomic_files import WRITING, owner
from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import (
    Header,
    Image,
    Level,
    MappedLabels,
    RawMask,
    ReadPart,
    checked_level,
    user_part,
)
from hebbseg.data.io.limits import EXPORT_AGAIN, SMALL_BYTES, check_declared
from hebbseg.data.io.tiles import LARGEST_TILE, TiledArray, part_of
from hebbseg.data.io.zarr_store import MOST_LEVELS, open_group, stored_bytes
from hebbseg.errors import FileError, HebbsegError, explaining

TILE = 512
_MM_PER = {"meter": 1000.0, "centimeter": 10.0, "millimeter": 1.0, "micrometer": 1e-3, "nanometer": 1e-6}


@dataclass(frozen=True, kw_only=True)
class _Pyramid:
    """The arrays of the levels, their axes ("cyx"), and the spacing of (y, x) at each level, None without a unit."""

    arrays: tuple[Any, ...]
    axes: str
    spacings: tuple[tuple[float, float] | None, ...]
    version: int  # of Zarr

    def size(self, level: int) -> tuple[int, int]:
        shape = self.arrays[level].shape
        return int(shape[self.axes.index("y")]), int(shape[self.axes.index("x")])

    def channels(self) -> int:
        return int(self.arrays[0].shape[self.axes.index("c")]) if "c" in self.axes else 1


def levels(path: Path) -> list[Level]:
    """Return the size and spacing of each level of the pyramid."""
    found = _opened(path)
    return [Level(shape=found.size(number), spacing_mm=found.spacings[number]) for number in range(len(found.arrays))]


def read_header(path: Path, level: int = 0) -> Header:
    found = _opened(path, level)
    return Header(channels=found.channels(), shape=found.size(level), spacing_mm=found.spacings[level])


def read_image(path: Path, level: int = 0) -> Image:
    found = _opened(path, level)
    check_declared(path, found.arrays[level].shape, bits=0)
    array = _tiled(path, found, level)[:]
    return Image(array=array, path=path, spacing_mm=found.spacings[level], geometry=_geometry(found, level))


def read_labels(path: Path, level: int = 0) -> RawMask:
    found = _opened(path, level)
    check_declared(path, found.arrays[level].shape, bits=0)
    return RawMask.from_channels(np.moveaxis(_tiled(path, found, level)[:], 0, -1), path)  # (C, H, W) → (H, W, C)


def map_picture(path: Path, level: int = 0) -> Image | None:
    """Return the image like `read_image`, but read chunk by chunk."""
    found = _opened(path, level)
    array: Any = _tiled(path, found, level)
    return Image(array=array, path=path, spacing_mm=found.spacings[level], geometry=_geometry(found, level))


def map_labels(path: Path, level: int = 0) -> MappedLabels | None:
    """Return the mask like `read_labels`, but chunk by chunk."""
    array = _tiled(path, _opened(path, level), level)
    return array, lambda part: RawMask.from_channels(np.moveaxis(part, 0, -1), path)  # (C, h, w) → (h, w, C)


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    write_mask_in_tiles(path, indices.shape[:2], partial(part_of, indices), like, classes)


def write_mask_in_tiles(
    path: Path, shape: tuple[int, int], read: ReadPart, like: Image, classes: Sequence[ClassInfo] | None
) -> None:
    """Write a mask as a pyramid with the levels, spacing and version of its image; smaller levels by nearest neighbor."""
    zarr = _zarr()
    first = user_part(read(slice(0, 1), slice(0, 1)), classes)
    sizes = [shape, *like.geometry["pyramid"]]
    temporary = path.with_name(f"{WRITING}{owner()}-{path.name}")
    with explaining(path, "could not be written", "Free disk space or choose another folder.", error=FileError):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            version = like.geometry["version"]
            group = zarr.open_group(temporary, mode="w", zarr_format=version)
            group.attrs.update(_metadata(sizes, like, colour=first.ndim == 3))
            for number, size in enumerate(sizes):
                _write_level(group, str(number), read, shape, size, classes, first)
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():  # an empty file that reserved the name
                path.unlink()
            temporary.rename(path)
        finally:
            with suppress(OSError):
                shutil.rmtree(temporary)


def _write_level(
    group: Any,
    name: str,
    read: ReadPart,
    shape: tuple[int, int],
    size: tuple[int, int],
    classes: Sequence[ClassInfo] | None,
    first: np.ndarray,
) -> None:
    colours = first.shape[2:]
    chunks = (*colours, *(min(TILE, n) for n in size))
    array = group.create_array(name, shape=(*colours, *size), chunks=chunks, dtype=first.dtype)
    rows, columns = (((np.arange(n) + 0.5) * (full / n)).astype(int) for full, n in zip(shape, size, strict=True))
    for top in range(0, size[0], TILE):
        for left in range(0, size[1], TILE):
            down, across = slice(top, top + TILE), slice(left, left + TILE)
            part = read(down, across) if size == shape else read(rows[down], columns[across])
            values = user_part(part, classes)
            array[..., down, across] = np.moveaxis(values, -1, 0) if colours else values  # (h, w, 3) → (3, h, w)


def _metadata(sizes: Sequence[tuple[int, int]], like: Image, *, colour: bool) -> dict[str, Any]:
    """Return the attributes of the group: OME-Zarr 0.4 for Zarr 2, else 0.5."""
    unit = {} if like.spacing_mm is None else {"unit": "micrometer"}
    step = (1.0, 1.0) if like.spacing_mm is None else tuple(1000 * each for each in like.spacing_mm)
    axes: list[dict[str, str]] = [{"name": name, "type": "space", **unit} for name in "yx"]
    datasets = []
    for number, size in enumerate(sizes):
        scale = [s * full / n for s, full, n in zip(step, sizes[0], size, strict=True)]
        moved = [0.5 * (fine - s) for fine, s in zip(scale, step, strict=True)]  # pixels are referred to by their centers
        placed: list[dict[str, Any]] = [{"type": "scale", "scale": [*([1.0] if colour else []), *scale]}]
        if number:
            placed.append({"type": "translation", "translation": [*([0.0] if colour else []), *moved]})
        datasets.append({"path": str(number), "coordinateTransformations": placed})
    if colour:
        axes = [{"name": "c", "type": "channel"}, *axes]
    entry: dict[str, Any] = {"name": like.path.name, "axes": axes, "datasets": datasets}
    if like.geometry["version"] == 2:
        return {"multiscales": [{"version": "0.4", **entry}]}
    return {"ome": {"version": "0.5", "multiscales": [entry]}}


def _geometry(found: _Pyramid, level: int) -> dict[str, Any]:
    smaller = [found.size(number) for number in range(level + 1, len(found.arrays))]
    return {"pyramid": smaller, "version": found.version}


def _opened(path: Path, level: int = 0) -> _Pyramid:
    _zarr()
    group = open_group(path)
    attributes = dict(group.attrs)
    ome = attributes.get("ome", attributes)
    scales = ome.get("multiscales") if isinstance(ome, dict) else None
    if not scales:
        raise DataError(path, "a Zarr group without OME metadata (multiscales)", "Export the image as OME-Zarr.")
    entry = scales[0]
    if not 1 <= len(entry["datasets"]) <= MOST_LEVELS:
        raise DataError(path, f"{len(entry['datasets'])} levels", f"Allowed: 1 to {MOST_LEVELS}. {EXPORT_AGAIN}")
    arrays = tuple(group[dataset["path"]] for dataset in entry["datasets"])
    named = [axis["name"] if isinstance(axis, dict) else axis for axis in entry.get("axes", "tczyx"[-arrays[0].ndim :])]
    axes = "".join(str(name).lower() for name in named)
    for array in arrays:
        extra = [size for name, size in zip(axes, array.shape, strict=True) if name not in "cyx" and size != 1]
        if extra or "y" not in axes or "x" not in axes or min(array.shape) < 1 or array.dtype.kind not in "buif":
            raise DataError(
                path,
                f"axes {axes} of sizes {array.shape} and type {array.dtype}",
                "Only 2D images of numbers are supported: y, x and optionally c. Export one plane as OME-Zarr or OME-TIFF.",
            )
    found = _Pyramid(arrays=arrays, axes=axes, spacings=_spacings(entry, axes), version=int(group.metadata.zarr_format))
    checked_level(path, level, [found.size(number) for number in range(len(arrays))])
    chosen = arrays[level]
    if math.prod(chosen.shape) * chosen.dtype.itemsize > SMALL_BYTES:
        stored = stored_bytes(path, entry["datasets"][level]["path"])
        check_declared(path, chosen.shape, bits=8 * chosen.dtype.itemsize, file_bytes=stored, limited=False)
    return found


def _spacings(entry: dict[str, Any], axes: str) -> tuple[tuple[float, float] | None, ...]:
    units = {axis["name"].lower(): axis.get("unit") for axis in entry.get("axes", []) if isinstance(axis, dict)}
    millimeters = [_MM_PER.get(units.get(name) or "") for name in "yx"]
    found: list[tuple[float, float] | None] = []
    for dataset in entry["datasets"]:
        scale = np.ones(len(axes))
        for transform in (*dataset.get("coordinateTransformations", ()), *entry.get("coordinateTransformations", ())):
            if transform.get("type") == "scale":
                scale = scale * np.asarray(transform["scale"], dtype=float)
        step = [float(scale[axes.index(name)]) * (mm or math.nan) for name, mm in zip("yx", millimeters, strict=True)]
        found.append(None if any(map(math.isnan, step)) else (step[0], step[1]))
    return tuple(found)


def _tiled(path: Path, found: _Pyramid, level: int) -> TiledArray:
    """Return a level (C, H, W) whose chunks are decoded when they are read."""
    array, axes, channels = found.arrays[level], found.axes, found.channels()
    height, width = found.size(level)
    tile = (int(array.chunks[axes.index("y")]), int(array.chunks[axes.index("x")]))
    tile = (min(tile[0], height), min(tile[1], width))
    if math.prod(tile) * channels > LARGEST_TILE:
        raise DataError(
            path,
            f"chunks of {tile[0]}×{tile[1]} pixels",
            f"Store it in chunks of at most {LARGEST_TILE} values, such as 512×512.",
        )

    def decode(row: int, column: int) -> np.ndarray:
        places = {
            "y": slice(row * tile[0], min((row + 1) * tile[0], height)),
            "x": slice(column * tile[1], min((column + 1) * tile[1], width)),
            "c": slice(None),
        }
        with explaining(path, f"chunk {row}, {column} (row, column) is damaged", EXPORT_AGAIN, error=DataError):
            part = np.asarray(array[tuple(places.get(name, 0) for name in axes)])
        kept = "".join(name for name in axes if name in "cyx")
        part = part.transpose([kept.index(name) for name in ("cyx" if "c" in kept else "yx")])
        part = part if "c" in kept else part[None]
        return part.astype(np.uint8) * 255 if part.dtype == np.bool_ else part

    dtype = np.dtype(np.uint8) if array.dtype == np.bool_ else np.dtype(array.dtype).newbyteorder("=")
    return TiledArray(shape=(channels, height, width), dtype=dtype, tile=tile, decode=decode)


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise HebbsegError("OME-Zarr images need the extra zarr. Install it: pip install 'hebbseg[zarr]'") from error
    return zarr
