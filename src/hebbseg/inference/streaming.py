"""Tiling of an image into windows, and blending of their predictions row by row."""

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
    """An array on disk or in memory that is read and written by slices: numpy, memmap, h5py, zarr."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Overlapping windows that cover an image, at the positions and in the order of MONAI's sliding window.

    Args:
        size: spatial size of the image.
        window: one number per axis, none larger than the image.
        requested: the requested window, which may be larger than the image.
        overlap, blend, batch: as in `hebbseg.inference.sliding_window.predict_probabilities`.
    """

    size: tuple[int, ...]
    window: tuple[int, ...]
    requested: tuple[int, ...]
    overlap: float
    blend: Blend
    batch: int

    @classmethod
    def over(
        cls, size: tuple[int, ...], *, window: int | Sequence[int] | None, overlap: float, blend: Blend, batch: int
    ) -> "Tiling":
        """Validate the arguments and crop the window to the image; None is the whole image."""
        requested = size if window is None else (window,) * len(size) if isinstance(window, int) else tuple(window)
        if len(requested) != len(size) or any(n < 1 for n in requested):
            raise HebbsegError(f"window is {window}; expected one positive number or {len(size)}, one per axis.")
        if not 0 <= overlap < 1:
            raise HebbsegError(f"overlap is {overlap}; expected a fraction of the window, 0 ≤ overlap < 1.")
        if blend not in get_args(Blend):
            raise HebbsegError(f"Unknown blend {blend!r}. {did_you_mean(str(blend), get_args(Blend))}")
        if batch < 1:
            raise HebbsegError(f"batch is {batch}; expected at least 1.")
        fitted = tuple(min(w, n) for w, n in zip(requested, size, strict=True))
        return cls(size=size, window=fitted, requested=requested, overlap=overlap, blend=blend, batch=batch)

    @property
    def steps(self) -> tuple[int, ...]:
        """Pixels from one window to the next along each axis."""
        return tuple(w if w == n else max(int(w * (1 - self.overlap)), 1) for w, n in zip(self.window, self.size, strict=True))

    @cached_property
    def row_starts(self) -> list[int]:
        """Starts of the rows of windows along the first axis."""
        return [s[0].start for s in dense_patch_slices(self.size[:1], self.window[:1], self.steps[:1])]

    @cached_property
    def columns(self) -> list[tuple[slice, ...]]:
        """Positions of a row's windows along the other axes."""
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
    """Yield blended predictions of consecutive bands along the first axis, each as soon as it is complete.

    Args:
        image: (C, *size), read window by window.
        predictor: maps windows (B, C, *window) to (B, K, *window).
        prepare: preprocesses a window; default: conversion to float32.
        progress: called with (windows done, total windows) after every batch.

    Yields:
        (rows, predictions (K, n_rows, *size[1:])); together the bands cover the image.
    """
    places = list(product(tiling.row_starts, tiling.columns))
    weights = tiling.weights()
    band: _Band | None = None
    # Batches continue across rows, as in MONAI: identical batches round identically.
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
    """Sums of weighted predictions and of weights for the incomplete rows."""

    def __init__(self, tiling: Tiling, n_classes: int) -> None:
        further_rows = math.ceil((tiling.batch - 1) / len(tiling.columns))  # of windows that one batch can reach
        height = min(tiling.window[0] + further_rows * tiling.steps[0], tiling.size[0])
        self.start = 0
        self.total = torch.zeros(n_classes, height, *tiling.size[1:])
        self.weight = torch.zeros(height, *tiling.size[1:])

    def add(self, prediction: Tensor, weights: Tensor, start: int, columns: tuple[slice, ...]) -> None:
        rows = slice(start - self.start, start - self.start + weights.shape[0])
        self.total[(slice(None), rows, *columns)] += prediction
        self.weight[(rows, *columns)] += weights

    def take(self, end: int) -> Tensor:
        """Return the means of the rows before ``end`` and remove these rows from the band."""
        n_rows, kept = end - self.start, self.total.shape[1] - (end - self.start)
        means = self.total[:, :n_rows] / self.weight[:n_rows]
        for sums, axis in ((self.total, 1), (self.weight, 0)):
            # In disjoint blocks: copying the whole band would double the memory.
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
    tensor = torch.from_numpy(raw.astype(raw.dtype.newbyteorder("="), copy=False))  # TIFF has either byte order
    return prepare(tensor) if prepare is not None else tensor.float()


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
