"""Shared operations: ramps, EMA teachers, input noise, distances between predictions, pseudo-labels."""

import copy
import math
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.seeding import derive_seed

Ramp = Literal["linear", "sigmoid", "constant"]
Network = TypeVar("Network", bound=nn.Module)


def ramp_up(kind: Ramp, progress: float, share: float = 1.0) -> float:
    """Return the ramp factor in [0, 1]: linear t, sigmoid exp(−5 (1 − t)²) or constant 1, with t = min(1, progress / share).

    >>> ramp_up("linear", 0.25, share=0.5)
    0.5
    """
    t = min(1.0, progress / share) if share > 0 else 1.0
    if kind == "constant":
        return 1.0
    return t if kind == "linear" else math.exp(-5 * (1 - t) ** 2)


def softmax(logits: Tensor) -> Tensor:
    """Return probabilities (B, K, *S) in at least float32."""
    return F.softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=1)


def entropy(probabilities: Tensor) -> Tensor:
    """Return −Σ_c p_c ln p_c at every position, with 0 ln 0 = 0. Shapes: (B, K, *S) → (B, *S)."""
    # The clamp keeps the gradient finite at p = 0.
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp_min(tiny).log()).sum(dim=1)


def squared_distance(p: Tensor, q: Tensor) -> Tensor:
    """Return the mean over classes of (p_c − q_c)². Shapes: (B, K, *S), (B, K, *S) → (B, *S)."""
    return (p - q).square().mean(dim=1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where the mask is 1; 0, with zero gradient, for an empty mask."""
    mask = mask.to(values.dtype)
    return (values * mask).sum() / mask.sum().clamp_min(1)


def pseudo_label(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most probable class and its probability, without gradient. Shapes: (B, K, *S) → (B, *S), (B, *S)."""
    confidence, label = softmax(logits.detach()).max(dim=1)
    return label, confidence


def confident_cross_entropy(logits: Tensor, label: Tensor, confidence: Tensor, threshold: float) -> Tensor:
    """Return the cross-entropy at confident positions, divided by the number N of all positions.

        1/N Σ_n 1[confidence_n ≥ threshold] · (−ln p_n(label_n))

    Shapes: logits (B, K, *S), label and confidence (B, *S) → ().
    """
    losses = F.cross_entropy(logits, label, reduction="none")
    return (losses * (confidence >= threshold)).mean()


def make_teacher(network: Network) -> Network:
    """Return a copy without gradients, to be updated with `follow`."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, decay: float, number: int) -> None:
    """Update the teacher in place: W̄ ← d W̄ + (1 − d) W, with d = min(decay, 1 − 1 / (number + 1)).

    Running normalization statistics are not averaged: the teacher collects its own.
    """
    decay = min(decay, 1 - 1 / (number + 1))
    followers, leaders = ([p.detach() for p in module.parameters()] for module in (teacher, student))
    torch._foreach_lerp_(followers, leaders, 1 - decay)


def input_noise(images: Tensor, generator: torch.Generator, scale: float) -> Tensor:
    """Return x + σ · clip(scale · n, ± 2 scale), n standard normal, σ the standard deviation of each image.

    Shapes: (B, C, *S) → (B, C, *S).
    """
    noise = torch.randn(images.shape, generator=generator).clamp_(-2, 2).to(images)
    spread = images.flatten(1).std(dim=1).reshape(-1, *(1,) * (images.ndim - 1))  # (B, 1, …, 1)
    return torch.addcmul(images, noise, scale * spread)


def seed_of(network: nn.Module) -> int:
    """Return a seed derived from the network's first parameter, for the initialization of additional heads."""
    first = next(network.parameters()).detach().float().cpu().contiguous()
    return derive_seed(first.numpy().tobytes())
