"""Scribbles and annotated slices made from full masks, for studies of sparse labels."""

from itertools import product

import numpy as np
from scipy.ndimage import binary_dilation, generate_binary_structure
from skimage.morphology import skeletonize

from hebbseg.data.cases import IGNORE
from hebbseg.errors import HebbsegError

Voxel = tuple[int, ...]


def scribbles(mask: np.ndarray, generator: np.random.Generator, *, share: float = 0.02, width: int = 3) -> np.ndarray:
    """Return a mask in which only strokes are annotated, about ``share`` of the pixels of each class; the rest is `IGNORE`.

    A stroke is a random path along the skeleton of a class (background included), at most a quarter of the longer side of
    the image in length, drawn ``width`` pixels wide within the class. If the skeleton is too short, as that of a disc, further
    strokes lie anywhere in the class. Each class that occurs gets at least one stroke.

    Args:
        mask: class indices (*S), two or three axes; `IGNORE` stays.
        generator: chooses the paths.
        share: annotated fraction of the pixels of each class.
        width: width of a stroke in pixels.
    """
    if not 0 < share <= 1 or width < 1:
        raise HebbsegError(f"share={share}, width={width}: allowed are shares above 0 up to 1 and widths of 1 pixel or more.")
    drawn = np.full(mask.shape, IGNORE, np.uint8)
    for index in np.unique(mask).tolist():
        if index != IGNORE:
            drawn[_strokes(mask == index, generator, share, width)] = index
    return drawn


def _strokes(area: np.ndarray, generator: np.random.Generator, share: float, width: int) -> np.ndarray:
    """Return strokes (*S) within an area that cover about ``share`` of it."""
    wanted = max(1, round(share * int(area.sum())))
    longest = max(area.shape) // 4
    left = _voxels(skeletonize(area))
    drawn = np.zeros(area.shape, bool)
    while (missing := wanted - int(drawn.sum())) > 0:
        left = left or _voxels(area & ~drawn)
        path = _path(left, generator, max(1, min(longest, round(missing / width))))
        left -= set(path)
        line = np.zeros(area.shape, bool)
        line[tuple(np.array(path).T)] = True
        drawn |= _thickened(line, width) & area
    return drawn


def _voxels(area: np.ndarray) -> set[Voxel]:
    return {tuple(voxel) for voxel in np.argwhere(area).tolist()}


def _path(voxels: set[Voxel], generator: np.random.Generator, length: int) -> list[Voxel]:
    """Return a random path of up to ``length`` neighboring voxels, straight on where it can."""
    ordered = sorted(voxels)
    path = [ordered[int(generator.integers(len(ordered)))]]
    free = voxels - set(path)
    heading: np.ndarray | None = None
    while len(path) < length:
        steps = [step for step in product((-1, 0, 1), repeat=len(path[0])) if _moved(path[-1], step) in free]
        if not steps:
            break
        turn = generator.random(len(steps)) if heading is None else [-float(heading @ np.array(step)) for step in steps]
        step = steps[int(np.argmin(turn))]
        heading = np.array(step) if heading is None else 0.7 * heading + np.array(step)
        path.append(_moved(path[-1], step))
        free.discard(path[-1])
    return path


def _moved(voxel: Voxel, step: Voxel) -> Voxel:
    return tuple(a + b for a, b in zip(voxel, step, strict=True))


def _thickened(line: np.ndarray, width: int) -> np.ndarray:
    """Return a line (*S) drawn ``width`` pixels wide (rounded to an odd number)."""
    full = generate_binary_structure(line.ndim, line.ndim)
    thick: np.ndarray = binary_dilation(line, full, iterations=width // 2) if width > 1 else line
    return thick


def annotated_slices(mask: np.ndarray, count: int, *, axis: int = 0) -> np.ndarray:
    """Return a mask (*S) in which only ``count`` evenly spaced slices across ``axis`` are annotated; the rest is `IGNORE`.

    The slices span the extent of the foreground, or the whole volume if there is none.
    """
    inside = (mask != 0) & (mask != IGNORE)
    others = tuple(other for other in range(mask.ndim) if other != axis % mask.ndim)
    places = np.flatnonzero(inside.any(axis=others)) if inside.any() else np.arange(mask.shape[axis])
    if not 1 <= count <= mask.shape[axis]:
        raise HebbsegError(f"count={count}: allowed are 1 to {mask.shape[axis]} slices, the size of axis {axis}.")
    chosen = np.unique(places[0] + ((np.arange(count) + 0.5) * (places[-1] + 1 - places[0]) / count).astype(int))
    kept = np.full(mask.shape, IGNORE, np.uint8)
    where = tuple(chosen if a == axis % mask.ndim else slice(None) for a in range(mask.ndim))
    kept[where] = mask[where]
    return kept
