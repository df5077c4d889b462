"""Masks of structures of known thickness."""

import numpy as np
import torch


def blobs(shape: tuple[int, int] = (400, 400), radius: int = 60, seed: int = 0) -> torch.Tensor:
    """A few large discs."""
    draw = np.random.default_rng(seed)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    mask = np.zeros(shape, np.uint8)
    for _ in range(3):
        row, column = (int(draw.integers(radius, side - radius)) for side in shape)
        mask[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1
    return torch.from_numpy(mask)


def lines(shape: tuple[int, int] = (400, 400), width: float = 3.0, seed: int = 0) -> torch.Tensor:
    """Curved lines."""
    draw = np.random.default_rng(seed)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    mask = np.zeros(shape, np.uint8)
    for number in range(6):
        center = shape[1] * (number + 0.5) / 6 + 20 * np.sin(rows / draw.uniform(20, 60))
        mask[np.abs(columns - center) < width / 2] = 1
    return torch.from_numpy(mask)
