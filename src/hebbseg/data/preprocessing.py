"""Preprocessing: from decoded files to stored arrays, and from stored arrays to network input."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.data.cases import IGNORE, Source
from hebbseg.data.resampling import resized_mask
from hebbseg.errors import HebbsegError, did_you_mean

NORMALIZATIONS = ("unit", "zscore")
SIZE_2D = (128, 128)
RARE_PERCENT = 0.5
LARGE = 1e37  # differences of larger values can exceed the range of float32


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Resizing and normalization, applied once to each image and stored with the model for prediction.

    Args:
        size: images are resized to this size with anti-aliasing, masks to the class that covers most of each pixel; None keeps
            the size.
        normalize: ``"unit"`` divides integers by the maximum of their type (uint8 by 255) and scales floating-point
            images to about 0 … 1 by percentiles; ``"zscore"`` scales each channel of each image to mean 0 and
            variance 1. Except for integers with ``"unit"``, values are first clipped to the 0.5th … 99.5th percentile
            range extended by its width on both sides. NaN and infinite values become 0.

    uint8 images with ``"unit"`` are stored as uint8 and scaled per batch; all others are stored as float16.
    """

    size: tuple[int, ...] | None
    normalize: str

    def __post_init__(self) -> None:
        if self.normalize not in NORMALIZATIONS:
            raise HebbsegError(f"Unknown normalize={self.normalize!r}. {did_you_mean(self.normalize, NORMALIZATIONS)}")
        if self.size is not None and (len(self.size) not in (2, 3) or min(self.size) < 1):
            raise HebbsegError(
                f"size={self.size}: allowed are 2 or 3 positive integers, or None to keep the size of each image."
            )

    @classmethod
    def for_source(
        cls, source: Source, *, size: tuple[int, ...] | str | None = "auto", normalize: str = "auto"
    ) -> "Preprocessing":
        """Return the preprocessing for a data source.

        ``size="auto"`` is 128 × 128 for 2D images and None for volumes, which are cut into patches. ``normalize="auto"``
        is ``"zscore"``: with few labelled images, variation in lighting and stain outweighs the absolute color.
        """
        if size == "auto":
            size = SIZE_2D if source.spatial_dims == 2 else None
        if isinstance(size, str) or (size is not None and len(size) != source.spatial_dims):
            raise HebbsegError(f"size={size!r}: allowed are 'auto', None, or {source.spatial_dims} integers, one per axis.")
        return cls(size=None if size is None else tuple(size), normalize="zscore" if normalize == "auto" else normalize)

    def image(self, array: np.ndarray) -> Tensor:
        """Return the image (C, *S) as stored: (C, *size), uint8 or float16."""
        if self.normalize == "unit" and array.dtype == np.uint8:
            return self._resized(torch.from_numpy(np.ascontiguousarray(array)))
        # float32 represents every 16-bit value exactly. Resizing first leaves fewer values to scale.
        values = self._resized(torch.from_numpy(array.astype(np.float32))).numpy()
        return self._scaling(values, array.dtype)(values)

    def of_parts(self, sample: np.ndarray) -> Callable[[np.ndarray], Tensor]:
        """Return the `image` preprocessing for parts (C, *s) of an image too large for memory.

        Mean, standard deviation and percentiles are those of ``sample`` (C, *t), pixels sampled from the whole image.
        Parts are not resized, so ``size`` must be None.
        """
        if self.size is not None:
            raise HebbsegError(f"size={self.size}: a resized image cannot be preprocessed in parts. Use size=None.")
        if self.normalize == "unit" and sample.dtype == np.uint8:
            return lambda part: torch.from_numpy(np.ascontiguousarray(part))
        scaling = self._scaling(sample.astype(np.float32), sample.dtype)
        return lambda part: scaling(part.astype(np.float32))

    def _scaling(self, values: np.ndarray, dtype: np.dtype) -> Callable[[np.ndarray], Tensor]:
        """Return the normalization, with statistics of ``values`` (C, *s)."""
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
        """Return the class indices (*S) as stored: (*size), uint8.

        A mask that is not annotated everywhere is resized to the nearest pixel: by area, thin scribbles would disappear.
        """
        mask = torch.from_numpy(np.ascontiguousarray(array, dtype=np.uint8))
        if self.size is None or mask.shape == self.size:
            return mask
        if bool((mask == IGNORE).any()):
            return F.interpolate(mask[None, None], size=self.size, mode="nearest-exact")[0, 0]
        return resized_mask(mask, self.size, classes=int(mask.max()) + 1)

    def ids(self, array: np.ndarray) -> Tensor:
        """Return object ids (*S) at the size of `mask`, by nearest neighbor."""
        ids = torch.from_numpy(array)
        if self.size is None or ids.shape == self.size:
            return ids
        return F.interpolate(ids[None, None].double(), size=self.size, mode="nearest-exact")[0, 0].to(ids.dtype)

    @staticmethod
    def to_network(kept: Tensor) -> Tensor:
        """Return a stored image as network input, float32."""
        return kept.float().div_(255) if kept.dtype == torch.uint8 else kept.float()

    def describe(self) -> dict[str, Any]:
        """Return plain values for a model's metadata."""
        return {"size": None if self.size is None else list(self.size), "normalize": self.normalize}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Preprocessing":
        """Rebuild from `describe`, including models of version 0.1."""
        size = description["size"]
        return cls(
            size=None if size is None else tuple(size), normalize=description.get("normalize") or description["normalise"]
        )

    def _resized(self, image: Tensor) -> Tensor:
        if self.size is None or image.shape[1:] == self.size:
            return image
        if len(self.size) == 2:
            return F.interpolate(image[None], size=self.size, mode="bilinear", antialias=True)[0]
        # PyTorch has no anti-aliasing in 3D: average when shrinking, interpolate linearly when enlarging.
        values = image[None].float()
        smaller = [min(new, old) for new, old in zip(self.size, values.shape[2:], strict=True)]
        values = F.interpolate(values, size=smaller, mode="area")
        values = F.interpolate(values, size=self.size, mode="trilinear", align_corners=False)[0]
        return values.round().to(torch.uint8) if image.dtype == torch.uint8 else values


def _percentiles(finite: np.ndarray) -> tuple[float, float]:
    """Return the 0.5th and 99.5th percentile, or minimum and maximum if these are equal."""
    low, high = np.percentile(finite, (RARE_PERCENT, 100 - RARE_PERCENT))
    return (float(low), float(high)) if high > low else (float(finite.min()), float(finite.max()))


def _without_outliers(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clip to the range extended by its width on both sides: small bright objects stay, dead pixels do not."""
    return np.clip(values, 2 * low - high, 2 * high - low)


def _zscore(channel: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    finite = channel[np.isfinite(channel)]
    if not finite.size:
        return np.zeros_like
    low, high = _percentiles(finite)
    inside = _without_outliers(finite, low, high).astype(np.float64)
    mean, spread = inside.mean(), inside.std()
    # A constant image becomes 0 despite rounding errors in its standard deviation. Values can have any unit, such as 1e-9 m²/s.
    scale = 1 / spread if spread > 1e-6 * abs(mean) else 0.0
    return lambda part: np.where(np.isfinite(part), (_without_outliers(part, low, high) - mean) * scale, 0.0)


def _percentile_unit(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros_like
    low, high = _percentiles(finite)
    extent = high - low if high > low else 1.0
    wide = np.float64 if max(abs(low), abs(high)) > LARGE else np.float32

    def scaled(part: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(part), (_without_outliers(part.astype(wide, copy=False), low, high) - low) / extent, 0.0)

    return scaled
