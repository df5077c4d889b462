"""Resampling of masks and class probabilities between the pixel grid of the files and the size used in training."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}
TIE = 1e-5  # class fractions closer than this are equal: rounding errors must not decide between classes


def resized_mask(mask: Tensor, size: Sequence[int], classes: int) -> Tensor:
    """Return class indices (*S) uint8 at another size: the class that covers most of each new pixel.

        class(p) = argmax_k  |{x in p: mask(x) = k}| / |p|

    where p is the area of a new pixel on the old grid; pixels that it covers in part count in part. Of equal fractions, the
    lowest class wins. Along an axis that is enlarged, the nearest pixel is taken.

    Args:
        mask: class indices 0 … classes − 1. Other values, such as pixels to ignore, are resized like a further class.
        size: the new size, one number per axis.

    >>> resized_mask(torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]], dtype=torch.uint8), (1, 2), classes=2)
    tensor([[0, 1]], dtype=torch.uint8)
    """
    if tuple(mask.shape) == tuple(size):
        return mask
    weights = [_axis_weights(old, new) for old, new in zip(mask.shape, size, strict=True)]
    present = torch.bincount(mask.flatten(), minlength=classes).nonzero().flatten().tolist()
    best = torch.full(tuple(size), -1.0)
    found = torch.zeros(tuple(size), dtype=torch.uint8)
    for value in present:  # one class at a time, as volumes are large
        fraction = _averaged((mask == value).float(), weights)
        larger = fraction > best + TIE
        found[larger] = value
        best = torch.where(larger, fraction, best)
    return found


def resampled_image(image: Tensor, size: Sequence[int]) -> Tensor:
    """Return a volume (C, *S) at another size, float32 (C, *size), by linear interpolation with anti-aliasing.

        new(p) = Σ_x h((x − p) / max(1, f)) old(x) / Σ_x h((x − p) / max(1, f)),    h(d) = max(0, 1 − |d|)

    along each axis, where f is the factor by which the axis shrinks; positions are the centers of voxels. The corners of the
    volume stay in place.
    """
    values = image.float()
    channels, *old = values.shape
    # PyTorch has anti-aliasing for two axes: first the last two, then the first one beside all others.
    if old[1:] != list(size[1:]):
        values = F.interpolate(values, size=list(size[1:]), mode="bilinear", antialias=True)  # (C, Z, Y, X) → (C, Z, Y', X')
    if old[0] != size[0]:
        flat = values.flatten(2)[None]  # (1, C, Z, Y'·X')
        values = F.interpolate(flat, size=[size[0], flat.shape[3]], mode="bilinear", antialias=True)[0]
    return values.reshape(channels, *size)


def resized_probabilities(probabilities: Tensor, size: Sequence[int]) -> Tensor:
    """Return class probabilities (K, *S) at another size, (K, *size), by bilinear (volumes: trilinear) interpolation."""
    if tuple(probabilities.shape[1:]) == tuple(size):
        return probabilities
    mode = INTERPOLATION[len(size)]
    return F.interpolate(probabilities[None], size=tuple(size), mode=mode, align_corners=False)[0]


def resized_classes(probabilities: Tensor, size: Sequence[int]) -> Tensor:
    """Return the most probable class (*size) uint8 of probabilities (K, *S): the argmax of `resized_probabilities`.

    Classes are enlarged one by one, so memory does not grow with their number. Of equal probabilities, the lowest class wins.
    """
    best = resized_probabilities(probabilities[:1], size)[0]
    found = torch.zeros(tuple(size), dtype=torch.uint8)
    for index in range(1, len(probabilities)):
        other = resized_probabilities(probabilities[index : index + 1], size)[0]
        found.masked_fill_(other > best, index)
        best = torch.maximum(best, other)
    return found


def _averaged(values: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Apply one matrix (new, old) to each axis of ``values`` (*S), shrinking axes first."""
    order = sorted(range(values.dim()), key=lambda axis: weights[axis].shape[0] / weights[axis].shape[1])
    for axis in order:
        values = (values.movedim(axis, -1) @ weights[axis].T).movedim(-1, axis)  # (…, old) → (…, new)
    return values


def _axis_weights(old: int, new: int) -> Tensor:
    """Return the share of each old pixel in each new pixel along an axis, (new, old); rows sum to 1."""
    if new >= old:  # the nearest pixel
        nearest = ((torch.arange(new, dtype=torch.float64) + 0.5) * (old / new)).long().clamp(max=old - 1)
        return F.one_hot(nearest, old).float()
    edges = torch.arange(new + 1, dtype=torch.float64) * (old / new)
    pixel = torch.arange(old, dtype=torch.float64)
    overlap = torch.minimum(edges[1:, None], pixel + 1) - torch.maximum(edges[:-1, None], pixel)  # (new, old)
    return (overlap.clamp(min=0) / (old / new)).float()
