"""Objects of target and prediction, in memory or on disk, and what is compared of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import ceil, prod
from typing import Self

import numpy as np
from scipy.ndimage import distance_transform_edt, find_objects
from scipy.sparse import coo_array
from scipy.spatial import cKDTree

from hebbseg.data.io.tiles import release_pages

BAND_PIXELS = 2**22  # that are read at a time
FEW_PIXELS = 2**17  # of an object in a Hausdorff distance that is not exact


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbered:
    """Objects 1 … n of a label image; ``numbered[place]`` returns their numbers at a place.

    Shapes:
        labels: (*S) integers, in memory or mapped from a file.
        table: number of the object of each label, 0 for background and labels that are left out.
        areas: (n,) pixels of each object.
        boxes: (n, 2, dims) first and last + 1 pixel of each object.
    """

    labels: np.ndarray
    table: np.ndarray
    areas: np.ndarray
    boxes: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, chosen: np.ndarray | None = None) -> Self:
        """Return the objects in the order of their labels.

        Args:
            labels: (*S) integers; 0 is background.
            chosen: which labels are objects, booleans from label 0 to the largest; default: all.
        """
        largest = int(labels.max(initial=0))
        counts = np.zeros(largest + 1, np.int64)
        boxes = np.zeros((largest + 1, 2, labels.ndim), np.int64)
        boxes[:, 0] = np.iinfo(np.int64).max
        for rows in _bands(labels.shape):
            here = np.asarray(labels[rows])
            of_band = np.bincount(here.ravel(), minlength=largest + 1)
            counts += of_band
            present = np.flatnonzero(of_band[1:]) + 1
            compact = np.zeros(largest + 1, np.int32)
            compact[present] = np.arange(1, len(present) + 1)
            found = np.array([[(side.start, side.stop) for side in box] for box in find_objects(compact[here])], np.int64)
            found = found.reshape(-1, labels.ndim, 2).swapaxes(1, 2) + np.eye(1, labels.ndim, dtype=np.int64) * rows.start
            boxes[present, 0] = np.minimum(boxes[present, 0], found[:, 0])
            boxes[present, 1] = np.maximum(boxes[present, 1], found[:, 1])
            release_pages(labels)
        kept = counts > 0
        kept[0] = False
        if chosen is not None:
            kept &= chosen[: largest + 1]
        table = np.where(kept, np.cumsum(kept), 0).astype(np.int32)
        return cls(labels=labels, table=table, areas=counts[kept], boxes=boxes[kept])

    def __getitem__(self, place: slice | tuple[slice, ...]) -> np.ndarray:
        found: np.ndarray = self.table[np.asarray(self.labels[place])]
        release_pages(self.labels)
        return found

    def points(self, index: int, most: int) -> np.ndarray:
        """Return places (m, dims) of pixels of object ``index`` + 1: all, or every k-th along each axis if they are more."""
        low, high = self.boxes[index]
        step = max(1, ceil((self.areas[index] / most) ** (1 / len(low))))
        while True:
            found = []
            for rows in _bands(tuple(high - low)):
                first = low[0] + -(-rows.start // step) * step
                sides = [slice(int(first), int(low[0] + rows.stop), step)]
                sides += [slice(int(a), int(b), step) for a, b in zip(low[1:], high[1:], strict=True)]
                places = np.stack(np.nonzero(self[tuple(sides)] == index + 1), axis=-1)
                found.append(places * step + [each.start for each in sides])
            if step == 1 or any(map(len, found)):
                return np.concatenate(found)
            step //= 2


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The objects of target and prediction; the rows of all matrices are target objects, the columns predicted ones.

    Args:
        most: pixels of the common box of two objects for exact Hausdorff distances; None: any number.
    """

    target: Numbered
    prediction: Numbered
    spacing: tuple[float, ...]
    most: int | None = None

    @property
    def areas_g(self) -> np.ndarray:
        return self.target.areas

    @property
    def areas_s(self) -> np.ndarray:
        return self.prediction.areas

    @cached_property
    def overlaps(self) -> coo_array:
        """|Gᵢ ∩ Sⱼ| of the pairs that overlap, sorted by i, then j."""
        width = len(self.areas_s)
        found = []
        for rows in _bands(self.target.labels.shape):
            target, prediction = self.target[rows], self.prediction[rows]
            both = (target > 0) & (prediction > 0)
            found.append(np.unique((target[both].astype(np.int64) - 1) * width + prediction[both] - 1, return_counts=True))
        keys, place = np.unique(np.concatenate([each[0] for each in found]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([each[1] for each in found]), len(keys)).astype(np.int64)
        return coo_array((counts, (keys // width, keys % width)), shape=(len(self.areas_g), width))

    @cached_property
    def iou(self) -> np.ndarray:
        """IoU of the pairs of `overlaps`."""
        o = self.overlaps
        return o.data / (self.areas_g[o.row] + self.areas_s[o.col] - o.data)

    @cached_property
    def s_of_g(self) -> np.ndarray:
        """Pair of `overlaps` of each Gᵢ with the largest overlap, or −1."""
        return _best(self.overlaps.row, self.overlaps.data, len(self.areas_g))

    @cached_property
    def g_of_s(self) -> np.ndarray:
        return _best(self.overlaps.col, self.overlaps.data, len(self.areas_s))

    def object_dice(self) -> float:
        o = self.overlaps
        dice = np.append(2 * o.data / (self.areas_g[o.row] + self.areas_s[o.col]), 0.0)  # pair −1 has Dice 0
        of_g = np.average(dice[self.s_of_g], weights=self.areas_g)
        return float(of_g + np.average(dice[self.g_of_s], weights=self.areas_s)) / 2

    def f1_glas(self) -> float:
        o = self.overlaps
        covers = np.append(o.data > 0.5 * self.areas_g[o.row], np.False_)  # pair −1 covers nothing
        return 2 * int(covers[self.g_of_s].sum()) / (len(self.areas_g) + len(self.areas_s))

    def aji(self) -> float:
        best = _best(self.overlaps.row, self.iou, len(self.areas_g))
        paired = best[best >= 0]
        intersection = int(self.overlaps.data[paired].sum())
        chosen = self.overlaps.col[paired]
        union = int(self.areas_g.sum() + self.areas_s[chosen].sum()) - intersection
        return intersection / (union + int(np.delete(self.areas_s, np.unique(chosen)).sum()))

    def object_hausdorff(self) -> float:
        trees = [cKDTree(_corners(each.boxes, self.spacing)) for each in (self.target, self.prediction)]
        o = self.overlaps

        @cache
        def distance(i: int, j: int) -> float:
            return self._hausdorff(i, j)

        def distance_back(j: int, i: int) -> float:
            return distance(i, j)

        of_g = [
            distance(i, int(o.col[k])) if k >= 0 else _nearest(trees[0].data[i], trees[1], partial(distance, i))
            for i, k in enumerate(self.s_of_g)
        ]
        of_s = [
            distance(int(o.row[k]), j) if k >= 0 else _nearest(trees[1].data[j], trees[0], partial(distance_back, j))
            for j, k in enumerate(self.g_of_s)
        ]
        return float(np.average(of_g, weights=self.areas_g) + np.average(of_s, weights=self.areas_s)) / 2

    def _hausdorff(self, i: int, j: int) -> float:
        first, second = self.target.boxes[i], self.prediction.boxes[j]
        low, high = np.minimum(first[0], second[0]), np.maximum(first[1], second[1])
        if self.most is None or np.prod(high - low) <= self.most:
            box = tuple(map(slice, low, high))
            return hausdorff(self.target[box] == i + 1, self.prediction[box] == j + 1, self.spacing)
        points = self.target.points(i, FEW_PIXELS) * self.spacing, self.prediction.points(j, FEW_PIXELS) * self.spacing
        return float(max(cKDTree(b).query(a)[0].max() for a, b in (points, points[::-1])))


def hausdorff(a: np.ndarray, b: np.ndarray, spacing: Sequence[float]) -> float:
    """Return max( max over A of the distance to B, max over B of the distance to A ) of two sets of pixels, not empty."""
    directed = (distance_transform_edt(~y, sampling=spacing)[x].max() for x, y in ((a, b), (b, a)))
    return float(max(directed))


def _best(groups: np.ndarray, values: np.ndarray, n: int) -> np.ndarray:
    """Return for each group 0 … n − 1 the position of its largest value, the first of several, or −1."""
    best = np.full(n, -1)
    order = np.lexsort((-np.arange(len(values)), values, groups))  # the last of each group is its best
    best[groups[order]] = order
    return best


def _nearest(own: np.ndarray, others: cKDTree, distance: Callable[[int], float]) -> float:
    """Return the smallest distance to one of the others; the Hausdorff distance is at least that of the boxes' sides.

    Args:
        own: `_corners` of the object.
        others: those of the others.
        distance: the distance to one of them.
    """
    smallest, seen = np.inf, 0
    while seen < others.n:
        count = min(others.n, max(8, 4 * seen))
        bounds, numbers = others.query(own, k=np.arange(seen + 1, count + 1), p=np.inf)
        for bound, number in zip(bounds, numbers, strict=True):
            if bound >= smallest:
                return smallest
            smallest = min(smallest, distance(int(number)))
        seen = count
    return smallest


def _corners(boxes: np.ndarray, spacing: Sequence[float]) -> np.ndarray:
    """Return the first and last coordinates of each box along each axis, (n, 2 · axes)."""
    ends = np.stack([boxes[:, 0], boxes[:, 1] - 1], axis=-1)  # (n, axes, 2)
    return (ends * np.asarray(spacing)[:, None]).reshape(len(boxes), -1)


def _bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield ranges along the first axis with at most about `BAND_PIXELS` pixels."""
    step = max(1, BAND_PIXELS // max(1, prod(int(n) for n in shape[1:])))
    for start in range(0, int(shape[0]), step):
        yield slice(start, min(start + step, int(shape[0])))
