"""Overlap and surface distances voxel by voxel, pair by pair, in float64."""

import math
from itertools import product

import numpy as np


def surface_voxels(mask: np.ndarray) -> list[tuple[int, ...]]:
    """Voxels of the mask with at least one face neighbour that is background or beyond the image."""
    found = []
    for voxel in product(*(range(n) for n in mask.shape)):
        if not mask[voxel]:
            continue
        for axis, step in product(range(mask.ndim), (-1, 1)):
            neighbour = list(voxel)
            neighbour[axis] += step
            beyond = not 0 <= neighbour[axis] < mask.shape[axis]
            if beyond or not mask[tuple(neighbour)]:
                found.append(voxel)
                break
    return found


def directed_distances(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> list[float]:
    """For each surface voxel of a, the smallest distance to any surface voxel of b."""
    targets = surface_voxels(b)
    return [
        min(math.sqrt(sum(((p - q) * s) ** 2 for p, q, s in zip(v, w, spacing))) for w in targets) for v in surface_voxels(a)
    ]


def percentile95(values: list[float]) -> float:
    """Linear interpolation between the two order statistics around position 0.95 (n − 1)."""
    ordered = sorted(values)
    position = 0.95 * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def annotated_metrics(p: np.ndarray, t: np.ndarray, ignored: np.ndarray, spacing: tuple[float, ...]) -> dict[str, float]:
    """Overlap of the voxels that are not ignored; distances between surfaces of masks that are empty in the ignored ones."""
    known = [voxel for voxel in product(*(range(n) for n in p.shape)) if not ignored[voxel]]
    both, n_p, n_t = (
        sum(1 for voxel in known if belongs(voxel)) for belongs in (lambda v: p[v] and t[v], lambda v: p[v], lambda v: t[v])
    )
    overlap = {"n_intersection": both, "n_prediction": n_p, "n_target": n_t}
    if n_p + n_t:
        overlap |= {"dice": 2 * both / (n_p + n_t), "jaccard": both / (n_p + n_t - both)}
    else:
        overlap |= {"dice": 1.0, "jaccard": 1.0}
    inside = np.zeros(p.shape, dtype=bool), np.zeros(p.shape, dtype=bool)
    for voxel in known:
        inside[0][voxel], inside[1][voxel] = p[voxel], t[voxel]
    distances = all_metrics(*inside, spacing)
    return overlap | {name: distances[name] for name in ("hd95", "hd95_max", "asd")}


def all_metrics(p: np.ndarray, t: np.ndarray, spacing: tuple[float, ...]) -> dict[str, float]:
    both = sum(bool(a) and bool(b) for a, b in zip(p.flat, t.flat))
    n_p, n_t = sum(map(bool, p.flat)), sum(map(bool, t.flat))
    if n_p == 0 and n_t == 0:
        return {"dice": 1.0, "jaccard": 1.0, "hd95": 0.0, "hd95_max": 0.0, "asd": 0.0}
    if n_p == 0 or n_t == 0:
        diagonal = math.sqrt(sum((n * s) ** 2 for n, s in zip(p.shape, spacing)))
        return {"dice": 0.0, "jaccard": 0.0, "hd95": diagonal, "hd95_max": diagonal, "asd": diagonal}
    there, back = directed_distances(p, t, spacing), directed_distances(t, p, spacing)
    return {
        "dice": 2 * both / (n_p + n_t),
        "jaccard": both / (n_p + n_t - both),
        "hd95": percentile95(there + back),
        "hd95_max": max(percentile95(there), percentile95(back)),
        "asd": math.fsum(there + back) / (len(there) + len(back)),
    }
