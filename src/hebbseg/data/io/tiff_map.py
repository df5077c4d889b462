"""TIFF images too large for memory: memory-mapped input, tiled output."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.image_file import Image, user_colours, user_values
from hebbseg.data.io.tiff import _axes, _has_opacity, _only_series, _resolution, _spacing_mm, opened

ReadPart = Callable[[slice, slice], np.ndarray]  # rows, columns → that part of an image
TILE = 512
_PLAIN = (tifffile.PHOTOMETRIC.MINISBLACK, tifffile.PHOTOMETRIC.RGB)


def map_picture(path: Path) -> Image | None:
    """Return a 2D image like `read_image`, but memory-mapped; None unless it is an uncompressed grayscale or RGB image."""
    with opened(path) as file:
        series = _only_series(file, path)
        channel, spatial = _axes(series, path)
        page = series.keyframe
        if len(spatial) != 2 or len(channel) > 1 or page.photometric not in _PLAIN or page.dtype.kind not in "uif":
            return None
        if series.dataoffset is None or len(channel) + 2 != len(series.shape):
            return None
        opacity = bool(channel) and series.shape[channel[0]] > 1 and _has_opacity(series)
        geometry, spacing_mm = _resolution(file), _spacing_mm(file, 2)
    pixels = tifffile.memmap(path, mode="r")
    array = pixels.transpose([*channel, *spatial]).reshape(-1, *(series.shape[axis] for axis in spatial))
    if not np.shares_memory(array, pixels):
        return None
    return Image(array=array[:-1] if opacity else array, path=path, spacing_mm=spacing_mm, geometry=geometry)


def write_picture_in_tiles(path: Path, shape: tuple[int, int], read: ReadPart, like: Image) -> None:
    """Write an image in tiles from ``read``, (h, w) or (h, w, 3), with the resolution of ``like``."""

    def tiles() -> Iterator[np.ndarray]:
        for row in range(0, shape[0], TILE):
            for column in range(0, shape[1], TILE):
                yield read(slice(row, row + TILE), slice(column, column + TILE))

    first = read(slice(0, 1), slice(0, 1))
    colour = first.ndim == 3
    options: dict[str, Any] = {"photometric": "rgb" if colour else "minisblack", **like.geometry["resolution"]}
    if like.geometry["ome"] is not None:
        options |= {"ome": True, "metadata": {"axes": "YXS" if colour else "YX", **like.geometry["ome"]}}
    else:
        options["metadata"] = None
    with replacing(path) as temporary:
        tifffile.imwrite(
            temporary,
            tiles(),
            shape=shape + first.shape[2:],
            dtype=first.dtype,
            tile=(TILE, TILE),
            compression="zlib",
            # A compressed mask is much smaller, but offsets must fit in the worst case.
            bigtiff=shape[0] * shape[1] * first[0, 0].nbytes > 2**31,
            **options,
        )


def write_mask_in_tiles(path: Path, shape: tuple[int, int], read: ReadPart, like: Image, classes: Sequence[ClassInfo]) -> None:
    """Write a mask like `tiff.write_mask`, tile by tile."""

    def user_part(rows: slice, columns: slice) -> np.ndarray:
        indices = read(rows, columns)
        colours = user_colours(indices, classes)
        return user_values(indices, classes) if colours is None else colours

    write_picture_in_tiles(path, shape, user_part, like)
