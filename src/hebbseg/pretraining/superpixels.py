"""Stage 1 by superpixels: segment a superpixel of an image in a transformed copy."""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from skimage.segmentation import felzenszwalb, slic
from torch import Tensor, nn

from hebbseg.data.augment.views import Augment
from hebbseg.errors import HebbsegError
from hebbseg.methods.options import Count, Positive
from hebbseg.networks.heads import cropped
from hebbseg.networks.unet import UNet

CLASS_WEIGHTS = (0.05, 1.0)  # of background and segment, as in the original
SHARPNESS = 20.0  # of cosine similarities, as in the original
SMALLEST = 0.006  # segment, as a fraction of the image: 400 of 256² pixels in the original
LARGEST = 0.3
FREE = 0.05  # a cell with a smaller fraction of the segment is background


def superpixels(image: np.ndarray, kind: str) -> np.ndarray:
    """Return superpixels of an image: by default Felzenszwalb's in 2D, SLIC's in 3D (at half size, for speed).

    Shapes: (C, *S) → integers (*S).
    """
    low, high = image.min(), image.max()
    unit = (image - low) / max(high - low, 1e-6)
    smallest = max(1, int(SMALLEST * unit[0].size))
    if kind == "felzenszwalb" or (kind == "auto" and unit.ndim == 3):
        return felzenszwalb(unit, scale=100, sigma=0.8, min_size=smallest, channel_axis=0)
    pool = F.avg_pool3d if unit.ndim == 4 else F.avg_pool2d
    half = pool(torch.from_numpy(unit), 2, ceil_mode=True, count_include_pad=False).numpy()
    coarse = slic(half, n_segments=40, compactness=0.1, start_label=0, channel_axis=0)
    for axis, size in enumerate(unit.shape[1:]):
        coarse = coarse.repeat(2, axis=axis).take(range(size), axis=axis)
    return coarse


def pseudo_masks(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Draw one segment of each image, from those of suitable size (or the one closest to it).

    Shapes: (B, C, *S) → 0 and 1, (B, *S).
    """
    masks = []
    for image in images.cpu().numpy():
        segments = superpixels(image, kind)
        shares = np.bincount(segments.ravel()) / segments.size
        fitting = np.flatnonzero((shares >= SMALLEST) & (shares <= LARGEST))
        if not len(fitting):
            fitting = np.array([np.abs(shares - LARGEST / 2).argmin()])
        chosen = fitting[int(torch.randint(len(fitting), (), generator=generator))]
        masks.append(torch.from_numpy(segments == chosen))
    return torch.stack(masks).long().to(images.device)


def episode_logits(support: Tensor, masks: Tensor, query: Tensor, cells: int) -> Tensor:
    """Return logits of background and segment in the query, from similarities to prototypes of the support.

    The segment's prototype is the mean of its features. The background has its overall mean and one prototype for each
    cell (``cells`` per axis) without the segment. A class's logit at a position is Σ_k softmax(d)_k d_k over its
    prototypes, d_k = 20 cos(feature, prototype k).

    Shapes: features (B, F, *S), masks (B, *S), features (B, F, *S) → (B, 2, *S).
    """
    m = masks.unsqueeze(1).to(support)  # (B, 1, *S)
    axes = tuple(range(2, support.ndim))
    inside = (support * m).sum(axes) / m.sum(axes).clamp_min(1)  # (B, F)
    around = (support * (1 - m)).sum(axes) / (1 - m).sum(axes).clamp_min(1)
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(axes)]
    local = pool(support, cells).flatten(2).transpose(1, 2)  # (B, F, cells, …) → (B, P, F)
    free = pool(m, cells).flatten(1) < FREE  # (B, P)
    background = torch.cat([around.unsqueeze(1), local], dim=1)  # (B, 1 + P, F)
    free = torch.cat([torch.ones_like(free[:, :1]), free], dim=1)
    q = F.normalize(query, dim=1)
    segment = SHARPNESS * torch.einsum("bf...,bf->b...", q, F.normalize(inside, dim=1))
    d = SHARPNESS * torch.einsum("bf...,bpf->bp...", q, F.normalize(background, dim=2))
    taken = ~free.reshape(*free.shape, *(1,) * len(axes))
    rest = (F.softmax(d.masked_fill(taken, -torch.inf), dim=1) * d).sum(dim=1)
    return torch.stack([rest, segment], dim=1)


class SuperpixelEpisodes(nn.Module):
    """Few-shot episodes without labels: a superpixel of an image is segmented in an augmented copy of the image.

        L = CE( episode_logits(f(x), m, f(x̃)), m̃ )        weights 0.05 for background and 1 for the segment

    where m is a random superpixel of x, (x̃, m̃) a transformed (x, m), and f the UNet without its head.

    Ouyang et al., Self-supervision with superpixels: training few-shot medical image segmentation without annotation,
    ECCV 2020 (SSL-ALPNet). Simplified: one prototype for the segment, and no reversed episode.

    Shapes: images (B, C, *S) → {"episode": ()}.

    Options:
        segments: Felzenszwalb (2D only), SLIC, or auto: the first in 2D, the second in 3D
        prototypes: maximum number of local background prototypes; 16 is a grid of 4 × 4 in 2D, 2 × 2 × 2 in 3D
        steps: updates
        rate: highest learning rate of AdamW
    """

    def __init__(
        self,
        *,
        network: UNet,
        segments: Literal["auto", "felzenszwalb", "slic"] = "auto",
        prototypes: Count = 16,
        steps: Count = 300,
        rate: Positive = 2e-3,
    ) -> None:
        super().__init__()
        if segments == "felzenszwalb" and network.spatial_dims == 3:
            raise HebbsegError("Init superpix, option segments='felzenszwalb': for 2D only. Use 'slic' or 'auto' for volumes.")
        self.network = network
        self.segments = segments
        self.prototypes = prototypes
        self.steps = steps
        self.rate = rate
        self.cells = max(1, int(prototypes ** (1 / network.spatial_dims) + 1e-9))  # 1e-9 absorbs rounding
        self.augment = Augment(spatial_dims=network.spatial_dims)

    def loss(self, images: Tensor, progress: float, generator: torch.Generator) -> dict[str, Tensor]:
        masks = pseudo_masks(images, self.segments, generator)
        copies, moved = self.augment.weak(images, masks, generator)
        assert moved is not None
        copies = self.augment.strong(copies, generator)
        maps = self.network.encoder(self.network.padded(torch.cat([images, copies])))
        features = cropped(self.network.decoder(maps)[-1], images.shape[2:])
        support, query = features.chunk(2)
        logits = episode_logits(support, masks, query, self.cells)
        return {"episode": F.cross_entropy(logits, moved, weight=logits.new_tensor(CLASS_WEIGHTS))}
