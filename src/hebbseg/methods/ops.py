"""What several methods share: ramps, teachers, noise, distances between predictions, pseudo labels."""

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
    """The factor of a weight, from about 0 up to 1 when ``share`` of the way is done.

    linear: t;  sigmoid: exp(−5 (1 − t)²);  constant: 1;  where t = min(1, progress / share).

    >>> ramp_up("linear", 0.25, share=0.5)
    0.5
    """
    t = min(1.0, progress / share) if share > 0 else 1.0
    if kind == "constant":
        return 1.0
    return t if kind == "linear" else math.exp(-5 * (1 - t) ** 2)


def softmax(logits: Tensor) -> Tensor:
    """Probabilities (B, K, *S) in single precision at least, whatever the precision of the network."""
    return F.softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=1)


def entropy(probabilities: Tensor) -> Tensor:
    """−Σ_c p_c ln p_c at every position, 0 ln 0 = 0. Shapes: (B, K, *S) → (B, *S)."""
    # Below the smallest positive number p ln p is 0, and its gradient must stay finite.
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp_min(tiny).log()).sum(dim=1)


def squared_distance(p: Tensor, q: Tensor) -> Tensor:
    """Mean over the classes of (p_c − q_c)². Shapes: twice (B, K, *S) → (B, *S)."""
    return (p - q).square().mean(dim=1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values where the mask is 1; 0 (with a gradient of 0) where it is nowhere."""
    mask = mask.to(values.dtype)
    return (values * mask).sum() / mask.sum().clamp_min(1)


def pseudo_label(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest class and its probability, both without a gradient. Shapes: (B, K, *S) → twice (B, *S)."""
    confidence, label = softmax(logits.detach()).max(dim=1)
    return label, confidence


def confident_cross_entropy(logits: Tensor, label: Tensor, confidence: Tensor, threshold: float) -> Tensor:
    """Cross-entropy to a pseudo label where it is trusted, divided by the number of all positions:

        1/N Σ_n 1[confidence_n ≥ threshold] · (−ln p_n(label_n))

    so that few trusted positions make a small term. Shapes: (B, K, *S), twice (B, *S) → ().
    """
    losses = F.cross_entropy(logits, label, reduction="none")
    return (losses * (confidence >= threshold)).mean()


def make_teacher(network: Network) -> Network:
    """A copy that learns only by following."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, decay: float, number: int) -> None:
    """W̄ ← d W̄ + (1 − d) W after update ``number``, d = min(decay, 1 − 1 / (number + 1)): a plain mean at first.

    Norm statistics are left alone: the teacher has its own, of its own activations.
    """
    decay = min(decay, 1 - 1 / (number + 1))
    followers, leaders = ([p.detach() for p in module.parameters()] for module in (teacher, student))
    torch._foreach_lerp_(followers, leaders, 1 - decay)


def input_noise(images: Tensor, generator: torch.Generator, scale: float) -> Tensor:
    """x + σ · clip(scale · n, ± 2 scale), n standard normal, σ each image's own standard deviation.

    In units of σ a scale means the same for bytes and for normalized volumes. Shapes: (B, C, *S) → the same.
    """
    noise = torch.randn(images.shape, generator=generator).clamp_(-2, 2).to(images)
    spread = images.flatten(1).std(dim=1).reshape(-1, *(1,) * (images.ndim - 1))  # (B, 1, …, 1)
    return torch.addcmul(images, noise, scale * spread)


def seed_of(network: nn.Module) -> int:
    """A seed that follows from the network's weights: what is drawn beside it differs where the network differs."""
    first = next(network.parameters()).detach().float().cpu().contiguous()
    return derive_seed(first.numpy().tobytes())
