"""The supervised loss that every method shares, of whole images and of parts of them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from monai.losses import DiceCELoss, DiceLoss
from torch import Tensor

from hebbseg.methods.consistency import softmax


def segmentation_loss(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """``"dice"`` or ``"dice+ce"`` of logits (B, K, *S) against class indices (B, *S).

    The Dice term is over the batch, 1 − (2 Σ p·t + 1) / (Σ p + Σ t + 1) for each class and then the mean: a class that a
    small patch does not contain costs nothing when it is not predicted.
    """
    options = {"softmax": True, "to_onehot_y": True, "batch": True, "smooth_nr": 1.0, "smooth_dr": 1.0}
    criterion = DiceCELoss(**options) if kind == "dice+ce" else DiceLoss(**options)

    def loss(logits: Tensor, masks: Tensor) -> Tensor:
        value = criterion(logits.float(), masks.unsqueeze(1))  # (B, *S) → (B, 1, *S)
        assert isinstance(value, Tensor)
        return value

    return loss


def region_loss(logits: Tensor, masks: Tensor, region: Tensor, loss: str) -> Tensor:
    """`segmentation_loss` of the positions in a region alone; in the whole image it is the same number.

    Shapes: (B, K, *S), class indices (B, *S), truth values (B, *S) → ().
    """
    m = region.unsqueeze(1).to(logits.dtype)  # (B, 1, *S)
    p = softmax(logits) * m
    t = F.one_hot(masks, logits.shape[1]).movedim(-1, 1) * m  # (B, *S, K) → (B, K, *S)
    axes = [0, *range(2, p.ndim)]
    dice = 1 - (2 * (p * t).sum(axes) + 1) / (p.sum(axes) + t.sum(axes) + 1)
    if loss == "dice":
        return dice.mean()
    losses = F.cross_entropy(logits, masks, reduction="none")
    return dice.mean() + (losses * region).sum() / region.sum().clamp_min(1)


@torch.no_grad()
def foreground_dice(logits: Tensor, masks: Tensor) -> Tensor:
    """2 Σ p·t / Σ (p + t) over the batch, mean over the foreground classes that the masks show; 0 where they show none.

    How far a network can be believed: one that calls everything background has 0. Shapes: (B, K, *S), (B, *S) → ().
    """
    p = softmax(logits)[:, 1:]
    t = F.one_hot(masks, logits.shape[1]).movedim(-1, 1)[:, 1:].to(p)  # (B, *S, K) → (B, K − 1, *S)
    axes = [0, *range(2, p.ndim)]
    shown = t.sum(axes) > 0
    dice = 2 * (p * t).sum(axes) / (p + t).sum(axes).clamp_min(1)
    return (dice * shown).sum() / shown.sum().clamp_min(1)
