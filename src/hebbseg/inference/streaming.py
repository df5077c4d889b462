"""Tiling of an image into windows, and blending of their predictions row by row."""

import math
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

    @property
    def band_height(self) -> int:
        """Number of rows that are incomplete at a time."""
        further_rows = math.ceil((self.batch - 1) / len(self.columns))  # of windows that one batch can reach
        return min(self.window[0] + further_rows * self.steps[0], self.size[0])

    def parts(self, most: int | None) -> list[slice]:
        """Return consecutive ranges along the second axis, so that a band of each has at most this many pixels.

        Ranges end where windows start, as windows that cross an end are predicted twice.
        """
        across, step = self.size[1], self.steps[1]
        length = across if most is None else most // (self.band_height * math.prod(self.size[2:]))
        length = across if length >= across else max(step, length // step * step)
        return [slice(start, min(start + length, across)) for start in range(0, across, length)]

    def columns_of(self, part: slice) -> list[tuple[slice, ...]]:
        """Return the `columns` whose windows overlap a range along the second axis."""
        return [c for c in self.columns if c[0].start < part.stop and c[0].stop > part.start]

    def weights(self) -> Tensor:
        return compute_importance_map(self.window, mode=self.blend, sigma_scale=0.125)


def stream(
    tiling: Tiling,
    image: ArrayLike,
    predictor: Callable[[Tensor], Tensor],
    prepare: Callable[[Tensor], Tensor] | None = None,
    progress: Callable[[int, int], None] | None = None,
    part: slice | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield blended predictions of consecutive bands along the first axis, each as soon as it is complete.

    Args:
        image: (C, *size), read window by window.
        predictor: maps windows (B, C, *window) to (B, K, *window).
        prepare: preprocesses a window; default: conversion to float32.
        progress: called with (windows done, total windows) after every batch.
        part: range along the second axis to which the bands are limited; default: all.

    Yields:
        (rows, predictions (K, n_rows, *size[1:])); together the bands cover the image.
    """
    part = part or slice(0, tiling.size[1])
    columns_of_part = tiling.columns_of(part)
    places = list(product(tiling.row_starts, columns_of_part))
    weights = tiling.weights()
    band: _Band | None = None
    # Batches continue across rows, as in MONAI: identical batches round identically.
    for first in range(0, len(places), tiling.batch):
        chunk = places[first : first + tiling.batch]
        windows = torch.stack([_read(image, start, tiling.window[0], columns, prepare) for start, columns in chunk])
        predictions = predictor(windows)
        if band is None:
            band = _Band(tiling, predictions.shape[1], part, columns_of_part)
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
    """Sums of weighted predictions and of weights for the incomplete rows, over all columns of the windows of a part."""

    def __init__(self, tiling: Tiling, n_classes: int, part: slice, columns: Sequence[tuple[slice, ...]]) -> None:
        further_rows = math.ceil((tiling.batch - 1) / len(columns))
        height = min(tiling.window[0] + further_rows * tiling.steps[0], tiling.size[0])
        self.start = 0
        self.left = min(c[0].start for c in columns)
        self.part = slice(part.start - self.left, part.stop - self.left)
        size = (height, max(c[0].stop for c in columns) - self.left, *tiling.size[2:])
        self.total = torch.zeros(n_classes, *size)
        self.weight = torch.zeros(size)

    def add(self, prediction: Tensor, weights: Tensor, start: int, columns: tuple[slice, ...]) -> None:
        rows = slice(start - self.start, start - self.start + weights.shape[0])
        columns = (slice(columns[0].start - self.left, columns[0].stop - self.left), *columns[1:])
        self.total[(slice(None), rows, *columns)] += prediction
        self.weight[(rows, *columns)] += weights

    def take(self, end: int) -> Tensor:
        """Return the means of the rows before ``end`` and remove these rows from the band."""
        n_rows, kept = end - self.start, self.total.shape[1] - (end - self.start)
        means = self.total[:, :n_rows, self.part] / self.weight[:n_rows, self.part]
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
    raw = np.array(image[(slice(None), slice(start, start + n_rows), *columns)], order="C")
    tensor = torch.from_numpy(raw.astype(raw.dtype.newbyteorder("="), copy=False))  # TIFF has either byte order
    return prepare(tensor) if prepare is not None else tensor.float()
