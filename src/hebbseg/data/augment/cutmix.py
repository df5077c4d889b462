"""Boxes for CutMix and copy-paste."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


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


def mixed(inside: Tensor, outside: Tensor, boxes: Tensor) -> Tensor:
    """Return ``inside`` in the boxes and ``outside`` elsewhere.

    Shapes: images (B, C, *S) or masks (B, *S); boxes (B, *S), or (1, *S) for one box in the whole batch.
    """
    boxes = boxes.to(inside.device)
    if inside.ndim > boxes.ndim:
        boxes = boxes.unsqueeze(1)  # (B, *S) → (B, 1, *S)
    return torch.where(boxes, inside, outside)
