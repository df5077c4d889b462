"""Smooth functions from a few numbers: the cubic B-spline basis as a matrix, one per axis."""

from functools import lru_cache

import numpy as np
from scipy.interpolate import BSpline


@lru_cache(maxsize=64)
def bspline_matrix(size: int, points: int) -> np.ndarray:
    """The matrix A (size × points) that turns ``points`` ≥ 4 control values on a line into ``size`` smooth samples.

    A[s, p] = β³(x_s − p), with x_s spread evenly over [1, points − 2], where the basis sums to one; β³ is the cubic
    B-spline. Applied along each axis in turn it makes a smooth field of any dimension.
    """
    matrix = BSpline.design_matrix(np.linspace(1.0, points - 2.0, size), np.arange(-2.0, points + 2.0), k=3).toarray()
    matrix.setflags(write=False)
    return matrix
