"""Feature perturbations."""

from collections.abc import Callable

import torch
from torch import Tensor

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


PERTURBATIONS: dict[str, Perturbation] = {"noise": feature_noise, "drop": feature_drop, "dropout": channel_dropout}
