"""Uncertainty of a predicted segmentation."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

BAND = 0.02
"""Half the width of the band around predicted boundaries, as a fraction of the shortest side."""


def uncertainty_of(probabilities: Tensor) -> float:
    """Return the mean entropy near the boundaries of the predicted classes, or of the whole image if only one is predicted,

        u = mean_{x ∈ band} −Σ_k p_k(x) log p_k(x) / log K,

    in 0 … 1. An image without a predicted boundary has the mean over all pixels.

    Args:
        probabilities: of K classes, (K, *S).
    """
    entropy = -torch.xlogy(probabilities, probabilities).sum(0) / math.log(len(probabilities))
    band = boundary_band(probabilities.argmax(0))
    return float(entropy[band].mean() if band.any() else entropy.mean())


def boundary_band(classes: Tensor) -> Tensor:
    """Return the pixels (*S) with a pixel of another class in the cube of half side `BAND` around them."""
    radius = max(1, round(BAND * min(classes.shape)))
    pool = F.max_pool2d if classes.dim() == 2 else F.max_pool3d
    values = classes[None, None].float()
    highest, lowest = (sign * pool(sign * values, 2 * radius + 1, stride=1, padding=radius) for sign in (1, -1))
    return (highest != lowest)[0, 0]
