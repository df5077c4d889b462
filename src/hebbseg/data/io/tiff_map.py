"""TIFF images too large for memory: mapped or decoded tile by tile, and written in tiles."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Image, RawMask, ReadPart, user_part
from hebbseg.data.io.limits import EXPORT_AGAIN, check_declared
from hebbseg.data.io.tiff import _axes, _has_opacity, _only_series, _palette, _resolution, _spacing_mm, _upright, opened
from hebbseg.data.io.tiff_structure import check_tile
from hebbseg.data.io.tiles import LARGEST_TILE, TiledArray
from hebbseg.errors import explaining

TILE = 512
_JPEG = (tifffile.COMPRESSION.JPEG, tifffile.COMPRESSION.OJPEG)
_WITH_TABLES = (6, 7, 34892, 33007)  # compressions whose tables are stored once for all tiles
_PALETTE = tifffile.PHOTOMETRIC.PALETTE
_MAPPED = (tifffile.PHOTOMETRIC.MINISBLACK, tifffile.PHOTOMETRIC.RGB)


def map_picture(path: Path, level: int = 0) -> Image | None:
    """Return a 2D image like `read_image`, but read from the file part by part; None if that is not possible.

    Uncompressed images are memory-mapped; of others, tiles and strips are decoded when they are read.
    """
    with opened(path) as file:
        series = _only_series(file, path, level)
        channel, spatial = _axes(series, path)
        page = series.keyframe
        if len(spatial) != 2 or len(channel) > 1 or page.dtype is None or page.dtype.kind not in "buif":
            return None
        if len(channel) + 2 != len(series.shape) or (page.photometric == _PALETTE and channel):
            return None
        opacity = bool(channel) and series.shape[channel[0]] > 1 and _has_opacity(series)
        geometry, spacing_mm = _resolution(file, level), _spacing_mm(file, 2, level)
        mapped = _mapped(path, series, [*channel, *spatial]) if level == 0 and page.photometric in _MAPPED else None
        palette = _palette(page) if page.photometric == _PALETTE else None
        array = mapped if mapped is not None else _tiled(path, series, opacity=opacity, palette=palette)
    if array is None:
        return None
    if mapped is not None and opacity:
        array = array[:-1]
    return Image(array=array, path=path, spacing_mm=spacing_mm, geometry=geometry)  # type: ignore[arg-type]


def map_labels(path: Path, level: int = 0) -> tuple[TiledArray, Callable[[np.ndarray], RawMask]] | None:
    """Return a 2D mask like `read_labels`, but tile by tile: its values (C, H, W), and what makes a `RawMask` of a part.

    None if the mask cannot be read in parts.
    """
    with opened(path) as file:
        series = _only_series(file, path, level)
        channel, spatial = _axes(series, path)
        page = series.keyframe
        if len(spatial) != 2 or len(channel) > 1 or len(channel) + 2 != len(series.shape):
            return None
        if page.dtype is None or page.dtype.kind not in "buif":
            return None
        array = _tiled(path, series, opacity=False, palette=None)
        palette = _palette(page) if page.photometric == _PALETTE else None
        lossy = page.compression in _JPEG

    def raw(part: np.ndarray) -> RawMask:
        if len(part) == 1:
            return RawMask(values=part[0], palette=palette, lossy=lossy)
        return RawMask.from_channels(np.moveaxis(part, 0, -1), path, lossy=lossy)

    return None if array is None else (array, raw)


def _mapped(path: Path, series: Any, order: list[int]) -> np.ndarray | None:
    """Return an uncompressed image (C, H, W), memory-mapped."""
    if series.dataoffset is None or len(series.levels) > 1:
        return None
    pixels = tifffile.memmap(path, mode="r")
    array = pixels.transpose(order).reshape(-1, *(series.shape[axis] for axis in order[-2:]))
    return array if np.shares_memory(array, pixels) else None


def _tiled(path: Path, series: Any, *, opacity: bool, palette: np.ndarray | None) -> TiledArray | None:
    """Return an image (C, H, W) whose tiles or strips are decoded when they are read."""
    page = series.keyframe
    pages = [series[number] for number in range(len(series))]
    if any(each is None for each in pages) or page.imagedepth != 1:
        return None
    height, width = page.imagelength, page.imagewidth
    tile = (page.tilelength, page.tilewidth) if page.is_tiled else (min(page.rowsperstrip, height), width)
    separate = page.planarconfig == tifffile.PLANARCONFIG.SEPARATE and page.samplesperpixel > 1
    planes, contiguous = (page.samplesperpixel, 1) if separate else (1, page.samplesperpixel)
    check_declared(path, (*series.shape,), bits=page.bitspersample, limited=False)
    check_declared(path, (*tile, contiguous), bits=page.bitspersample)
    if tile[0] * tile[1] * contiguous > LARGEST_TILE:
        return None
    across, down = -(-width // tile[1]), -(-height // tile[0])
    channels = len(pages) * planes * contiguous
    options = {"jpegtables": page.jpegtables, "jpegheader": page.jpegheader} if page.compression in _WITH_TABLES else {}
    tables = [(tuple(each.dataoffsets), tuple(each.databytecounts)) for each in pages]
    decode_segment, empty, dtype = page.decode, page.nodata, page.dtype
    source = path.open("rb")

    def decode(row: int, column: int) -> np.ndarray:
        rows, columns = min(tile[0], height - row * tile[0]), min(tile[1], width - column * tile[1])
        parts = []
        for (offsets, counts), plane in product(tables, range(planes)):
            number = (plane * down + row) * across + column
            there = number < min(len(offsets), len(counts))
            data = _segment(path, source, offsets[number], counts[number], (row, column)) if there else None
            decoded = None
            if data is not None:
                check_tile(path, page, data)
                with explaining(path, f"tile {row}, {column} (row, column) is damaged", f"{EXPORT_AGAIN}", error=DataError):
                    decoded = decode_segment(data, number, **options)[0]
            if decoded is None:
                parts.append(np.full((rows, columns, contiguous), empty, dtype))
            else:
                parts.append(decoded.reshape(*decoded.shape[-3:])[:rows, :columns])  # (1, h, w, s) → (h, w, s)
        pixels = np.moveaxis(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1), -1, 0)  # → (C, h, w)
        pixels = _upright(pixels[:-1] if opacity else pixels, page)
        if palette is not None:
            pixels = np.moveaxis(palette[pixels[0]], -1, 0)  # (h, w, 3) → (3, h, w)
        return np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder("="), copy=False))

    shape = (3 if palette is not None else channels - opacity, height, width)
    stored = np.dtype(np.uint8) if palette is not None or dtype == np.bool_ else dtype.newbyteorder("=")
    return TiledArray(shape=shape, dtype=stored, tile=tile, decode=decode)


def _segment(path: Path, source: Any, offset: int, count: int, place: tuple[int, int]) -> bytes | None:
    """Return the encoded bytes of a tile; None for tiles that are not stored, which are empty."""
    if not offset or not count:
        return None
    source.seek(offset)  # one thread at a time, see `TiledArray`
    data: bytes = source.read(count)
    if len(data) < count:
        raise DataError(
            path,
            f"truncated: tile {place[0]}, {place[1]} (row, column) has {len(data)} of {count} bytes",
            "Copy or export the file again.",
        )
    return data


def write_picture_in_tiles(path: Path, shape: tuple[int, int], read: ReadPart, like: Image) -> None:
    """Write an image in tiles from ``read``, (h, w) or (h, w, 3), with the resolution of ``like``.

    If ``like`` has smaller levels, these are written too: an OME-TIFF pyramid, each level by nearest neighbor.
    """
    first = read(slice(0, 1), slice(0, 1))
    colour = first.ndim == 3
    geometry = like.geometry or {"resolution": {}, "ome": None}
    smaller: list[tuple[int, int]] = geometry.get("pyramid", [])
    options: dict[str, Any] = {
        "photometric": "rgb" if colour else "minisblack",
        "tile": (TILE, TILE),
        "compression": "zlib",
        "dtype": first.dtype,
    }
    sizes = geometry["ome"] if geometry["ome"] is not None else _micrometers(like) if smaller else None
    metadata = None if sizes is None else {"axes": "YXS" if colour else "YX", **sizes}
    # A compressed mask is much smaller, but offsets must fit in the worst case.
    big = shape[0] * shape[1] * first[0, 0].nbytes > 2**31
    with replacing(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=big, ome=sizes is not None) as writer:
        for number, size in enumerate([shape, *smaller]):
            writer.write(
                _tiles(read, shape, size),
                shape=size + first.shape[2:],
                metadata=metadata if number == 0 else None,
                subifds=len(smaller) if number == 0 and smaller else None,
                subfiletype=1 if number else None,
                **options,
                **(geometry["resolution"] if number == 0 else {}),
            )


def _tiles(read: ReadPart, shape: tuple[int, int], size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yield the tiles of an image of this shape at another size, by nearest neighbor."""
    rows, columns = (((np.arange(n) + 0.5) * (full / n)).astype(int) for full, n in zip(shape, size, strict=True))
    for top in range(0, size[0], TILE):
        for left in range(0, size[1], TILE):
            down, across = rows[top : top + TILE], columns[left : left + TILE]
            yield read(slice(top, top + TILE), slice(left, left + TILE)) if size == shape else read(down, across)


def _micrometers(like: Image) -> dict[str, Any]:
    """Return the spacing of a 2D image as OME metadata."""
    if like.spacing_mm is None:
        return {}
    sizes = zip("YX", like.spacing_mm, strict=True)
    return {key: value for axis, step in sizes for key, value in _size(axis, step).items()}


def _size(axis: str, step_mm: float) -> dict[str, Any]:
    return {f"PhysicalSize{axis}": step_mm * 1000, f"PhysicalSize{axis}Unit": "µm"}


def write_mask_in_tiles(
    path: Path, shape: tuple[int, int], read: ReadPart, like: Image, classes: Sequence[ClassInfo] | None
) -> None:
    """Write a mask like `tiff.write_mask`, tile by tile."""
    write_picture_in_tiles(path, shape, lambda rows, columns: user_part(read(rows, columns), classes), like)
