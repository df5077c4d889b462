"""Strong views with CutMix."""

import torch
from torch import Tensor

from hebbseg.data.augment.cutmix import cutmix_boxes, mixed
from hebbseg.data.augment.views import Augment
from hebbseg.data.cases import IGNORE


def strong_view(
    images: Tensor,
    label: Tensor,
    confidence: Tensor,
    augment: Augment,
    chance: float,
    generator: torch.Generator,
    pasted: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a strong view of the images (B, C, *S) with CutMix, and its pseudo-label and confidence (B, *S).

    Args:
        pasted: labelled images (L, C, *S) and masks (L, *S), from which the boxes are filled instead of from the next image
            of the batch; their confidence is 1, and −1, which no threshold admits, where the masks are not annotated.
    """
    strong = augment.strong(images, generator)
    boxes = cutmix_boxes(len(images), images.shape[2:], chance, generator)
    if pasted is None:
        inside = tuple(x.roll(1, dims=0) for x in (strong, label, confidence))
    else:
        turns = torch.arange(len(images), device=images.device) % len(pasted[0])
        masks = pasted[1][turns]
        annotated = masks != IGNORE
        known = torch.where(annotated, torch.ones_like(confidence), -1)
        inside = (augment.strong(pasted[0][turns], generator), masks.where(annotated, 0), known)
    view, label, confidence = (mixed(new, old, boxes) for new, old in zip(inside, (strong, label, confidence), strict=True))
    return view, label, confidence
