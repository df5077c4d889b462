"""From an image as its file has it to the array that is kept in memory, and from there to what a network sees."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.data.cases import Source
from hebbseg.errors import HebbsegError, did_you_mean

NORMALIZATIONS = ("unit", "zscore")
SIZE_2D = (128, 128)
RARE_PERCENT = 0.5


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What is done to every image once, when it is first read. Part of a trained model: prediction repeats it.

    Args:
        size: pictures and volumes are resized to this (images anti-aliased, masks by nearest neighbour); None keeps
            each at its own size.
        normalize: ``"unit"`` divides whole numbers by the largest their type can hold (bytes by 255) and brings
            floating point to about 0 … 1 by its percentiles; ``"zscore"`` gives each channel of each image mean 0 and
            variance 1. Before either, what lies farther outside the 0.5th to 99.5th percentile than these lie apart is
            clipped (not for whole numbers with ``"unit"``), and NaN and infinite values become 0 at the end.

    Bytes with ``"unit"`` are kept as bytes and scaled when a batch is made; everything else is kept as float16.
    """

    size: tuple[int, ...] | None
    normalize: str

    def __post_init__(self) -> None:
        if self.normalize not in NORMALIZATIONS:
            raise HebbsegError(f"normalize={self.normalize!r} is unknown. {did_you_mean(self.normalize, NORMALIZATIONS)}")
        if self.size is not None and (len(self.size) not in (2, 3) or min(self.size) < 1):
            raise HebbsegError(f"size={self.size}: allowed are 2 or 3 numbers from 1 on, or None for each image's own.")

    @classmethod
    def for_source(
        cls, source: Source, *, size: tuple[int, ...] | str | None = "auto", normalize: str = "auto"
    ) -> "Preprocessing":
        """Settings that suit a source.

        ``size="auto"`` is 128 × 128 for pictures and None for volumes, which are cut into patches;
        ``normalize="auto"`` is ``"zscore"``: with few labelled images, what their light and stain happen to be like matters
        more than what absolute colours tell.
        """
        if size == "auto":
            size = SIZE_2D if source.spatial_dims == 2 else None
        if isinstance(size, str) or (size is not None and len(size) != source.spatial_dims):
            raise HebbsegError(f"size={size!r}: allowed are 'auto', None, or {source.spatial_dims} numbers, one for each axis.")
        return cls(size=None if size is None else tuple(size), normalize="zscore" if normalize == "auto" else normalize)

    def image(self, array: np.ndarray) -> Tensor:
        """(C, *S) as in the file → (C, *size) as kept: uint8 or float16."""
        if self.normalize == "unit" and array.dtype == np.uint8:
            return self._resized(torch.from_numpy(np.ascontiguousarray(array)))
        # float32 holds every 16-bit value exactly; scaling comes after resizing, which makes the array smaller.
        values = self._resized(torch.from_numpy(array.astype(np.float32))).numpy()
        return self._scaling(values, array.dtype)(values)

    def of_parts(self, sample: np.ndarray) -> Callable[[np.ndarray], Tensor]:
        """`image` for parts (C, *s) of one image that is too large to be read whole.

        Its mean, spread and percentiles are those of ``sample`` (C, *t), some of its pixels from everywhere. There is no
        resizing of parts, so ``size`` must be None.
        """
        if self.size is not None:
            raise HebbsegError(f"size={self.size}: an image that is resized cannot be prepared in parts; size is None.")
        if self.normalize == "unit" and sample.dtype == np.uint8:
            return lambda part: torch.from_numpy(np.ascontiguousarray(part))
        scaling = self._scaling(sample.astype(np.float32), sample.dtype)
        return lambda part: scaling(part.astype(np.float32))

    def _scaling(self, values: np.ndarray, dtype: np.dtype) -> Callable[[np.ndarray], Tensor]:
        """From values (C, *s) of that image to what is kept of them."""
        if self.normalize == "zscore":
            by_channel = [_zscore(channel) for channel in values]
        elif np.issubdtype(dtype, np.integer):
            largest = np.iinfo(dtype).max
            return lambda part: torch.from_numpy((part / largest).astype(np.float16))
        else:
            by_channel = [_percentile_unit(values)] * len(values)

        def scaled(part: np.ndarray) -> Tensor:
            normal = [scale(channel) for scale, channel in zip(by_channel, part, strict=True)]
            return torch.from_numpy(np.stack(normal).astype(np.float16))

        return scaled

    def mask(self, array: np.ndarray) -> Tensor:
        """(*S) class indices → (*size), uint8."""
        mask = torch.from_numpy(np.ascontiguousarray(array, dtype=np.uint8))
        if self.size is None or mask.shape == self.size:
            return mask
        return F.interpolate(mask[None, None].float(), size=self.size, mode="nearest-exact")[0, 0].to(torch.uint8)

    @staticmethod
    def to_network(kept: Tensor) -> Tensor:
        """What is kept → float32 as the network sees it."""
        return kept.float().div_(255) if kept.dtype == torch.uint8 else kept.float()

    def describe(self) -> dict[str, Any]:
        """For a model's metadata: ``Preprocessing(**that)`` is the same again."""
        return {"size": None if self.size is None else list(self.size), "normalize": self.normalize}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Preprocessing":
        """The inverse of `describe`, also for models of version 0.1."""
        size = description["size"]
        return cls(
            size=None if size is None else tuple(size), normalize=description.get("normalize") or description["normalise"]
        )

    def _resized(self, image: Tensor) -> Tensor:
        if self.size is None or image.shape[1:] == self.size:
            return image
        if len(self.size) == 2:
            return F.interpolate(image[None], size=self.size, mode="bilinear", antialias=True)[0]
        # torch has no anti-aliasing in 3D: the mean over each new voxel where it shrinks, linear where it grows.
        values = image[None].float()
        smaller = [min(new, old) for new, old in zip(self.size, values.shape[2:], strict=True)]
        values = F.interpolate(values, size=smaller, mode="area")
        values = F.interpolate(values, size=self.size, mode="trilinear", align_corners=False)[0]
        return values.round().to(torch.uint8) if image.dtype == torch.uint8 else values


def _percentiles(finite: np.ndarray) -> tuple[float, float]:
    """Low and high end of what is not rare; of everything, where all that is not rare is one and the same grey."""
    low, high = np.percentile(finite, (RARE_PERCENT, 100 - RARE_PERCENT))
    return (float(low), float(high)) if high > low else (float(finite.min()), float(finite.max()))


def _without_outliers(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clipped one extent beyond either end: a small bright object stays, a broken pixel does not count."""
    return np.clip(values, 2 * low - high, 2 * high - low)


def _zscore(channel: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    finite = channel[np.isfinite(channel)]
    if not finite.size:
        return np.zeros_like
    low, high = _percentiles(finite)
    inside = _without_outliers(finite, low, high).astype(np.float64)
    mean, spread = inside.mean(), inside.std()
    # An image of one grey stays 0, whatever rounding leaves of its spread.
    scale = 1 / spread if spread > 1e-6 * max(1.0, abs(mean)) else 0.0
    return lambda part: np.where(np.isfinite(part), (_without_outliers(part, low, high) - mean) * scale, 0.0)


def _percentile_unit(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros_like
    low, high = _percentiles(finite)
    extent = high - low if high > low else 1.0
    return lambda part: np.where(np.isfinite(part), (_without_outliers(part, low, high) - low) / extent, 0.0)
