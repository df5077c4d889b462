"""Random pairs of masks for the metric tests: blobs, specks, slabs against the border, noise."""

from collections.abc import Iterator

import numpy as np
from scipy.ndimage import gaussian_filter


def random_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A mask that is not empty: a smooth blob pattern, a box (often touching the border), noise or a single voxel."""
    kind = rng.choice(["blobs", "box", "noise", "voxel"], p=[0.5, 0.25, 0.15, 0.1])
    if kind == "blobs":
        field = gaussian_filter(rng.standard_normal(shape), rng.uniform(0.8, 3))
        mask = field > np.quantile(field, rng.uniform(0.3, 0.95))
    elif kind == "box":
        mask = np.zeros(shape, dtype=bool)
        corners = [sorted(rng.integers(0, n + 1, 2)) for n in shape]
        mask[tuple(slice(a, b) for a, b in corners)] = True
    elif kind == "noise":
        mask = rng.random(shape) < rng.uniform(0.05, 0.95)
    else:
        mask = np.zeros(shape, dtype=bool)
    if not mask.any():
        mask[tuple(rng.integers(0, n) for n in shape)] = True
    return mask


def random_pairs(
    n_pairs: int, n_axes: int, largest: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[float, ...]]]:
    """Pairs of non-empty masks of one random shape, with a random anisotropic spacing."""
    rng = np.random.default_rng(seed)
    for _ in range(n_pairs):
        shape = tuple(int(n) for n in rng.integers(1, largest + 1, n_axes))
        spacing = tuple(float(s) for s in rng.uniform(0.3, 4, n_axes))
        first = random_mask(rng, shape)
        # Half of the pairs lie close together, as a prediction and its target do.
        second = first ^ (rng.random(shape) < 0.05) if rng.random() < 0.5 else random_mask(rng, shape)
        yield first, second if second.any() else first, spacing
