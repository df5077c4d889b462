"""Surfaces of binary masks and the distances between them, exact, in two or three dimensions."""

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree


def bounding_box(mask: np.ndarray) -> tuple[slice, ...]:
    """The smallest box that holds every true voxel of a mask that has at least one."""
    box: tuple[slice, ...] = ()
    for axis in range(mask.ndim):
        # Cropping as we go: each later axis looks only at what the earlier ones left.
        others = tuple(other for other in range(mask.ndim) if other != axis)
        used = np.flatnonzero(mask[box].any(axis=others))
        box = (*box, slice(int(used[0]), int(used[-1]) + 1))
    return box


def surface(mask: np.ndarray) -> np.ndarray:
    """The voxels of a mask with a face neighbour outside it; what lies beyond the image counts as outside.

    This is ``mask ^ binary_erosion(mask)`` with the cross as structuring element: the surface of medpy
    (``connectivity=1``) and of MONAI.
    """
    interior = mask.copy()
    for axis in range(mask.ndim):
        inside, whole = np.moveaxis(interior, axis, 0), np.moveaxis(mask, axis, 0)
        inside[0] = inside[-1] = False
        inside[1:] &= whole[:-1]
        inside[:-1] &= whole[1:]
    return mask & ~interior


def surface_distances(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """For each surface voxel of ``a`` the Euclidean distance to the nearest surface voxel of ``b``, and the reverse.

    Args:
        a, b: boolean masks of one shape, neither of them empty.
        spacing: the distance between neighbouring voxels along each axis.

    Returns:
        Two float64 vectors, as long as the two surfaces have voxels, in no particular order.
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
    """How many voxels a distance transform passes in the time of one search in the tree.

    A tree pays per surface voxel, and more when the nearest target is ``distance`` voxels away, for then it must look
    at the part of the surface that is about as far: ∝ distanceⁿ⁻¹. A transform pays per voxel of the box, whatever it
    holds. Fitted to timings on hearts, glands, spheres and noise. Both are exact, the choice decides only the time: on
    a heart the tree is four times faster, on noise or an "everything is foreground" the transform is, up to twenty.
    """
    return 12.0 + 0.3 * distance ** (n_axes - 1)
