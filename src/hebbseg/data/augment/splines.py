"""Smooth functions from a few numbers: the cubic B-spline basis as a matrix, one per axis."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=64)
def bspline_matrix(size: int, points: int) -> np.ndarray:
    """The matrix A (size × points) that turns ``points`` control values on a line into ``size`` smooth samples.

    A[s, p] = β³(x_s − p), with x_s spread evenly over [1, points − 2], where the basis sums to one; β³ is the cubic
    B-spline. Applied along each axis in turn it makes a smooth field of any dimension.
    """
    if points < 4:
        raise ValueError(f"points={points}: a cubic B-spline needs at least 4 control points.")
    positions = np.linspace(1.0, points - 2.0, size)
    distance = np.abs(positions[:, None] - np.arange(points)[None, :])
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    matrix = np.where(distance < 1, near, far)
    matrix.setflags(write=False)
    return matrix
