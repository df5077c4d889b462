"""Segmentation losses and a soft Dice score."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from monai.losses import DiceCELoss, DiceLoss
from torch import Tensor

from hebbseg.data.cases import IGNORE
from hebbseg.methods.ops import confident_cross_entropy, softmax


def segmentation_loss(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss ``"dice"`` or ``"dice+ce"`` of logits (B, K, *S) and class indices (B, *S).

    The Dice term is computed over the batch, 1 − (2 Σ p·t + 1) / (Σ p + Σ t + 1) per class, then averaged: a class that is
    neither present nor predicted has no loss. Both terms are computed over the annotated pixels, those whose index is not
    `IGNORE`, so the gradient at all others is zero.
    """
    options = {"softmax": True, "to_onehot_y": True, "batch": True, "smooth_nr": 1.0, "smooth_dr": 1.0}
    criterion = DiceCELoss(**options) if kind == "dice+ce" else DiceLoss(**options)

    def loss(logits: Tensor, masks: Tensor) -> Tensor:
        annotated = masks != IGNORE
        if not annotated.all():
            wide = logits if logits.dtype == torch.float64 else logits.float()
            return region_loss(wide, masks, annotated, kind)
        value = criterion(logits.float(), masks.unsqueeze(1))  # (B, *S) → (B, 1, *S)
        assert isinstance(value, Tensor)
        return value

    return loss


def region_loss(logits: Tensor, masks: Tensor, region: Tensor, loss: str) -> Tensor:
    """Return the `segmentation_loss` restricted to the annotated pixels of a region.

    Shapes: logits (B, K, *S), class indices (B, *S), boolean region (B, *S) → ().
    """
    p, t, axes = _compared(logits, masks)
    annotated = masks != IGNORE
    region = region & annotated
    m = region.unsqueeze(1).to(p)  # (B, 1, *S)
    p, t = p * m, t * m
    dice = 1 - (2 * (p * t).sum(axes) + 1) / (p.sum(axes) + t.sum(axes) + 1)
    if loss == "dice":
        return dice.mean()
    losses = F.cross_entropy(logits, masks.where(annotated, 0), reduction="none")
    return dice.mean() + (losses * region).sum() / region.sum().clamp_min(1)


def pseudo_label_loss(logits: Tensor, label: Tensor, confidence: Tensor, threshold: float, loss: str) -> Tensor:
    """Return the cross-entropy (``"ce"``) or Dice loss (``"dice"``) of pseudo-labels where confidence ≥ threshold.

    Shapes: logits (B, K, *S), label and confidence (B, *S) → ().
    """
    if loss == "ce":
        return confident_cross_entropy(logits, label, confidence, threshold)
    return region_loss(logits, label, confidence >= threshold, "dice")


@torch.no_grad()
def foreground_dice(logits: Tensor, masks: Tensor) -> Tensor:
    """Return 2 Σ p·t / Σ (p + t) over the annotated pixels, averaged over the foreground classes in the masks.

    The sums are over the batch; the result is 0 if there is no foreground.

    Shapes: logits (B, K, *S), class indices (B, *S) → ().
    """
    p, t, axes = _compared(logits, masks)
    both, sums, shown = ((p * t).sum(axes)[1:], (p + t).sum(axes)[1:], t.sum(axes)[1:] > 0)
    return (2 * both / sums.clamp_min(1) * shown).sum() / shown.sum().clamp_min(1)


def _compared(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Return probabilities and one-hot masks, both (B, K, *S) in at least float32, and the axes other than classes.

    Both are zero at pixels that are not annotated.
    """
    p = softmax(logits)
    annotated = masks != IGNORE
    t = F.one_hot(masks.where(annotated, 0), logits.shape[1]).movedim(-1, 1).to(p)  # (B, *S, K) → (B, K, *S)
    if not annotated.all():
        m = annotated.unsqueeze(1).to(p)  # (B, 1, *S)
        p, t = p * m, t * m
    return p, t, [0, *range(2, p.ndim)]
