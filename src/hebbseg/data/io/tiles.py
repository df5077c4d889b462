"""Images on disk that are read in parts: tile by tile, such as compressed TIFFs and Zarr arrays, or memory-mapped."""

import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from hebbseg.data.io.image_file import Header, Place

KEPT_BYTES = 2**27  # of decoded tiles, at most
KEPT_ROWS = 3  # rows of tiles: a window, and the next ones of its batch, overlap no more unless they are larger than tiles
LARGE_PIXELS = 4096 * 4096  # larger images are read in parts
LARGE_VOXELS = 2**26  # of a volume: 406³
BAND_PIXELS = 2**22  # of a mask that are read at a time
TILE = 512  # of arrays that have no tiles
LARGEST_TILE = 2**25  # values; larger ones are not decoded in part


class TiledArray:
    """An array (C, H, W) of which every access decodes the tiles it touches; the tiles used last are kept.

    Supports what `hebbseg.inference.streaming.ArrayLike` needs: ``array[channels, rows, columns]`` with slices. Safe with
    several threads.

    Args:
        shape: (C, H, W).
        dtype: type of the decoded values.
        tile: height and width of the tiles; those at the lower and right edge may be smaller.
        decode: returns the tile of a row and column of tiles, (C, h, w).
        kept_bytes: memory limit of the decoded tiles that are kept; default: `KEPT_ROWS` rows, at most `KEPT_BYTES`.
    """

    def __init__(
        self,
        *,
        shape: tuple[int, int, int],
        dtype: np.dtype,
        tile: tuple[int, int],
        decode: Callable[[int, int], np.ndarray],
        kept_bytes: int | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.tile = tile
        of_rows = KEPT_ROWS * shape[0] * tile[0] * shape[2] * dtype.itemsize
        self.kept_bytes = min(of_rows, KEPT_BYTES) if kept_bytes is None else kept_bytes
        self._decode = decode
        self._kept: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        channels, rows, columns = self._slices(index)
        (top, bottom, down), (left, right, across) = rows.indices(self.shape[1]), columns.indices(self.shape[2])
        picked = len(range(*channels.indices(self.shape[0])))
        out = np.empty((picked, len(range(top, bottom, down)), len(range(left, right, across))), self.dtype)
        height, width = self.tile
        for row in range(top // height, -(-bottom // height) if out.size else 0):
            for column in range(left // width, -(-right // width)):
                inside, into = _overlap(row * height, height, top, bottom, down)
                within, onto = _overlap(column * width, width, left, right, across)
                if into.stop > into.start and onto.stop > onto.start:
                    out[:, into, onto] = self._tile(row, column)[channels, inside, within]
        return out

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("TiledArray is read-only.")

    def _slices(self, index: Any) -> tuple[slice, slice, slice]:
        parts = index if isinstance(index, tuple) else (index,)
        if Ellipsis in parts:
            place = parts.index(Ellipsis)
            parts = (*parts[:place], *[slice(None)] * (4 - len(parts)), *parts[place + 1 :])
        parts = (*parts, *[slice(None)] * (3 - len(parts)))
        if len(parts) != 3 or not all(isinstance(part, slice) and (part.step or 1) > 0 for part in parts):
            raise TypeError(f"TiledArray is read by slices with positive steps, not {index!r}.")
        return parts

    def _tile(self, row: int, column: int) -> np.ndarray:
        with self._lock:
            kept = self._kept.get((row, column))
            if kept is not None:
                self._kept.move_to_end((row, column))
                return kept
            tile = self._decode(row, column)
            self._kept[row, column] = tile
            self._used += tile.nbytes
            while self._used > self.kept_bytes and len(self._kept) > 1:
                self._used -= self._kept.popitem(last=False)[1].nbytes
            return tile


def _overlap(origin: int, length: int, start: int, stop: int, step: int) -> tuple[slice, slice]:
    """Return where the positions start, start + step, … < stop lie in the interval [origin, origin + length).

    The first slice is relative to the interval, the second one counts the positions.
    """
    first = max(0, -(-(origin - start) // step))  # number of the first position in the interval
    last = max(first, -(-(min(stop, origin + length) - start) // step))
    begin = start + first * step - origin
    return slice(begin, begin + (last - first) * step, step), slice(first, last)


def is_large_size(header: Header) -> bool:
    return prod(header.shape) > (LARGE_PIXELS if len(header.shape) == 2 else LARGE_VOXELS)


def bands(array: Any) -> Iterator[slice]:
    """Yield ranges of rows of an array (C, H, W) with at most about `BAND_PIXELS` pixels."""
    height, width = array.shape[1:]
    step = max(1, BAND_PIXELS // width)
    if isinstance(array, TiledArray):
        step = min(array.tile[0], step) if step < array.tile[0] else step // array.tile[0] * array.tile[0]
    for top in range(0, height, step):
        yield slice(top, min(top + step, height))


def part_of(array: np.ndarray, rows: Place, columns: Place) -> np.ndarray:
    """Return a copy of a part of an array (H, W)."""
    if isinstance(rows, slice) or isinstance(columns, slice):
        return np.array(array[rows, columns])
    return np.array(array[np.ix_(rows, columns)])


def sampled(array: Any, tiles: int = 64, pixels: int = 2**20) -> np.ndarray:
    """Return pixels (C, n, 1) of an array (C, H, W), from tiles spread evenly over it: about ``pixels``, at most all.

    Decoding every tile of a large image would take long.
    """
    height, width = array.shape[1:]
    side = array.tile if isinstance(array, TiledArray) else (TILE, TILE)
    grid = [np.arange(-(-n // t)) for n, t in zip((height, width), side, strict=True)]
    most = int(tiles**0.5)
    grid = [each if len(each) <= most else np.linspace(0, len(each) - 1, most).round().astype(int) for each in grid]
    step = max(1, round((min(height * width, len(grid[0]) * len(grid[1]) * side[0] * side[1]) / pixels) ** 0.5))
    parts = []
    for row in grid[0]:
        for column in grid[1]:
            rows, columns = (slice(i * t, (i + 1) * t, step) for i, t in zip((row, column), side, strict=True))
            parts.append(np.array(array[:, rows, columns]).reshape(array.shape[0], -1))
        release_pages(array)
    whole = np.concatenate(parts, axis=1)[..., None]
    return whole.astype(whole.dtype.newbyteorder("="), copy=False)


def subsampled(array: np.ndarray, step: int, dims: int = 2) -> np.ndarray:
    """Return every ``step``-th pixel of an array on disk (…, *S) along each axis, read in bands to save memory."""
    band = step * max(1, TILE // step)
    parts = []
    for row in range(0, array.shape[-dims], band):
        place: Any = (..., slice(row, row + band, step), *[slice(None, None, step)] * (dims - 1))
        parts.append(np.array(array[place]))
        release_pages(array)
    whole = np.concatenate(parts, axis=-dims)
    return whole.astype(whole.dtype.newbyteorder("="), copy=False)


def release_pages(array: Any) -> None:
    """Release the memory of a memory-mapped file, which would otherwise grow to the size of the file.

    Written data are kept. Other arrays, and copy-on-write maps, are ignored.
    """
    if not isinstance(array, np.memmap) or array.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)
