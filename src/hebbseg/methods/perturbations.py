"""Small harms to feature maps that must not change what is seen in them."""

from collections.abc import Callable

import torch
from torch import Tensor

Perturbation = Callable[[Tensor, torch.Generator], Tensor]


def channel_dropout(x: Tensor, generator: torch.Generator, rate: float = 0.5) -> Tensor:
    """Whole channels become 0 with chance ``rate``, the others grow by 1 / (1 − rate). Shapes: (B, C, *S) → the same."""
    kept = torch.rand(x.shape[:2], generator=generator) >= rate
    factor = kept.to(x) / (1 - rate)
    return x * factor.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))  # (B, C) → (B, C, 1, …)


def feature_noise(x: Tensor, generator: torch.Generator, extent: float = 0.3) -> Tensor:
    """x (1 + n), n uniform in ± extent, for every number apart. Shapes: (B, C, *S) → the same."""
    noise = (2 * torch.rand(x.shape, generator=generator) - 1).to(x)
    return torch.addcmul(x, x, noise, value=extent)


def feature_drop(x: Tensor, generator: torch.Generator, low: float = 0.6, high: float = 0.9) -> Tensor:
    """The most active positions become 0: those whose mean over channels is at least γ of the image's largest.

    γ is drawn from [low, high] for every image. Shapes: (B, C, *S) → the same.
    """
    ones = (1,) * (x.ndim - 1)
    attention = x.detach().mean(dim=1, keepdim=True)  # (B, 1, *S)
    share = low + (high - low) * torch.rand(len(x), generator=generator)
    limit = attention.flatten(1).amax(dim=1) * share.to(x)
    return x * (attention < limit.reshape(-1, *ones))


PERTURBATIONS: dict[str, Perturbation] = {
    "noise": feature_noise,
    "drop": feature_drop,
    "dropout": channel_dropout,
}
