"""Connected areas of images too large for memory, numbered band by band in a file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy.ndimage import find_objects as slices_of
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from skimage.measure import label

from hebbseg.data.io import tiles
from hebbseg.data.io.tiles import release_pages

LARGEST = 2**22  # pixels of a window
Window = tuple[slice, ...]


@dataclass(kw_only=True)
class Areas:
    """Numbered areas of an image, 1 … n.

    Shapes:
        stored: (*S) int32 on disk: numbers within bands, 0 is background.
        number: (m,) number of the area of each stored number.
        sizes: (n + 1,) pixels of each area; 0 for number 0.
        boxes: (n + 1, 2, dims) first and last + 1 pixel of each area.
    """

    stored: np.ndarray
    number: np.ndarray
    sizes: np.ndarray
    boxes: np.ndarray

    def __getitem__(self, place: slice | Window) -> np.ndarray:
        return self.number[self.stored[place]]

    def replace(self, window: Window, chosen: np.ndarray, parts: np.ndarray) -> None:
        """Divide areas into parts: the ``chosen`` pixels of a window belong to new areas, ``parts`` (*s) 1 … k of them.

        The sizes of the old areas become 0.
        """
        old = np.unique(self[window][chosen])
        inside = np.where(chosen, parts, 0)
        of_window = self.stored[window]
        of_window[chosen] = inside[chosen] + (len(self.number) - 1)
        self.number = np.concatenate([self.number, len(self.sizes) + np.arange(inside.max(initial=0))])
        self.sizes[old] = 0
        self.sizes = np.concatenate([self.sizes, np.bincount(inside.ravel())[1:]])
        self.boxes = np.concatenate([self.boxes, boxes_of(inside) + [each.start for each in window]])


def connected_areas(read: Callable[[slice], np.ndarray], stored: np.ndarray) -> Areas:
    """Number the connected areas of a mask by their first pixels, as `skimage.measure.label` with ``connectivity=1``.

    Args:
        read: returns the mask of a range of rows.
        stored: (*S) int32 on disk, is overwritten.
    """
    dims, total, last = stored.ndim, 0, None
    sizes, boxes, pairs = [np.zeros(1, np.int64)], [np.zeros((1, 2, dims), np.int64)], [np.zeros((2, 0), np.int64)]
    for rows in row_bands(stored.shape):
        found, n = label(read(rows), connectivity=1, return_num=True)
        sizes.append(np.bincount(found.ravel(), minlength=n + 1)[1:])
        boxes.append(boxes_of(found) + np.eye(1, dims, dtype=np.int64) * rows.start)
        found[found > 0] += total
        if last is not None:
            touching = (last > 0) & (found[0] > 0)
            pairs.append(np.unique(np.stack([last[touching], found[0][touching]]), axis=1))
        stored[rows], last = found, found[-1].copy()
        release_pages(stored)
        total += n
    above, below = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(len(above), bool), (above, below)), shape=(total + 1, total + 1))
    _, group = connected_components(graph, directed=False)
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    number = first.argsort().argsort()[group]  # areas in the order of their first stored number
    n = int(number.max())
    merged = np.zeros((n + 1, 2, dims), np.int64)
    merged[:, 0] = np.iinfo(np.int64).max
    every = np.concatenate(boxes)
    np.minimum.at(merged[:, 0], number, every[:, 0])
    np.maximum.at(merged[:, 1], number, every[:, 1])
    counts = np.bincount(number, np.concatenate(sizes), n + 1).astype(np.int64)
    return Areas(stored=stored, number=number, sizes=counts, boxes=merged)


def row_bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield ranges along the first axis with at most about `hebbseg.data.io.tiles.BAND_PIXELS` pixels."""
    step = max(1, tiles.BAND_PIXELS // prod(shape[1:]))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def boxes_of(labels: np.ndarray) -> np.ndarray:
    """Return the boxes (n, 2, dims) of labels 1 … n, all of which occur."""
    found = [([each.start for each in box], [each.stop for each in box]) for box in slices_of(labels)]
    return np.array(found, np.int64).reshape(-1, 2, labels.ndim)


def windows(boxes: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[Window, np.ndarray]]:
    """Yield windows, and the positions in ``boxes`` (n, 2, dims) of the boxes that lie in them; each box is in one window.

    A window surrounds its boxes by a pixel and has at most about `LARGEST` pixels. Boxes larger than that are left out, see
    `too_large`.
    """
    side = max(1, round(LARGEST ** (1 / len(shape))) // 2)
    extent = boxes[:, 1] - boxes[:, 0]
    small = (extent <= side).all(axis=1)
    cells = boxes[:, 0] // side
    cells[~small] = -1 - np.arange(np.count_nonzero(~small))[:, None]  # alone
    order = np.lexsort(cells.T)
    ends = np.flatnonzero((np.diff(cells[order], axis=0) != 0).any(axis=1)) + 1
    left_out = too_large(boxes)
    for members in np.split(order, ends) if len(order) else ():
        if left_out[members[0]]:
            continue
        low = np.maximum(boxes[members, 0].min(axis=0) - 1, 0)
        high = np.minimum(boxes[members, 1].max(axis=0) + 1, shape)
        yield tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True)), members


def too_large(boxes: np.ndarray) -> np.ndarray:
    """Return which boxes (n, 2, dims) have more than `LARGEST` pixels."""
    found: np.ndarray = np.prod(boxes[:, 1] - boxes[:, 0], axis=1) > LARGEST
    return found
