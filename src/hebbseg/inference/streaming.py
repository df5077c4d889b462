"""Where windows lie on an image, how they are blended, and how to do so one row of windows at a time."""

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from monai.data.utils import compute_importance_map, dense_patch_slices
from torch import Tensor

from hebbseg.errors import HebbsegError, did_you_mean

Blend = Literal["gaussian", "constant"]


class ArrayLike(Protocol):
    """What lies on disk or in memory and is read and written by slices: numpy, memmap, h5py, zarr."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Overlapping windows that cover an image, in the places and the order of MONAI's sliding window.

    Args:
        size: of the image, without channels.
        window: one number per axis, none larger than the image.
        wished: the window that was asked for, perhaps larger than the image.
        overlap, blend, batch: as in `hebbseg.inference.sliding_window.predict_probabilities`.
    """

    size: tuple[int, ...]
    window: tuple[int, ...]
    wished: tuple[int, ...]
    overlap: float
    blend: Blend
    batch: int

    @classmethod
    def over(
        cls, size: tuple[int, ...], *, window: int | Sequence[int] | None, overlap: float, blend: Blend, batch: int
    ) -> "Tiling":
        """A tiling of an image from a user's wishes; the window is cut to the image, None takes the image whole."""
        wished = size if window is None else (window,) * len(size) if isinstance(window, int) else tuple(window)
        if len(wished) != len(size) or any(n < 1 for n in wished):
            raise HebbsegError(f"window is {window}; it is one positive number or {len(size)} of them, one per axis.")
        if not 0 <= overlap < 1:
            raise HebbsegError(f"overlap is {overlap}; it is a share of the window, at least 0 and less than 1.")
        if blend not in get_args(Blend):
            raise HebbsegError(f"Unknown blend {blend!r}. {did_you_mean(str(blend), get_args(Blend))}")
        if batch < 1:
            raise HebbsegError(f"batch is {batch}; at least one window is computed at once.")
        fitted = tuple(min(w, n) for w, n in zip(wished, size, strict=True))
        return cls(size=size, window=fitted, wished=wished, overlap=overlap, blend=blend, batch=batch)

    @property
    def is_whole(self) -> bool:
        return self.window == self.size

    @property
    def steps(self) -> tuple[int, ...]:
        """Pixels from one window to the next along each axis."""
        return tuple(w if w == n else max(int(w * (1 - self.overlap)), 1) for w, n in zip(self.window, self.size, strict=True))

    @cached_property
    def row_starts(self) -> list[int]:
        """Where the rows of windows begin along the first axis."""
        return [s[0].start for s in dense_patch_slices(self.size[:1], self.window[:1], self.steps[:1])]

    @cached_property
    def columns(self) -> list[tuple[slice, ...]]:
        """The places of the windows of a row along the other axes."""
        return dense_patch_slices(self.size[1:], self.window[1:], self.steps[1:])

    def weights(self) -> Tensor:
        return compute_importance_map(self.window, mode=self.blend, sigma_scale=0.125)


def stream(
    tiling: Tiling,
    image: ArrayLike,
    predictor: Callable[[Tensor], Tensor],
    prepare: Callable[[Tensor], Tensor] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Blended predictions of successive bands of the first axis, each given as soon as no further window touches it.

    Args:
        image: (C, *size), read window by window.
        predictor: from windows (B, C, *window) to (B, K, *window).
        prepare: from a window of the image to what the predictor sees; default: float32.
        progress: called with (windows done, windows in all) after every batch.

    Yields:
        (rows, predictions (K, n_rows, *size[1:])); the bands follow each other and cover the image.
    """
    places = list(product(tiling.row_starts, tiling.columns))
    weights = tiling.weights()
    band: _Band | None = None
    # Batches run on across the ends of rows, as MONAI's do: the same batches give the same roundings.
    for first in range(0, len(places), tiling.batch):
        chunk = places[first : first + tiling.batch]
        windows = torch.stack([_read(image, start, tiling.window[0], columns, prepare) for start, columns in chunk])
        predictions = predictor(windows)
        if band is None:
            band = _Band(tiling, predictions.shape[1])
        for prediction, (start, columns) in zip(predictions * weights, chunk, strict=True):
            band.add(prediction, weights, start, columns)
        done = first + len(chunk)
        finished = places[done][0] if done < len(places) else tiling.size[0]
        while band.start < finished:
            end = min(band.start + tiling.steps[0], finished)
            yield slice(band.start, end), band.take(end)
        if progress is not None:
            progress(done, len(places))


class _Band:
    """Sums of weighted predictions and of weights for the rows that windows still touch."""

    def __init__(self, tiling: Tiling, n_classes: int) -> None:
        further_rows = math.ceil((tiling.batch - 1) / len(tiling.columns))  # of windows that one batch may reach into
        height = min(tiling.window[0] + further_rows * tiling.steps[0], tiling.size[0])
        self.start = 0
        self.total = torch.zeros(n_classes, height, *tiling.size[1:])
        self.weight = torch.zeros(height, *tiling.size[1:])

    def add(self, prediction: Tensor, weights: Tensor, start: int, columns: tuple[slice, ...]) -> None:
        rows = slice(start - self.start, start - self.start + weights.shape[0])
        self.total[(slice(None), rows, *columns)] += prediction
        self.weight[(rows, *columns)] += weights

    def take(self, end: int) -> Tensor:
        """The means of the rows before ``end``, which leave the band."""
        n_rows, kept = end - self.start, self.total.shape[1] - (end - self.start)
        means = self.total[:, :n_rows] / self.weight[:n_rows]
        for sums, axis in ((self.total, 1), (self.weight, 0)):
            # In blocks that do not overlap: a copy of the whole band would double the memory.
            for first in range(0, kept, n_rows):
                length = min(n_rows, kept - first)
                sums.narrow(axis, first, length).copy_(sums.narrow(axis, first + n_rows, length))
            sums.narrow(axis, kept, n_rows).zero_()
        self.start = end
        return means


def _read(
    image: ArrayLike, start: int, n_rows: int, columns: tuple[slice, ...], prepare: Callable[[Tensor], Tensor] | None
) -> Tensor:
    raw = np.array(image[(slice(None), slice(start, start + n_rows), *columns)])
    tensor = torch.from_numpy(raw.astype(raw.dtype.newbyteorder("="), copy=False))  # TIFF may store the other byte order
    return prepare(tensor) if prepare is not None else tensor.float()


def release_pages(array: Any) -> None:
    """Lets go of what a memory-mapped file has in memory; else the whole file would end up there, page by page.

    Nothing is lost: the system keeps what was written and is free to put it on disk. Other kinds of array, and mapped
    files whose changes are private to the process, are left alone.
    """
    if not isinstance(array, np.memmap) or array.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)
