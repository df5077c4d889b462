"""TIFF images too large for memory: mapped instead of read, their masks written tile by tile."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.image_file import Image, user_colours, user_values
from hebbseg.data.io.tiff import _axes, _has_opacity, _only_series, _resolution, _spacing_mm

ReadPart = Callable[[slice, slice], np.ndarray]  # rows, columns → that part of a picture
TILE = 512
_PLAIN = (tifffile.PHOTOMETRIC.MINISBLACK, tifffile.PHOTOMETRIC.RGB)


def map_picture(path: Path) -> Image | None:
    """The 2D image at ``path`` as `read_image` gives it, but mapped from the file; None if its pixels do not lie there plainly.

    They do in uncompressed files of grey or colour; not in compressed ones, in palettes, and where white is zero.
    """
    with tifffile.TiffFile(path) as file:
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
    """Writes what ``read`` gives part by part, (h, w) or (h, w, 3), row after row, with the resolution of ``like``."""

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
            # Compressed, a mask is far smaller than this; but offsets must fit whatever comes.
            bigtiff=shape[0] * shape[1] * first[0, 0].nbytes > 2**31,
            **options,
        )


def write_mask_in_tiles(path: Path, shape: tuple[int, int], read: ReadPart, like: Image, classes: Sequence[ClassInfo]) -> None:
    """As `tiff.write_mask`, of class indices that are never in memory as a whole."""

    def user_part(rows: slice, columns: slice) -> np.ndarray:
        indices = read(rows, columns)
        colours = user_colours(indices, classes)
        return user_values(indices, classes) if colours is None else colours

    write_picture_in_tiles(path, shape, user_part, like)
