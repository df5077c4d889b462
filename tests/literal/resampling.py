"""Resampling pixel by pixel, in exact fractions."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import torch


def resized_mask(mask: torch.Tensor, size: tuple[int, ...], classes: int) -> torch.Tensor:
    """Every new pixel: its overlap with every old pixel."""
    found = torch.zeros(size, dtype=torch.uint8)
    for new in product(*map(range, size)):
        areas = [Fraction(0)] * classes
        per_axis = []
        for place, old_size, new_size in zip(new, mask.shape, size, strict=True):
            step = Fraction(old_size, new_size)
            if new_size >= old_size:
                per_axis.append([(math.floor((place + Fraction(1, 2)) * step), Fraction(1))])
                continue
            low, high = place * step, (place + 1) * step
            per_axis.append([(i, min(high, i + 1) - max(low, i)) for i in range(old_size) if i + 1 > low and i < high])
        for parts in product(*per_axis):
            areas[int(mask[tuple(i for i, _ in parts)])] += math.prod(share for _, share in parts)
        found[new] = areas.index(max(areas))
    return found


def enlarged_classes(small: torch.Tensor, size: tuple[int, int], classes: int) -> torch.Tensor:
    """The class with the largest bilinear weight among the four nearest pixels of each new pixel."""
    found = torch.zeros(size, dtype=torch.uint8)
    for new in product(*map(range, size)):
        weights = [Fraction(0)] * classes
        neighbors = []
        for place, old_size, new_size in zip(new, small.shape, size, strict=True):
            where = max(Fraction(0), (place + Fraction(1, 2)) * Fraction(old_size, new_size) - Fraction(1, 2))
            low = min(math.floor(where), old_size - 1)
            share = where - low
            neighbors.append([(low, 1 - share), (min(low + 1, old_size - 1), share)])
        for (row, a), (column, b) in product(*neighbors):
            weights[int(small[row, column])] += a * b
        found[new] = weights.index(max(weights))
    return found


def round_trip_dice(mask: torch.Tensor, size: tuple[int, int], classes: int) -> dict[int, float]:
    back = enlarged_classes(resized_mask(mask, size, classes), tuple(mask.shape), classes)
    dice = {}
    for k in range(1, classes):
        true = {tuple(p) for p in (mask == k).nonzero().tolist()}
        found = {tuple(p) for p in (back == k).nonzero().tolist()}
        if true:
            dice[k] = 2 * len(true & found) / (len(true) + len(found))
    return dice


def resampled_image(image: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Linear interpolation; a triangle as wide as a new voxel where an axis shrinks. Voxel by voxel."""
    found = np.zeros(size)
    for new in product(*map(range, size)):
        per_axis = []
        for place, old_size, new_size in zip(new, image.shape, size, strict=True):
            step = old_size / new_size
            center, width = (place + 0.5) * step - 0.5, max(1.0, step)
            if new_size >= old_size:
                center = min(max(center, 0.0), old_size - 1.0)
            weights = [max(0.0, 1 - abs(i - center) / width) for i in range(old_size)]
            per_axis.append([(i, weight / sum(weights)) for i, weight in enumerate(weights) if weight])
        for parts in product(*per_axis):
            found[new] += image[tuple(i for i, _ in parts)] * math.prod(weight for _, weight in parts)
    return found
