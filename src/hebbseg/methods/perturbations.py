"""Feature perturbations: random ones, and ones that are guided by the predicted foreground."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

from hebbseg.data.augment.cutmix import copy_paste_box

Perturbation = Callable[[Tensor, torch.Generator], Tensor]


def channel_dropout(x: Tensor, generator: torch.Generator, rate: float = 0.5) -> Tensor:
    """Set channels to 0 with probability ``rate`` and scale the others by 1 / (1 − rate). Shapes: (B, C, *S) → (B, C, *S)."""
    factor = (torch.rand(x.shape[:2], generator=generator) >= rate).to(x) / (1 - rate)
    return x * factor.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))  # (B, C) → (B, C, 1, …)


def feature_noise(x: Tensor, generator: torch.Generator, extent: float = 0.3) -> Tensor:
    """Return x (1 + n), n uniform in ± extent, independent per element. Shapes: (B, C, *S) → (B, C, *S)."""
    noise = (2 * torch.rand(x.shape, generator=generator) - 1).to(x)
    return torch.addcmul(x, x, noise, value=extent)


def feature_drop(x: Tensor, generator: torch.Generator, low: float = 0.6, high: float = 0.9) -> Tensor:
    """Set the most active positions to 0: those whose channel mean is at least γ times the maximum of the image.

    γ is uniform in [low, high], drawn per image. Shapes: (B, C, *S) → (B, C, *S).
    """
    attention = x.detach().mean(dim=1, keepdim=True)  # (B, 1, *S)
    share = low + (high - low) * torch.rand(len(x), generator=generator)
    limit = attention.flatten(1).amax(dim=1) * share.to(x)
    return x * (attention < limit.reshape(-1, *(1,) * (x.ndim - 1)))


def masked_out(x: Tensor, mask: Tensor) -> Tensor:
    """Set the features under the mask to 0; the mask is resized to the feature map by nearest-neighbor interpolation.

    Shapes: feature map (B, C, *s), boolean mask (B, *S) → (B, C, *s).
    """
    kept = F.interpolate((~mask).unsqueeze(1).to(x.dtype), size=x.shape[2:], mode="nearest")  # (B, *S) → (B, 1, *s)
    return x * kept


def object_mask(x: Tensor, foreground: Tensor) -> Tensor:
    """Set the features of predicted objects to 0, so that only their context remains. Shapes as in `masked_out`."""
    return masked_out(x, foreground)


def context_mask(x: Tensor, foreground: Tensor) -> Tensor:
    """Set the features outside of predicted objects to 0; without a predicted object, all are 0. Shapes as in `masked_out`."""
    return masked_out(x, ~foreground)


def guided_cutout(foreground: Tensor, generator: torch.Generator, share: float = 0.4, smallest: int = 50) -> Tensor:
    """Return a mask for `masked_out`: a box at a random position in the bounding box of each predicted object.

    An object is a connected component of the foreground with at least ``smallest`` positions, diagonal neighbors included.
    The sides of a box are ``share`` times those of the bounding box, at least 1. An image without objects has no box.
    Shapes: boolean (B, *S) → boolean (B, *S).
    """
    boxes = torch.zeros(foreground.shape, dtype=torch.bool)
    for mask, image in zip(boxes, foreground.cpu().numpy(), strict=True):
        parts, _ = ndimage.label(image, structure=np.ones((3,) * image.ndim))
        sizes = np.bincount(parts.ravel())
        for part, bounds in enumerate(ndimage.find_objects(parts), start=1):
            if sizes[part] >= smallest:
                inside = mask[bounds]
                inside |= copy_paste_box(inside.shape, share, generator)[0]
    return boxes.to(foreground.device)
