"""Boxes in which one image is replaced by another."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def box_mask(size: Sequence[int], sides: Sequence[int], generator: torch.Generator) -> Tensor:
    """True inside a box with the given sides, anywhere in the image. Shapes: (*S)."""
    mask = torch.zeros(tuple(size), dtype=torch.bool)
    starts = [int(torch.randint(n - min(n, side) + 1, (), generator=generator)) for n, side in zip(size, sides, strict=True)]
    mask[tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))] = True
    return mask


def copy_paste_box(size: Sequence[int], share: float, generator: torch.Generator) -> Tensor:
    """BCP's box, one for the whole batch: every side is ``share`` of the image's. Shapes: (1, *S) of truth values."""
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
    """For every image a box or, with 1 − ``chance``, none.

    The box takes a uniform share in ``area`` of the image; its sides differ by a factor of up to ``ratio``.
    Shapes: (count, *S) of truth values.
    """
    masks = torch.zeros(count, *size, dtype=torch.bool)
    axes = len(size)
    for mask in masks:
        drawn = torch.rand(2 + axes, generator=generator).tolist()
        if drawn[0] >= chance:
            continue
        volume = area[0] + (area[1] - area[0]) * drawn[1]
        # Logarithms of the sides less their mean, so that the volume stays what it is.
        stretch = [math.log(ratio) * (u - sum(drawn[2:]) / axes) for u in drawn[2:]]
        sides = [min(n, max(1, round(n * volume ** (1 / axes) * math.exp(s)))) for n, s in zip(size, stretch, strict=True)]
        mask.copy_(box_mask(size, sides, generator))
    return masks


def mixed(inside: Tensor, outside: Tensor, boxes: Tensor) -> Tensor:
    """``inside`` in the boxes, ``outside`` elsewhere.

    Shapes: twice (B, C, *S) or twice (B, *S); boxes (B, *S), or (1, *S) for one box in all → as the first.
    """
    boxes = boxes.to(inside.device)
    if inside.ndim > boxes.ndim:
        boxes = boxes.unsqueeze(1)  # (B, *S) → (B, 1, *S)
    return torch.where(boxes, inside, outside)
