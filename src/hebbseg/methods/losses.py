"""How predictions compare with masks: the supervised loss that every method shares, a loss of regions, a score."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from monai.losses import DiceCELoss, DiceLoss
from torch import Tensor

from hebbseg.methods.ops import softmax


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
    p, t, axes = _compared(logits, masks)
    m = region.unsqueeze(1).to(p)  # (B, 1, *S)
    p, t = p * m, t * m
    dice = 1 - (2 * (p * t).sum(axes) + 1) / (p.sum(axes) + t.sum(axes) + 1)
    if loss == "dice":
        return dice.mean()
    losses = F.cross_entropy(logits, masks, reduction="none")
    return dice.mean() + (losses * region).sum() / region.sum().clamp_min(1)


@torch.no_grad()
def foreground_dice(logits: Tensor, masks: Tensor) -> Tensor:
    """2 Σ p·t / Σ (p + t) over the batch, mean over the foreground classes that the masks show; 0 where they show none.

    How far a network can be believed: one that calls everything background is near 0. Shapes: (B, K, *S), (B, *S) → ().
    """
    p, t, axes = _compared(logits, masks)
    both, sums, shown = ((p * t).sum(axes)[1:], (p + t).sum(axes)[1:], t.sum(axes)[1:] > 0)
    return (2 * both / sums.clamp_min(1) * shown).sum() / shown.sum().clamp_min(1)


def _compared(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Probabilities and masks as such, both (B, K, *S) in single precision at least, and the axes that are not classes."""
    p = softmax(logits)
    t = F.one_hot(masks, logits.shape[1]).movedim(-1, 1).to(p)  # (B, *S, K) → (B, K, *S)
    return p, t, [0, *range(2, p.ndim)]
