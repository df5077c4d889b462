"""Cubic B-spline basis matrices for smooth random fields."""

from functools import lru_cache

import numpy as np
from scipy.interpolate import BSpline


@lru_cache(maxsize=64)
def bspline_matrix(size: int, points: int) -> np.ndarray:
    """Return the matrix A (size × points) that maps ``points`` ≥ 4 control values to ``size`` smooth samples.

    A[s, p] = β³(x_s − p) with the cubic B-spline β³ and x_s evenly spaced in [1, points − 2], where the basis sums to
    one. Applied along each axis, it yields a smooth field of any dimension.
    """
    matrix = BSpline.design_matrix(np.linspace(1.0, points - 2.0, size), np.arange(-2.0, points + 2.0), k=3).toarray()
    matrix.setflags(write=False)
    return matrix
