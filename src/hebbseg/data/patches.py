"""Random patches from 2D and 3D arrays of any size."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hebbseg.data.cases import IGNORE

PATCH_3D = (96, 96, 80)
POINTS_PER_CLASS = 4096


def random_start(shape: Sequence[int], patch: Sequence[int], generator: torch.Generator) -> list[int]:
    """Return a random start inside the array; along axes shorter than the patch, center it (negative start)."""
    return [
        int(torch.randint(size - wanted + 1, (), generator=generator)) if size > wanted else (size - wanted) // 2
        for size, wanted in zip(shape, patch, strict=True)
    ]


def start_around(point: Sequence[int], shape: Sequence[int], patch: Sequence[int], generator: torch.Generator) -> list[int]:
    """Return a random start of a patch that contains ``point`` and, if possible, lies inside the array."""
    start = []
    for where, size, wanted in zip(point, shape, patch, strict=True):
        if size > wanted:
            low, high = max(0, where - wanted + 1), min(where, size - wanted)
            start.append(low + int(torch.randint(high - low + 1, (), generator=generator)))
        else:
            start.append((size - wanted) // 2)
    return start


def cut(array: Tensor, start: Sequence[int], patch: Sequence[int], fill: int = 0) -> Tensor:
    """Return a copy, (…, *patch), of the patch of (…, *S) at ``start``, padded with ``fill`` beyond the array.

    Zero is the mean of a normalized image, the background of a mask and the padding of sliding-window prediction.
    """
    dims = len(patch)
    result = array.new_full((*array.shape[:-dims], *patch), fill)
    source, target = array, result
    for axis, (begin, wanted) in enumerate(zip(start, patch, strict=True), start=array.ndim - dims):
        low, high = max(0, begin), min(array.shape[axis], begin + wanted)
        source = source.narrow(axis, low, high - low)
        target = target.narrow(axis, low - begin, high - low)
    target.copy_(source)
    return result


def foreground_points(mask: Tensor) -> list[Tensor]:
    """Return up to 4096 evenly spaced positions, (n, dims), of each foreground class that occurs."""
    points = []
    for index in torch.unique(mask).tolist():
        if index not in (0, IGNORE):
            points.append(_sampled(mask == index))
    return points


def annotated_points(mask: Tensor) -> Tensor | None:
    """Return up to 4096 evenly spaced positions, (n, dims), of annotated pixels; None if every pixel is annotated."""
    annotated = mask != IGNORE
    return None if bool(annotated.all()) else _sampled(annotated)


def _sampled(area: Tensor) -> Tensor:
    positions = area.nonzero()
    return positions[:: max(1, -(-len(positions) // POINTS_PER_CLASS))].clone()
