"""Surfaces of binary masks and exact distances between them, in 2D and 3D."""

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree


def bounding_box(mask: np.ndarray) -> tuple[slice, ...]:
    """Return the smallest box that contains all foreground voxels of a non-empty mask."""
    box: tuple[slice, ...] = ()
    for axis in range(mask.ndim):
        # Later axes search only within the box found so far.
        others = tuple(other for other in range(mask.ndim) if other != axis)
        used = np.flatnonzero(mask[box].any(axis=others))
        box = (*box, slice(int(used[0]), int(used[-1]) + 1))
    return box


def surface(mask: np.ndarray) -> np.ndarray:
    """Return the mask voxels with a face neighbor outside the mask or the image.

    Equals ``mask ^ binary_erosion(mask)`` with a cross as structuring element, as in medpy (``connectivity=1``) and MONAI.
    """
    interior = mask.copy()
    for axis in range(mask.ndim):
        inside, voxels = np.moveaxis(interior, axis, 0), np.moveaxis(mask, axis, 0)
        inside[0] = inside[-1] = False
        inside[1:] &= voxels[:-1]
        inside[:-1] &= voxels[1:]
    return mask & ~interior


def surface_distances(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the Euclidean distances from each surface voxel of ``a`` to the surface of ``b``, and vice versa.

    Args:
        a, b: boolean masks of the same shape, neither of them empty.
        spacing: distance between neighboring voxels along each axis.

    Returns:
        Two float64 vectors with one entry per surface voxel, in no particular order.
    """
    box = bounding_box(a | b)
    surface_a, surface_b = surface(a[box]), surface(b[box])
    return _to_nearest(surface_a, surface_b, spacing), _to_nearest(surface_b, surface_a, spacing)


def _to_nearest(sources: np.ndarray, targets: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    apart = sources & ~targets
    distances = np.zeros(np.count_nonzero(sources))  # voxels on both surfaces need no search
    points = np.argwhere(apart) * np.asarray(spacing)
    if len(points) * _voxels_per_query(0.0, apart.ndim) < apart.size:
        tree = KDTree(np.argwhere(targets) * np.asarray(spacing), leafsize=32, balanced_tree=False)
        sample = points[:: len(points) // 32 + 1]
        typical = tree.query(sample)[0].mean() / np.prod(spacing) ** (1 / apart.ndim) if len(sample) else 0.0
        if len(points) * _voxels_per_query(typical, apart.ndim) < apart.size:
            distances[: len(points)] = tree.query(points)[0]
            return distances
    distances[: len(points)] = distance_transform_edt(~targets, sampling=spacing)[apart]
    return distances


def _voxels_per_query(distance: float, n_axes: int) -> float:
    """Return the cost of one tree query in voxels of a distance transform, fitted to timings on organs and noise.

    A query costs more the farther the nearest target: ∝ distanceⁿ⁻¹ (in voxels). A transform costs the same for every
    voxel of the box. Both are exact; the tree is four times faster on a heart, the transform up to twenty times on noise.
    """
    return 12.0 + 0.3 * distance ** (n_axes - 1)
