"""Stage 1 by superpixels: segment a superpixel of an image in a transformed copy."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from skimage.segmentation import felzenszwalb, slic
from torch import Tensor, nn

from hebbseg.data.augment.views import Augment
from hebbseg.errors import HebbsegError
from hebbseg.methods.options import Count
from hebbseg.networks.heads import cropped
from hebbseg.networks.unet import UNet

CLASS_WEIGHTS = (0.05, 1.0)  # of background and segment, as in the original
SHARPNESS = 20.0  # of cosine similarities, as in the original
COVERED = 0.95  # a cell of which the segment, or the background, covers at least this fraction is one of its prototypes
SMALLEST = 0.006  # segment, as a fraction of the image: 400 of 256² pixels in the original
LARGEST = 0.3
SLIC_SEGMENTS = 40  # per image or patch
COARSE = 4  # pixels per position of the feature map, along each axis
EPSILON = 1e-4  # smallest norm of a feature, as in the original


def superpixels(image: np.ndarray, kind: str, window: int | None = None) -> np.ndarray:
    """Return superpixels of an image: by default Felzenszwalb's in 2D, SLIC's in 3D (at half size, for speed).

    Args:
        window: pixels of the training patches that are cut from the image; determines the size of superpixels. Default:
            the whole image.

    Shapes: (C, *S) → integers from 1, (*S).
    """
    low, high = image.min(), image.max()
    unit = (image - low) / max(high - low, 1e-6)
    pixels = unit[0].size
    window = pixels if window is None else min(window, pixels)
    if kind == "felzenszwalb" or (kind == "auto" and unit.ndim == 3):
        return 1 + felzenszwalb(unit, scale=100, sigma=0.8, min_size=max(1, int(SMALLEST * window)), channel_axis=0)
    pool = F.avg_pool3d if unit.ndim == 4 else F.avg_pool2d
    half = pool(torch.from_numpy(unit), 2, ceil_mode=True, count_include_pad=False).numpy()
    number = round(SLIC_SEGMENTS * pixels / window)
    coarse = slic(half, n_segments=number, compactness=0.1, start_label=1, channel_axis=0)
    for axis, size in enumerate(unit.shape[1:]):
        coarse = coarse.repeat(2, axis=axis).take(range(size), axis=axis)
    return coarse


def pseudo_masks(segments: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one segment of each image, from those of suitable size (or the one closest to it).

    Shapes: segment numbers (B, *S), 0 for no segment → 0 and 1, (B, *S).
    """
    masks = []
    for numbers in segments.cpu().numpy():
        shares = np.bincount(numbers.ravel()) / numbers.size
        shares[0] = 0
        fitting = np.flatnonzero((shares >= SMALLEST) & (shares <= LARGEST))
        if not len(fitting):
            present = np.flatnonzero(shares)
            fitting = present[[np.abs(shares[present] - LARGEST / 2).argmin()]]
        chosen = fitting[int(torch.randint(len(fitting), (), generator=generator))]
        masks.append(torch.from_numpy(numbers == chosen))
    return torch.stack(masks).long().to(segments.device)


def episode_logits(support: Tensor, masks: Tensor, query: Tensor, cells: int) -> Tensor:
    """Return logits of background and segment in the query, from similarities to prototypes of the support.

    A class's logit at a position is Σ_k softmax(d)_k d_k over its prototypes k, with d_k = 20 cos(feature, prototype k).
    The map is pooled to a grid of ``cells`` per axis. Prototypes of the segment are the mean of its features (global) and
    the cells it covers to at least 95 % (local); prototypes of the background are the cells it covers to at least 95 %,
    or, if there is none, the mean of its features.

    Shapes: features (B, F, *S), coverage by the segment, 0 … 1, (B, *S), features (B, F, *S) → (B, 2, *S).
    """
    m = masks.unsqueeze(1).to(support)  # (B, 1, *S)
    inside, outside = _mean_within(support, m), _mean_within(support, 1 - m)  # (B, F, 1)
    share = _pooled(m, cells)[:, 0]  # (B, P)
    covered, free = share >= COVERED, share <= 1 - COVERED
    prototypes = torch.cat([inside, outside, _pooled(support, cells)], dim=2)  # (B, F, 2 + P)
    q, p = F.normalize(query, dim=1, eps=EPSILON), F.normalize(prototypes, dim=1, eps=EPSILON)
    d = SHARPNESS * torch.einsum("bf...,bfp->bp...", q, p)
    always = torch.ones_like(free[:, :1])
    segment = torch.cat([always, ~always, covered], dim=1)  # (B, 2 + P)
    background = torch.cat([~always, ~free.any(dim=1, keepdim=True), free], dim=1)
    return torch.stack([_soft_maximum(d, background), _soft_maximum(d, segment)], dim=1)


def _mean_within(features: Tensor, m: Tensor) -> Tensor:
    """Return the mean feature, (B, F, 1), weighted by m; 0 for an empty mask."""
    return (features * m).flatten(2).sum(dim=2, keepdim=True) / m.flatten(2).sum(dim=2, keepdim=True).clamp_min(1e-5)


def _pooled(maps: Tensor, cells: int) -> Tensor:
    """Return the means of the cells, (B, F, P)."""
    pool: Callable[..., Tensor] = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[maps.ndim - 2]
    return pool(maps, [min(cells, size) for size in maps.shape[2:]]).flatten(2)


def _soft_maximum(d: Tensor, used: Tensor) -> Tensor:
    """Return Σ_k softmax(d)_k d_k over the prototypes in use. Shapes: (B, P, *S), (B, P) → (B, *S)."""
    unused = ~used.reshape(*used.shape, *(1,) * (d.ndim - 2))
    return (F.softmax(d.masked_fill(unused, -torch.inf), dim=1) * d).sum(dim=1)


def coarse(maps: Tensor) -> Tensor:
    """Return means of blocks of 4 pixels per axis; smaller blocks at the border. Shapes: (B, F, *S) → (B, F, *⌈S / 4⌉)."""
    pool = {2: F.avg_pool2d, 3: F.avg_pool3d}[maps.ndim - 2]
    return pool(maps, COARSE, ceil_mode=True, count_include_pad=False)


def resized(logits: Tensor, size: Sequence[int]) -> Tensor:
    """Return logits at the size of the image, by linear interpolation. Shapes: (B, K, *s) → (B, K, *S)."""
    mode = {2: "bilinear", 3: "trilinear"}[logits.ndim - 2]
    return F.interpolate(logits, size=tuple(size), mode=mode, align_corners=False)


class SuperpixelEpisodes(nn.Module):
    """Few-shot episodes without labels: a superpixel of an image is segmented in an augmented copy, and the reverse.

        L = CE( p̃, m̃ ) + CE( p, m ),   p̃ = logits(f(x), m, f(x̃)),   p = logits(f(x̃), argmax p̃, f(x))

    where m is a random superpixel of x, (x̃, m̃) a transformed (x, m), f the UNet without its head, and logits is
    `episode_logits` on feature maps of a quarter of the resolution. The first term has weights 0.05 for background and 1
    for the segment.

    Ouyang et al., Self-supervision with superpixels: training few-shot medical image segmentation without annotation,
    ECCV 2020 (SSL-ALPNet).

    Shapes: images (B, C, *S), segments (B, *S) → {"episode": (), "reversed": ()}.

    Options:
        segments: Felzenszwalb (2D only), SLIC, or auto: the first in 2D, the second in 3D
        prototypes: maximum number of local prototypes; 64 is a grid of 8 × 8 in 2D, 4 × 4 × 4 in 3D
    """

    def __init__(
        self,
        *,
        network: UNet,
        segments: Literal["auto", "felzenszwalb", "slic"] = "auto",
        prototypes: Count = 64,
    ) -> None:
        super().__init__()
        if segments == "felzenszwalb" and network.spatial_dims == 3:
            raise HebbsegError("Init superpix, option segments='felzenszwalb': for 2D only. Use 'slic' or 'auto' for volumes.")
        self.network = network
        self.segments = segments
        self.prototypes = prototypes
        self.cells = max(1, int(prototypes ** (1 / network.spatial_dims) + 1e-9))  # 1e-9 absorbs rounding
        self.augment = Augment(spatial_dims=network.spatial_dims)

    def segment(self, image: Tensor, window: int) -> Tensor:
        """Return the superpixels of a whole image, (C, *S) → (*S), numbered from 1, in the smallest integer type that fits."""
        numbers = torch.from_numpy(superpixels(image.cpu().numpy(), self.segments, window))
        return numbers.to(torch.int16 if numbers.max() <= torch.iinfo(torch.int16).max else torch.int32)

    def loss(
        self, images: Tensor, progress: float, generator: torch.Generator, segments: Tensor | None = None
    ) -> dict[str, Tensor]:
        assert segments is not None
        masks = pseudo_masks(segments, generator)
        copies, moved = self.augment.weak(images, masks, generator)
        assert moved is not None
        copies = self.augment.strong(copies, generator)
        maps = self.network.encoder(self.network.padded(torch.cat([images, copies])))
        features = cropped(self.network.decoder(maps)[-1], images.shape[2:])
        support, query = coarse(features).chunk(2)
        found = episode_logits(support, coarse(masks.unsqueeze(1).to(support))[:, 0], query, self.cells)
        back = episode_logits(query, found.argmax(dim=1), support, self.cells)
        weight = found.new_tensor(CLASS_WEIGHTS)
        size = images.shape[2:]
        return {
            "episode": F.cross_entropy(resized(found, size), moved, weight=weight),
            "reversed": F.cross_entropy(resized(back, size), masks),
        }
