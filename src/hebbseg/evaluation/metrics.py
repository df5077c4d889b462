"""Dice, Jaccard, 95HD and ASD of binary masks, per case and class, and their summary over a test set.

Conventions of the package:

* One mask empty: Dice and Jaccard 0, distances = the image diagonal √Σ(nᵢ·spacingᵢ)². Both empty: Dice and Jaccard 1,
  distances 0. No case is NaN or dropped.
* Surface voxels are mask voxels with a face neighbor outside the mask or at the image border, as in medpy and MONAI.
* Voxels that are not annotated (`IGNORE` in the target's class indices) are background in prediction and target. They
  count nowhere; the border of an ignored region is part of the surface of an object that it cuts, in both masks.
* Distances are in voxels without ``spacing``, else in its unit (mm).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import t as student_t

from hebbseg.data.labels.ignore import annotated_part
from hebbseg.errors import HebbsegError, look_up
from hebbseg.evaluation.surface_distance import surface_distances

if TYPE_CHECKING:
    import torch

Mask: TypeAlias = "np.ndarray | torch.Tensor"
Spacing: TypeAlias = "float | Sequence[float] | None"

METRICS = ("dice", "jaccard", "hd95", "hd95_max", "asd")
INTERVAL_FROM = 3  # values; with two, t(0.95, 1) = 6.3 makes the interval too wide to inform
HD95_DEFINITIONS = {"pooled": "hd95", "max": "hd95_max"}


def dice(prediction: Mask, target: Mask, spacing: Spacing = None) -> float:
    """Dice coefficient 2·|P ∩ T| / (|P| + |T|), in 0 … 1.

    Args:
        prediction, target: masks of the same shape (H, W) or (H, W, D), boolean or 0/1, arrays or tensors.
        spacing: ignored; all four metrics have the same signature.

    >>> dice(np.array([[1, 1, 0]]), np.array([[1, 0, 0]]))
    0.6666666666666666
    """
    p, t, _ = _checked(prediction, target, spacing)
    return _overlap(p, t)["dice"]


def jaccard(prediction: Mask, target: Mask, spacing: Spacing = None) -> float:
    """Jaccard index |P ∩ T| / (|P| + |T| − |P ∩ T|), in 0 … 1. Arguments as in `dice`."""
    p, t, _ = _checked(prediction, target, spacing)
    return _overlap(p, t)["jaccard"]


def hd95(prediction: Mask, target: Mask, spacing: Spacing = None, *, definition: str = "pooled") -> float:
    """95th percentile of the Hausdorff distance; d(P→T) are the distances from P's surface voxels to T's surface.

        pooled:  percentile₉₅ of d(P→T) and d(T→P) together
        max:     max( percentile₉₅ d(P→T), percentile₉₅ d(T→P) )

    medpy and the literature on these datasets use "pooled", MONAI uses "max".

    Args:
        prediction, target: as in `dice`.
        spacing: distance between neighboring voxels, one number or one per axis; default: 1.
        definition: "pooled" or "max".
    """
    name = look_up(definition, HD95_DEFINITIONS, "definition of hd95")
    p, t, step = _checked(prediction, target, spacing)
    return _distances(p, t, step)[name]


def asd(prediction: Mask, target: Mask, spacing: Spacing = None) -> float:
    """Average symmetric surface distance: the mean over d(P→T) and d(T→P) together. Arguments as in `hd95`.

    Equals medpy's ``assd`` and MONAI's ``compute_average_surface_distance(symmetric=True)``. It is neither the mean of the
    two directed means nor medpy's ``asd``, the directed mean of d(P→T).
    """
    p, t, step = _checked(prediction, target, spacing)
    return _distances(p, t, step)["asd"]


def all_metrics(prediction: Mask, target: Mask, spacing: Spacing = None) -> dict[str, float]:
    """Return all of `METRICS` for one pair of masks. Arguments as in `hd95`."""
    p, t, step = _checked(prediction, target, spacing)
    return {**_overlap(p, t), **_distances(p, t, step)}


def case_metrics(
    prediction: Mask, target: Mask, n_classes: int, spacing: Spacing = None, *, case: str = ""
) -> list[dict[str, Any]]:
    """Return one row per foreground class of a case: all of `METRICS`, and the voxel counts for pooled Dice.

    Args:
        prediction, target: class indices 0 … n_classes − 1 of the same shape, arrays or tensors; `IGNORE` in the target
            marks voxels that are not annotated.
        n_classes: number of classes, including background (0).
        spacing: as in `hd95`.
        case: identifies the case in `summarize`.

    Returns:
        Rows with keys case, class, dice, jaccard, hd95 (pooled), hd95_max, asd, n_intersection, n_prediction, n_target.
    """
    if n_classes < 2:
        raise HebbsegError(f"n_classes is {n_classes}; expected at least 2: background and one foreground class.")
    p, t = _compared(prediction, target, n_classes, case)
    rows: list[dict[str, Any]] = []
    for index in range(1, n_classes):
        p_class, t_class = p == index, t == index
        rows.append({"case": case, "class": index, **all_metrics(p_class, t_class, spacing), **_counts(p_class, t_class)})
    return rows


def mean_dice(prediction: Mask, target: Mask, n_classes: int) -> float:
    """Return the mean of `dice` over the foreground classes of a case, in the annotated voxels."""
    p, t = _compared(prediction, target, n_classes)
    return sum(dice(p == index, t == index) for index in range(1, n_classes)) / (n_classes - 1)


def pooled_dice(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return the Dice of the voxels of all cases, 2·Σ|P ∩ T| / Σ(|P| + |T|) per class, averaged over classes.

    Args:
        rows: rows of `case_metrics`, from any number of cases.
    """
    counts: dict[int, tuple[int, int]] = {}  # class → Σ|P ∩ T|, Σ(|P| + |T|)
    for row in rows:
        intersection, sizes = counts.get(int(row["class"]), (0, 0))
        added = int(row["n_prediction"]) + int(row["n_target"])
        counts[int(row["class"])] = intersection + int(row["n_intersection"]), sizes + added
    return float(np.mean([2 * intersection / sizes if sizes else 1.0 for intersection, sizes in counts.values()]))


def summarize(rows: Sequence[Mapping[str, Any]], unit: str) -> dict[str, Any]:
    """Return the content of ``summary.json``: every metric averaged over the foreground classes, then over cases.

    Args:
        rows: rows of `case_metrics`; each case has its own ``case``.
        unit: unit of the distances, "px" or "mm".

    Returns:
        ``{"n", "unit", "dice": {"mean", "ci90"}, "jaccard": …, "hd95": …, "hd95_max": …, "asd": …, "dice_pooled",
        "classes": {"1": the same without n and unit, …}}``.
    """
    if not rows:
        raise HebbsegError("rows is empty: no case with a mask was evaluated.")
    by_case: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        of_case = by_case.setdefault(str(row["case"]), {})
        if int(row["class"]) in of_case:
            raise HebbsegError(f"Case {row['case']!r} has two rows of class {row['class']}: give each case a unique name.")
        of_case[int(row["class"])] = row
    classes = sorted({int(row["class"]) for row in rows})
    for case, of_case in by_case.items():
        if sorted(of_case) != classes:
            raise HebbsegError(f"Case {case!r} has rows for classes {sorted(of_case)}, others for {classes}.")
    return {
        "n": len(by_case),
        "unit": unit,
        **_block([list(of_case.values()) for of_case in by_case.values()]),
        "classes": {str(k): _block([[of_case[k]] for of_case in by_case.values()]) for k in classes},
    }


class MeanAndInterval(NamedTuple):
    mean: float
    ci90: float | None


def mean_and_ci90(values: Sequence[float] | np.ndarray) -> MeanAndInterval:
    """Return the mean and the half-width t(0.95, n − 1) · s/√n of its 90 % interval.

    s is the sample standard deviation, normalized by n − 1. The half-width is None for fewer than `INTERVAL_FROM` values.
    """
    n = len(values)
    half_width = float(student_t.ppf(0.95, n - 1) * np.std(values, ddof=1) / np.sqrt(n)) if n >= INTERVAL_FROM else None
    return MeanAndInterval(float(np.mean(values)), half_width)


def _block(cases: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Summarize cases; each is a list of rows, one per class."""
    block: dict[str, Any] = {
        metric: mean_and_ci90([float(np.mean([float(row[metric]) for row in rows])) for rows in cases])._asdict()
        for metric in METRICS
    }
    return {**block, "dice_pooled": pooled_dice(row for rows in cases for row in rows)}


def _counts(p: np.ndarray, t: np.ndarray) -> dict[str, int]:
    return {
        "n_intersection": int(np.count_nonzero(p & t)),
        "n_prediction": int(np.count_nonzero(p)),
        "n_target": int(np.count_nonzero(t)),
    }


def _overlap(p: np.ndarray, t: np.ndarray) -> dict[str, float]:
    intersection, n_p, n_t = _counts(p, t).values()
    if n_p + n_t == 0:
        return {"dice": 1.0, "jaccard": 1.0}
    return {"dice": 2 * intersection / (n_p + n_t), "jaccard": intersection / (n_p + n_t - intersection)}


def _distances(p: np.ndarray, t: np.ndarray, spacing: tuple[float, ...]) -> dict[str, float]:
    any_p, any_t = bool(p.any()), bool(t.any())
    if not (any_p and any_t):
        diagonal = float(np.linalg.norm(np.multiply(p.shape, spacing)))
        return dict.fromkeys(("hd95", "hd95_max", "asd"), diagonal if any_p or any_t else 0.0)
    p_to_t, t_to_p = surface_distances(p, t, spacing)
    both = np.concatenate((p_to_t, t_to_p))
    return {
        "hd95": float(np.percentile(both, 95)),
        "hd95_max": float(max(np.percentile(p_to_t, 95), np.percentile(t_to_p, 95))),
        "asd": float(both.mean()),
    }


def _checked(prediction: Mask, target: Mask, spacing: Spacing) -> tuple[np.ndarray, np.ndarray, tuple[float, ...]]:
    p, t = _binary(prediction, "prediction"), _binary(target, "target")
    _check_shapes(p, t)
    return p, t, _spacing(spacing, p.ndim)


def _check_shapes(p: np.ndarray, t: np.ndarray) -> None:
    if p.shape != t.shape:
        raise HebbsegError(f"prediction has shape {p.shape} and target {t.shape}; the shapes must be equal.")
    if p.ndim not in (2, 3) or p.size == 0:
        raise HebbsegError(
            f"prediction and target have shape {p.shape}; expected one image (H, W) or volume (H, W, D). Remove batch and "
            "channel axes."
        )


def _array(mask: Mask) -> np.ndarray:
    # Does not import torch, which takes seconds.
    if not hasattr(mask, "detach"):
        return np.asarray(mask)
    tensor = mask.detach().cpu()
    return np.asarray(tensor.float() if tensor.is_floating_point() else tensor)  # numpy has no bfloat16


def _binary(mask: Mask, name: str) -> np.ndarray:
    array = _array(mask)
    if array.dtype == np.bool_:
        return array
    ones = array == 1
    if not np.array_equal(ones, array):
        found = np.unique(array)
        shown = ", ".join(str(value) for value in found[:5]) + (", …" if len(found) > 5 else "")
        raise HebbsegError(
            f"{name} has the values {shown}; a mask is boolean or 0/1. Threshold it first ({name} > 0), or pass class "
            "indices to case_metrics."
        )
    return ones


def _compared(prediction: Mask, target: Mask, n_classes: int, case: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Return checked class indices, background where the target is not annotated."""
    p, t = _array(prediction), _array(target)
    _check_shapes(p, t)
    p, t = annotated_part(p, t, case)
    return _indices(p, "prediction", n_classes), _indices(t, "target", n_classes)


def _indices(mask: Mask, name: str, n_classes: int) -> np.ndarray:
    array = _array(mask)
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.integer):
        raise HebbsegError(f"{name} is of type {array.dtype}; class indices are integers. Apply argmax first.")
    if array.size and (array.min() < 0 or array.max() >= n_classes):
        raise HebbsegError(
            f"{name} has class indices {array.min()} … {array.max()}; with n_classes = {n_classes}, allowed are "
            f"0 … {n_classes - 1}."
        )
    return array


def _spacing(spacing: Spacing, n_axes: int) -> tuple[float, ...]:
    if spacing is None:
        return (1.0,) * n_axes
    steps = np.asarray(spacing, dtype=float)
    if steps.ndim == 0:
        steps = np.full(n_axes, float(steps))
    if steps.shape != (n_axes,) or not np.all(np.isfinite(steps)) or np.any(steps <= 0):
        raise HebbsegError(f"spacing is {spacing}; expected one positive number, or {n_axes}, one per axis.")
    return tuple(steps.tolist())
