"""Patches of images too large for memory, as training reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hebbseg.data.cases import IGNORE, Case
from hebbseg.data.io.tiles import sampled
from hebbseg.data.large_files import LargeFiles
from hebbseg.data.patches import POINTS_PER_CLASS
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources.files import FileSource

UNIFORM = 0.08  # standard deviation of a patch of background, relative to the range of the image
EXTREME = 0.2  # distance of its mean from the brightest or darkest pixels, relative to that range


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Normalization of an image, and the darkest and brightest values of the mean over its channels."""

    prepare: Callable[[np.ndarray], Tensor]
    low: float
    high: float


class LargeCases(LargeFiles):
    """Normalized patches of the images and masks of large cases.

    Args:
        source: the data set.
        preprocessing: normalization; intensity statistics are those of sampled tiles. ``size`` must be None.
        cases: the large cases.
    """

    def __init__(self, source: FileSource, preprocessing: Preprocessing, cases: Sequence[Case]) -> None:
        super().__init__(source, cases)
        self.preprocessing = preprocessing
        self._facts: dict[str, _Facts] = {}
        self._points: dict[str, tuple[list[Tensor], Tensor | None]] = {}
        self._last: tuple[tuple[Any, ...], np.ndarray] | None = None

    def image(self, name: str, start: Sequence[int], patch: Sequence[int]) -> Tensor:
        """Return a patch (C, *patch) like that of a preprocessed image, with zeros beyond the image."""
        values = self._raw(name, start, patch)
        prepared = self.facts(name).prepare(values)
        return _padded(prepared, start, patch, self.shape(name), 0)

    def mask(self, name: str, start: Sequence[int], patch: Sequence[int], fill: int) -> Tensor:
        """Return a patch of the class indices (*patch) uint8, with ``fill`` beyond the mask."""
        shape = self.shape(name)
        rows, columns = (_inside(*each) for each in zip(start, patch, shape, strict=True))
        part = torch.from_numpy(np.ascontiguousarray(self.mask_part(self.cases[name], rows, columns)))
        return _padded(part[None], start, patch, shape, fill)[0]

    def is_background(self, name: str, start: Sequence[int], patch: Sequence[int]) -> bool:
        """Return whether a patch is nearly uniform, and nearly as bright or as dark as the image gets."""
        facts = self.facts(name)
        brightness = self._raw(name, start, patch).mean(axis=0, dtype=np.float32)
        extent, mean = facts.high - facts.low, float(brightness.mean())
        extreme = min(abs(facts.high - mean), abs(mean - facts.low)) < EXTREME * extent
        return extent <= 0 or (extreme and float(brightness.std()) < UNIFORM * extent)

    def points(self, name: str) -> tuple[list[Tensor], Tensor | None]:
        """Return sampled positions of each foreground class, and of the annotated pixels if some are not annotated."""
        if name not in self._points:
            classes: dict[int, _Thinned] = {}
            annotated, partial = _Thinned(), False
            for top, band in self.mask_bands(self.cases[name]):
                for index in np.unique(band).tolist():
                    if index not in (0, IGNORE):
                        classes.setdefault(index, _Thinned()).add(band == index, top)
                partial |= bool((band == IGNORE).any())
                annotated.add(band != IGNORE, top)
            found = [classes[index].positions() for index in sorted(classes)]
            self._points[name] = found, annotated.positions() if partial else None
        return self._points[name]

    def facts(self, name: str) -> _Facts:
        if name not in self._facts:
            sample = self.source.with_common_channels(sampled(self.array(self.cases[name])), self.cases[name])
            brightness = sample[:, :, 0].mean(axis=0, dtype=np.float32)  # (C, n, 1) → (n)
            low, high = np.percentile(brightness[np.isfinite(brightness)], (0.5, 99.5)) if brightness.size else (0.0, 0.0)
            prepare = self.preprocessing.of_parts(sample)
            self._facts[name] = _Facts(prepare=prepare, low=float(low), high=float(high))
        return self._facts[name]

    def _raw(self, name: str, start: Sequence[int], patch: Sequence[int]) -> np.ndarray:
        """Return the values of a patch as far as it lies inside the image; the last one is kept."""
        key = (name, *start, *patch)
        last = self._last
        if last is None or last[0] != key:
            rows, columns = (_inside(*each) for each in zip(start, patch, self.shape(name), strict=True))
            case = self.cases[name]
            last = key, self.source.with_common_channels(np.array(self.array(case)[:, rows, columns]), case)
            self._last = last
        return last[1]


class _Thinned:
    """Evenly spaced positions of pixels that come band by band: every k-th, where k doubles as their number grows."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        self._seen = 0
        self._stride = 1

    def add(self, area: np.ndarray, top: int) -> None:
        """Add the pixels of an area (h, W) whose first row is ``top``."""
        places = np.flatnonzero(area)
        chosen = places[-self._seen % self._stride :: self._stride]
        self._kept.append(np.stack([top + chosen // area.shape[1], chosen % area.shape[1]], axis=-1))
        self._seen += len(places)
        while sum(map(len, self._kept)) > 2 * POINTS_PER_CLASS:
            self._kept = [np.concatenate(self._kept)[::2]]
            self._stride *= 2

    def positions(self) -> Tensor:
        return torch.from_numpy(np.concatenate(self._kept))


def _inside(start: int, length: int, size: int) -> slice:
    return slice(max(0, start), min(size, start + length))


def _padded(part: Tensor, start: Sequence[int], patch: Sequence[int], shape: Sequence[int], fill: int) -> Tensor:
    """Return (C, *patch) with ``part``, what lies inside the image, at its place."""
    if tuple(part.shape[1:]) == tuple(patch):
        return part
    whole = part.new_full((len(part), *patch), fill)
    top, left = (max(0, -begin) for begin in start)
    whole[:, top : top + part.shape[1], left : left + part.shape[2]] = part
    return whole
