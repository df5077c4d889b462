"""Metrics of objects: object Dice and object Hausdorff distance of the GlaS challenge, F1, AJI and panoptic quality.

Conventions:

* Objects are given as label images: 0 is background, every other value is one object. G₁ … are the objects of the target,
  S₁ … those of the prediction.
* Both images without objects: ratios 1, distance 0. One of them without objects: ratios 0, distance = the image diagonal
  √Σ(nᵢ·spacingᵢ)². No case is NaN or dropped.
* The object that overlaps most: the first of several with the same overlap.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from scipy.ndimage import distance_transform_edt, find_objects
from scipy.sparse import coo_array
from skimage.segmentation import relabel_sequential

from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import mean_and_ci90

OBJECT_METRICS = ("object_dice", "object_hausdorff", "f1_glas", "f1", "aji", "pq", "sq")


def object_metrics(prediction: np.ndarray, target: np.ndarray, spacing: Sequence[float] | None = None) -> dict[str, float]:
    """Return all of `OBJECT_METRICS` and the numbers of objects.

        object_dice       ½ Σᵢ |Gᵢ|/Σ|G| · Dice(Gᵢ, S(Gᵢ))
                          + ½ Σⱼ |Sⱼ|/Σ|S| · Dice(G(Sⱼ), Sⱼ)
        object_hausdorff  the same with the Hausdorff distance in place of Dice
        f1_glas           2·TP / (numbers of G and of S); Sⱼ is a true positive
                          if it covers more than half of G(Sⱼ)
        f1                TP / (TP + ½FP + ½FN), the detection quality DQ of PQ;
                          pairs with IoU > 0.5 are true positives
        sq                mean IoU of these pairs
        pq                f1 · sq
        aji               Σᵢ |Gᵢ ∩ S'(Gᵢ)| / ( Σᵢ union(Gᵢ, S'(Gᵢ)) + R ),
                          R = Σ |S that are no S'(Gᵢ)|

    where S(Gᵢ) is the object of the prediction that overlaps Gᵢ most, G(Sⱼ) the object of the target that overlaps Sⱼ most,
    and S'(Gᵢ) the object with the largest IoU. An object that overlaps none has Dice 0 and the Hausdorff distance to the
    object with the smallest one.

    Args:
        prediction, target: labels (*S), integers ≥ 0 of the same shape.
        spacing: distance between neighboring pixels along each axis; default: 1.

    References:
        K. Sirinukunwattana et al. "Gland segmentation in colon histology images: the GlaS challenge contest", 2017, and the
        program published with the challenge; N. Kumar et al. "A dataset and a technique for generalized nuclear
        segmentation for computational pathology", 2017, algorithm 1; A. Kirillov et al. "Panoptic segmentation", 2019.

    >>> object_metrics(np.array([[1, 1, 0, 0, 2, 0]]), np.array([[1, 1, 1, 0, 0, 0]]))["f1"]
    0.6666666666666666
    """
    if prediction.shape != target.shape:
        raise HebbsegError(f"prediction has shape {prediction.shape} and target {target.shape}; the shapes must be equal.")
    steps = (1.0,) * target.ndim if spacing is None else tuple(spacing)
    pair = _Pair(target=relabel_sequential(target)[0], prediction=relabel_sequential(prediction)[0], spacing=steps)
    counts = {"n_target": len(pair.areas_g), "n_prediction": len(pair.areas_s)}
    if not (counts["n_target"] and counts["n_prediction"]):
        none = not (counts["n_target"] or counts["n_prediction"])
        ratios = dict.fromkeys(OBJECT_METRICS, float(none))
        diagonal = float(np.linalg.norm(np.multiply(target.shape, steps)))
        return ratios | {"object_hausdorff": 0.0 if none else diagonal} | counts
    matched = pair.iou[pair.iou > 0.5]
    f1 = 2 * len(matched) / (counts["n_target"] + counts["n_prediction"])
    sq = float(matched.mean()) if len(matched) else 0.0
    return {
        "object_dice": pair.object_dice(),
        "object_hausdorff": pair.object_hausdorff(),
        "f1_glas": pair.f1_glas(),
        "f1": f1,
        "aji": pair.aji(),
        "pq": f1 * sq,
        "sq": sq,
        **counts,
    }


def summarize_objects(rows: Sequence[Mapping[str, Any]], unit: str) -> dict[str, Any]:
    """Return the mean and 90 % interval over cases of each metric, averaged over the classes of a case first.

    Args:
        rows: `object_metrics` with keys ``case`` and ``class``.
        unit: unit of the Hausdorff distance, "px" or "mm".
    """
    classes = sorted({int(row["class"]) for row in rows})
    by_class = {str(k): _block([row for row in rows if int(row["class"]) == k]) for k in classes}
    return {"n": len({row["case"] for row in rows}), "unit": unit, **_block(rows), "classes": by_class}


def _block(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        cases.setdefault(str(row["case"]), []).append(row)
    return {
        metric: mean_and_ci90([float(np.mean([row[metric] for row in of_case])) for of_case in cases.values()])._asdict()
        for metric in OBJECT_METRICS
    } | {name: sum(int(row[name]) for row in rows) for name in ("n_target", "n_prediction")}


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Labels 1 … n of target and prediction; the rows of all matrices are target objects, the columns predicted ones."""

    target: np.ndarray
    prediction: np.ndarray
    spacing: tuple[float, ...]

    @cached_property
    def areas_g(self) -> np.ndarray:
        return np.bincount(self.target.ravel())[1:]

    @cached_property
    def areas_s(self) -> np.ndarray:
        return np.bincount(self.prediction.ravel())[1:]

    @cached_property
    def overlaps(self) -> coo_array:
        """|Gᵢ ∩ Sⱼ| of the pairs that overlap, sorted by i, then j."""
        both = (self.target > 0) & (self.prediction > 0)
        width = len(self.areas_s)
        keys, counts = np.unique(
            (self.target[both].astype(np.int64) - 1) * width + self.prediction[both] - 1, return_counts=True
        )
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
        boxes_g, boxes_s = find_objects(self.target), find_objects(self.prediction)
        corners_g, corners_s = _corners(boxes_g, self.spacing), _corners(boxes_s, self.spacing)
        o = self.overlaps

        @cache
        def distance(i: int, j: int) -> float:
            box = tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(boxes_g[i], boxes_s[j], strict=True))
            return hausdorff(self.target[box] == i + 1, self.prediction[box] == j + 1, self.spacing)

        def distance_back(j: int, i: int) -> float:
            return distance(i, j)

        of_g = [
            distance(i, int(o.col[k])) if k >= 0 else _nearest(corners_g[i], corners_s, partial(distance, i))
            for i, k in enumerate(self.s_of_g)
        ]
        of_s = [
            distance(int(o.row[k]), j) if k >= 0 else _nearest(corners_s[j], corners_g, partial(distance_back, j))
            for j, k in enumerate(self.g_of_s)
        ]
        return float(np.average(of_g, weights=self.areas_g) + np.average(of_s, weights=self.areas_s)) / 2


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


def _corners(boxes: Sequence[Any], spacing: Sequence[float]) -> np.ndarray:
    """Return the first and last coordinates of each box along each axis, (n, 2 · axes)."""
    ends = np.array([[(side.start, side.stop - 1) for side in box] for box in boxes])  # (n, axes, 2)
    return (ends * np.asarray(spacing)[:, None]).reshape(len(boxes), -1)


def _nearest(own: np.ndarray, others: np.ndarray, distance: Callable[[int], float]) -> float:
    """Return the smallest distance to one of the others; the Hausdorff distance is at least that of the boxes' sides."""
    bounds = np.abs(others - own).max(axis=1)
    smallest = np.inf
    for number in np.argsort(bounds, kind="stable"):
        if bounds[number] >= smallest:
            break
        smallest = min(smallest, distance(int(number)))
    return float(smallest)
