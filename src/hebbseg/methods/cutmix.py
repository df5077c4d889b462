"""Box masks for CutMix and copy-paste."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hebbseg.data.augment.views import Augment
from hebbseg.data.cases import IGNORE


def box_mask(size: Sequence[int], sides: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return a mask (*S) that is True in a box of the given sides at a random position."""
    mask = torch.zeros(tuple(size), dtype=torch.bool)
    starts = [int(torch.randint(n - min(n, side) + 1, (), generator=generator)) for n, side in zip(size, sides, strict=True)]
    mask[tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))] = True
    return mask


def copy_paste_box(size: Sequence[int], share: float, generator: torch.Generator) -> Tensor:
    """Return one box mask (1, *S) for the whole batch, with sides of ``share`` times those of the image."""
    return box_mask(size, [max(1, int(share * n)) for n in size], generator).unsqueeze(0)


def cutmix_boxes(
    count: int,
    size: Sequence[int],
    chance: float,
    generator: torch.Generator,
    *,
    area: tuple[float, float] = (0.02, 0.4),
    ratio: float = 1 / 0.3,
) -> Tensor:
    """Return box masks (count, *S); an image has a box with probability ``chance``.

    The area of a box is a uniform fraction in ``area`` of the image; its sides differ by a factor of up to ``ratio``.
    """
    masks = torch.zeros(count, *size, dtype=torch.bool)
    axes = len(size)
    for mask in masks:
        drawn = torch.rand(2 + axes, generator=generator).tolist()
        if drawn[0] >= chance:
            continue
        volume = area[0] + (area[1] - area[0]) * drawn[1]
        # Log ratios of the sides with zero mean keep the volume.
        stretch = [math.log(ratio) * (u - sum(drawn[2:]) / axes) for u in drawn[2:]]
        sides = [min(n, max(1, round(n * volume ** (1 / axes) * math.exp(s)))) for n, s in zip(size, stretch, strict=True)]
        mask.copy_(box_mask(size, sides, generator))
    return masks


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


def mixed(inside: Tensor, outside: Tensor, boxes: Tensor) -> Tensor:
    """Return ``inside`` in the boxes and ``outside`` elsewhere.

    Shapes: images (B, C, *S) or masks (B, *S); boxes (B, *S), or (1, *S) for one box in the whole batch.
    """
    boxes = boxes.to(inside.device)
    if inside.ndim > boxes.ndim:
        boxes = boxes.unsqueeze(1)  # (B, *S) → (B, 1, *S)
    return torch.where(boxes, inside, outside)
