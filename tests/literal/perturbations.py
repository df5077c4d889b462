"""Feature perturbations, element by element, in float64. Arrays: x (B, C, *S), masks (B, *S); random draws are arguments."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from tests.literal.methods import mean, positions, softmax, vector


def noise(x: np.ndarray, drawn: np.ndarray, extent: float) -> np.ndarray:
    """``drawn`` is in [0, 1), one number per element."""
    result = np.empty_like(x)
    for index in np.ndindex(x.shape):
        result[index] = x[index] * (1 + extent * (2 * drawn[index] - 1))
    return result


def dropout(x: np.ndarray, drawn: np.ndarray, rate: float) -> np.ndarray:
    """``drawn`` is in [0, 1), one number per channel (B, C)."""
    result = np.empty_like(x)
    for b, c in np.ndindex(x.shape[:2]):
        result[b, c] = x[b, c] / (1 - rate) if drawn[b, c] >= rate else 0
    return result


def drop(x: np.ndarray, drawn: np.ndarray, low: float, high: float) -> np.ndarray:
    """``drawn`` is in [0, 1), one number per image (B,)."""
    result = x.copy()
    activation = {(b, s): mean(vector(x, b, s)) for b, s in positions(x)}
    for b in range(len(x)):
        largest = max(value for (image, _), value in activation.items() if image == b)
        for s in product(*(range(n) for n in x.shape[2:])):
            if activation[b, s] >= (low + (high - low) * drawn[b]) * largest:
                result[(b, slice(None), *s)] = 0
    return result


def masked_out(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The value of the mask at a position of x is that at the same relative position, rounded down."""
    result = x.copy()
    for b, s in positions(x):
        there = tuple(i * full // small for i, full, small in zip(s, mask.shape[1:], x.shape[2:]))
        if mask[(b, *there)]:
            result[(b, slice(None), *s)] = 0
    return result


def object_mask(x: np.ndarray, label: np.ndarray) -> np.ndarray:
    """``label`` has class indices; all but 0 are objects."""
    return masked_out(x, np.array([[value != 0 for value in image.ravel()] for image in label]).reshape(label.shape))


def context_mask(x: np.ndarray, label: np.ndarray) -> np.ndarray:
    return masked_out(x, np.array([[value == 0 for value in image.ravel()] for image in label]).reshape(label.shape))


def bounding_boxes(image: np.ndarray, smallest: int) -> list[tuple[tuple[int, int], ...]]:
    """(first, last) along each axis for every connected component, diagonal neighbours included, by first position."""
    left = {tuple(int(i) for i in c) for c in np.argwhere(image)}
    found = []
    for start in sorted(left):
        if start not in left:
            continue
        part, edge = {start}, [start]
        left.discard(start)
        while edge:
            cell = edge.pop()
            for step in product((-1, 0, 1), repeat=image.ndim):
                near = tuple(a + d for a, d in zip(cell, step))
                if near in left:
                    left.discard(near)
                    part.add(near)
                    edge.append(near)
        if len(part) >= smallest:
            found.append(tuple((min(axis), max(axis)) for axis in zip(*part)))
    return found


def guided_cutout(foreground: np.ndarray, below: Callable[[int], int], share: float, smallest: int) -> np.ndarray:
    """``below(n)`` draws one of 0 … n − 1."""
    mask = np.zeros(foreground.shape, dtype=bool)
    for b, image in enumerate(foreground):
        for bounds in bounding_boxes(image, smallest):
            ranges = []
            for first, last in bounds:
                length = last - first + 1
                side = max(1, math.floor(share * length))
                start = first + below(length - side + 1)
                ranges.append(range(start, start + side))
            for s in product(*ranges):
                mask[(b, *s)] = True
    return mask


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Σ KL(p ‖ q) over all images and positions."""
    return math.fsum(u * math.log(u / v) for b, s in positions(p) for u, v in zip(vector(p, b, s), vector(q, b, s)))


def adversarial(z: np.ndarray, drawn: np.ndarray, logits: Callable[[np.ndarray], np.ndarray], ξ: float, ε: float) -> np.ndarray:
    """``drawn`` is in [0, 1), one number per element; the gradient is a central difference for each element."""
    d = drawn - 0.5
    for image in d:
        image /= math.sqrt(math.fsum(v * v for v in image.ravel()))
    p, h, g = softmax(logits(z)), 1e-3, np.empty_like(z)
    for index in np.ndindex(z.shape):
        sides = []
        for sign in (1, -1):
            near = d.copy()
            near[index] += sign * h
            sides.append(divergence(p, softmax(logits(z + ξ * near))))
        g[index] = (sides[0] - sides[1]) / (2 * h)
    for image in g:
        image *= ε / math.sqrt(math.fsum(v * v for v in image.ravel()))
    return g
