"""The supervised loss that every method shares."""

from collections.abc import Callable

from monai.losses import DiceCELoss, DiceLoss
from torch import Tensor


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
