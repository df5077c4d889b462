"""Preprocessing: from decoded files to stored arrays, and from stored arrays to network input."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.data.cases import IGNORE, Source
from hebbseg.data.io.limits import VARIABLE, max_pixels
from hebbseg.data.resampling import resampled_image, resized_mask
from hebbseg.errors import HebbsegError, did_you_mean

NORMALIZATIONS = ("unit", "zscore")
SIZE_2D = (128, 128)
RARE_PERCENT = 0.5


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Resizing and normalization, applied once to each image and stored with the model for prediction.

    Args:
        size: images are resized to this size with anti-aliasing, masks to the class that covers most of each pixel; None keeps
            the size.
        spacing: images are resampled to this spacing in millimeters instead, one number per axis, with linear interpolation
            and anti-aliasing; masks as above. An image without a spacing counts as having this one. None: no resampling.
        normalize: ``"unit"`` divides integers by the maximum of their type (uint8 by 255) and scales floating-point
            images to about 0 … 1 by percentiles; ``"zscore"`` scales each channel of each image to mean 0 and
            variance 1. Except for integers with ``"unit"``, values are first clipped to the 0.5th … 99.5th percentile
            range extended by its width on both sides. NaN and infinite values become 0.

    uint8 images with ``"unit"`` are stored as uint8 and scaled per batch; all others are stored as float16.
    """

    size: tuple[int, ...] | None
    normalize: str
    spacing: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.normalize not in NORMALIZATIONS:
            raise HebbsegError(f"Unknown normalize={self.normalize!r}. {did_you_mean(self.normalize, NORMALIZATIONS)}")
        if self.size is not None and (len(self.size) not in (2, 3) or min(self.size) < 1):
            raise HebbsegError(
                f"size={self.size}: allowed are 2 or 3 positive integers, or None to keep the size of each image."
            )
        if self.spacing is None:
            return
        if len(self.spacing) not in (2, 3) or not all(0 < step < math.inf for step in self.spacing):
            raise HebbsegError(f"spacing={self.spacing}: allowed are 2 or 3 positive numbers in mm, or None.")
        if self.size is not None:
            raise HebbsegError(f"size={self.size} and spacing={self.spacing}: choose one of the two.")

    @property
    def resizes(self) -> bool:
        """Whether images may be stored at another size than that of their file."""
        return self.size is not None or self.spacing is not None

    @property
    def grid(self) -> str:
        """The size or spacing of stored images as text."""
        if self.spacing is not None:
            return "spacing " + "×".join(f"{step:g}" for step in self.spacing) + " mm"
        return "native size" if self.size is None else "size " + "×".join(map(str, self.size))

    def working_size(self, shape: Sequence[int], spacing: Sequence[float] | None = None) -> tuple[int, ...]:
        """Return the size of a stored image.

            n'_a = max(1, round(n_a s_a / t_a))

        where n is the ``shape``, s the ``spacing`` of the image and t the spacing to which images are resampled.
        """
        if self.size is not None:
            return self.size
        if self.spacing is None or spacing is None:
            return tuple(shape)
        sizes = zip(shape, spacing, self.spacing, strict=True)
        found = tuple(max(1, round(n * own / wanted)) for n, own, wanted in sizes)
        if math.prod(found) > max(max_pixels(), math.prod(shape)):
            ours, theirs = ("×".join(f"{step:g}" for step in steps) for steps in (self.spacing, spacing))
            raise HebbsegError(
                f"resampled from {theirs} mm to {ours} mm, the image would grow from {'×'.join(map(str, shape))} to "
                f"{'×'.join(map(str, found))} pixels, more than {VARIABLE} allows ({max_pixels()}). Check the spacing in its "
                "header, or train with a coarser --spacing."
            )
        return found

    @classmethod
    def for_source(
        cls,
        source: Source,
        *,
        size: tuple[int, ...] | str | None = "auto",
        normalize: str = "auto",
        spacing: tuple[float, ...] | None = None,
    ) -> "Preprocessing":
        """Return the preprocessing for a data source.

        ``size="auto"`` is 128 × 128 for 2D images and None for volumes, which are cut into patches. ``normalize="auto"``
        is ``"zscore"``: with few labelled images, variation in lighting and stain outweighs the absolute color.
        """
        if size == "auto":
            size = SIZE_2D if source.spatial_dims == 2 and spacing is None else None
        if isinstance(size, str) or (size is not None and len(size) != source.spatial_dims):
            raise HebbsegError(f"size={size!r}: allowed are 'auto', None, or {source.spatial_dims} integers, one per axis.")
        return cls(
            size=None if size is None else tuple(size),
            normalize="zscore" if normalize == "auto" else normalize,
            spacing=spacing,
        )

    def image(self, array: np.ndarray, spacing: Sequence[float] | None = None) -> Tensor:
        """Return the image (C, *S) as stored: (C, *working_size), uint8 or float16. ``spacing`` is that of the array."""
        size = self.working_size(array.shape[1:], spacing)
        if self.normalize == "unit" and array.dtype == np.uint8:
            return self._resized(torch.from_numpy(np.ascontiguousarray(array)), size)
        # float32 represents every 16-bit value exactly. Resizing first leaves fewer values to scale.
        values = self._resized(torch.from_numpy(array.astype(np.float32)), size).numpy()
        return self._scaling(values, array.dtype)(values)

    def of_parts(self, sample: np.ndarray) -> Callable[[np.ndarray], Tensor]:
        """Return the `image` preprocessing for parts (C, *s) of an image too large for memory.

        Mean, standard deviation and percentiles are those of ``sample`` (C, *t), pixels sampled from the whole image.
        Parts are not resized, so ``size`` and ``spacing`` must be None.
        """
        if self.resizes:
            raise HebbsegError(f"{self.grid}: a resized image cannot be preprocessed in parts. Use size=None.")
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

    def mask(self, array: np.ndarray, spacing: Sequence[float] | None = None) -> Tensor:
        """Return the class indices (*S) as stored: (*working_size), uint8.

        A mask that is not annotated everywhere is resized to the nearest pixel: by area, thin scribbles would disappear.
        """
        mask = torch.from_numpy(np.ascontiguousarray(array, dtype=np.uint8))
        size = self.working_size(mask.shape, spacing)
        if mask.shape == size:
            return mask
        if bool((mask == IGNORE).any()):
            return F.interpolate(mask[None, None], size=size, mode="nearest-exact")[0, 0]
        return resized_mask(mask, size, classes=int(mask.max()) + 1)

    def ids(self, array: np.ndarray, spacing: Sequence[float] | None = None) -> Tensor:
        """Return object ids (*S) at the size of `mask`, by nearest neighbor."""
        ids = torch.from_numpy(array)
        size = self.working_size(ids.shape, spacing)
        if ids.shape == size:
            return ids
        return F.interpolate(ids[None, None].double(), size=size, mode="nearest-exact")[0, 0].to(ids.dtype)

    @staticmethod
    def to_network(kept: Tensor) -> Tensor:
        """Return a stored image as network input, float32."""
        return kept.float().div_(255) if kept.dtype == torch.uint8 else kept.float()

    def describe(self) -> dict[str, Any]:
        """Return plain values for a model's metadata."""
        described: dict[str, Any] = {"size": None if self.size is None else list(self.size), "normalize": self.normalize}
        return described if self.spacing is None else described | {"spacing": list(self.spacing)}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Preprocessing":
        """Rebuild from `describe`, including models of version 0.1."""
        size, spacing = description["size"], description.get("spacing")
        return cls(
            size=None if size is None else tuple(size),
            normalize=description.get("normalize") or description["normalise"],
            spacing=None if spacing is None else tuple(spacing),
        )

    def _resized(self, image: Tensor, size: tuple[int, ...]) -> Tensor:
        if image.shape[1:] == size:
            return image
        if len(size) == 2:
            return F.interpolate(image[None], size=size, mode="bilinear", antialias=True)[0]
        if self.spacing is not None:
            values = resampled_image(image, size)
        else:
            # Average when shrinking, interpolate linearly when enlarging.
            smaller = [min(new, old) for new, old in zip(size, image.shape[1:], strict=True)]
            values = F.interpolate(image[None].float(), size=smaller, mode="area")
            values = F.interpolate(values, size=size, mode="trilinear", align_corners=False)[0]
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
    # A constant image becomes 0 despite rounding errors in its standard deviation.
    scale = 1 / spread if spread > 1e-6 * max(1.0, abs(mean)) else 0.0
    return lambda part: np.where(np.isfinite(part), (_without_outliers(part, low, high) - mean) * scale, 0.0)


def _percentile_unit(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.zeros_like
    low, high = _percentiles(finite)
    extent = high - low if high > low else 1.0
    return lambda part: np.where(np.isfinite(part), (_without_outliers(part, low, high) - low) / extent, 0.0)
