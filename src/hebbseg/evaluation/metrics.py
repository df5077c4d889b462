"""Dice, Jaccard, 95HD and ASD of binary masks; the same per case and class; and their summary over a test set.

Conventions, the same everywhere in the package:

* One mask empty: Dice and Jaccard 0, distances = the image diagonal √Σ(nᵢ·spacingᵢ)². Both empty: Dice and Jaccard 1,
  distances 0. Never NaN, never dropped.
* A surface voxel belongs to the mask and has a face neighbour outside it or lies at the border of the image (medpy's
  default, MONAI's too).
* Distances are in voxels without ``spacing``, else in its unit (mm).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import t as student_t

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.evaluation.surface_distance import surface_distances

if TYPE_CHECKING:
    import torch

Mask: TypeAlias = "np.ndarray | torch.Tensor"
Spacing: TypeAlias = "float | Sequence[float] | None"

METRICS = ("dice", "jaccard", "hd95", "hd95_max", "asd")
HD95_DEFINITIONS = ("pooled", "max")


def dice(prediction: Mask, target: Mask, spacing: Spacing = None) -> float:
    """Dice coefficient 2·|P ∩ T| / (|P| + |T|), in 0 … 1.

    Args:
        prediction, target: masks of one shape (H, W) or (H, W, D), boolean or 0/1, arrays or tensors.
        spacing: has no influence; there so that all four metrics are called alike.

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
    """95th percentile of the Hausdorff distance, with d(P→T) the distances from P's surface voxels to T's surface.

        pooled:  percentile₉₅ of d(P→T) and d(T→P) together             medpy, and the literature on these datasets
        max:     max( percentile₉₅ d(P→T), percentile₉₅ d(T→P) )        MONAI

    Args:
        prediction, target: as in `dice`.
        spacing: distance between neighbouring voxels, one number or one per axis; None is 1.
        definition: "pooled" or "max".
    """
    if definition not in HD95_DEFINITIONS:
        raise HebbsegError(f"Unknown definition {definition!r} of hd95. {did_you_mean(definition, HD95_DEFINITIONS)}")
    p, t, step = _checked(prediction, target, spacing)
    return _distances(p, t, step)["hd95" if definition == "pooled" else "hd95_max"]


def asd(prediction: Mask, target: Mask, spacing: Spacing = None) -> float:
    """Average *symmetric* surface distance: the mean over d(P→T) and d(T→P) together.

    It is medpy's ``assd`` and MONAI's ``compute_average_surface_distance(symmetric=True)``; not the mean of the two
    directed means, and not medpy's ``asd``, which is the directed mean of d(P→T) alone. Arguments as in `hd95`.
    """
    p, t, step = _checked(prediction, target, spacing)
    return _distances(p, t, step)["asd"]


def all_metrics(prediction: Mask, target: Mask, spacing: Spacing = None) -> dict[str, float]:
    """All of `METRICS` for one pair of masks, the surface distances being computed once. Arguments as in `hd95`."""
    p, t, step = _checked(prediction, target, spacing)
    return {**_overlap(p, t), **_distances(p, t, step)}


def case_metrics(
    prediction: Mask, target: Mask, n_classes: int, spacing: Spacing = None, *, case: str = ""
) -> list[dict[str, Any]]:
    """One row per foreground class of one case: all of `METRICS` and the voxel counts that pooled Dice needs.

    Args:
        prediction, target: class indices 0 … n_classes − 1 of one shape, arrays or tensors.
        n_classes: number of classes, background (0) included.
        spacing: as in `hd95`.
        case: identifies the case in `summarize`.

    Returns:
        Rows with keys case, class, dice, jaccard, hd95 (pooled), hd95_max, asd, n_intersection, n_prediction, n_target.
    """
    if n_classes < 2:
        raise HebbsegError(f"n_classes is {n_classes}; a segmentation has at least 2: background and one foreground.")
    p, t = _indices(prediction, "prediction", n_classes), _indices(target, "target", n_classes)
    _check_shapes(p, t)
    rows: list[dict[str, Any]] = []
    for index in range(1, n_classes):
        p_class, t_class = p == index, t == index
        rows.append({"case": case, "class": index, **all_metrics(p_class, t_class, spacing), **_counts(p_class, t_class)})
    return rows


def mean_dice(prediction: Mask, target: Mask, n_classes: int) -> float:
    """The mean of `dice` over the foreground classes of one case; the first number of `case_metrics`, without the rest."""
    p, t = _indices(prediction, "prediction", n_classes), _indices(target, "target", n_classes)
    return sum(dice(p == index, t == index) for index in range(1, n_classes)) / (n_classes - 1)


def pooled_dice(rows: Iterable[Mapping[str, Any]]) -> float:
    """Dice of all voxels of all cases taken together, 2·Σ|P ∩ T| / Σ(|P| + |T|) per class, then the mean over classes.

    Args:
        rows: what `case_metrics` gave, of any number of cases.
    """
    by_class: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_class.setdefault(int(row["class"]), []).append(row)
    return float(np.mean([_pooled_over_cases(of_class) for of_class in by_class.values()]))


def summarize(rows: Sequence[Mapping[str, Any]], unit: str) -> dict[str, Any]:
    """The test set in one dictionary, the content of ``summary.json``.

    Every metric is averaged over the foreground classes of a case first, then over cases, see `mean_and_ci90`.

    Args:
        rows: what `case_metrics` gave for each case; ``case`` tells cases apart.
        unit: of the distances, "px" or "mm".

    Returns:
        ``{"n", "unit", "dice": {"mean", "ci90"}, "jaccard": …, "hd95": …, "hd95_max": …, "asd": …, "dice_pooled",
        "classes": {"1": the same without n and unit, …}}``.
    """
    if not rows:
        raise HebbsegError("There are no rows of metrics to summarize: no case with a mask was evaluated.")
    by_case: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        of_case = by_case.setdefault(str(row["case"]), {})
        if int(row["class"]) in of_case:
            raise HebbsegError(f"Case {row['case']!r} has two rows of class {row['class']}: give each case its own name.")
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
    """The mean and the half-width of its 90 % t-interval, t(0.95, n − 1) · s/√n; None for a single value.

    s is the sample standard deviation (divided by n − 1).
    """
    n = len(values)
    half_width = float(student_t.ppf(0.95, n - 1) * np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None
    return MeanAndInterval(float(np.mean(values)), half_width)


def _block(cases: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Metrics over cases, each a list of the rows of its classes."""
    block: dict[str, Any] = {
        metric: mean_and_ci90([float(np.mean([float(row[metric]) for row in rows])) for rows in cases])._asdict()
        for metric in METRICS
    }
    return {**block, "dice_pooled": pooled_dice(row for rows in cases for row in rows)}


def _pooled_over_cases(rows: Sequence[Mapping[str, Any]]) -> float:
    intersection = sum(int(row["n_intersection"]) for row in rows)
    sizes = sum(int(row["n_prediction"]) + int(row["n_target"]) for row in rows)
    return 2 * intersection / sizes if sizes else 1.0


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
        raise HebbsegError(f"prediction has shape {p.shape} and target {t.shape}; they must be of one shape.")
    if p.ndim not in (2, 3) or p.size == 0:
        raise HebbsegError(
            f"prediction and target have shape {p.shape}; one image (H, W) or volume (H, W, D) at a time is measured. "
            "Take the masks out of their batch and channel axes."
        )


def _array(mask: Mask) -> np.ndarray:
    # Told apart without importing torch, which would take seconds where only files are compared.
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
            f"{name} has the values {shown}; a mask is boolean or 0/1. "
            f"Compare first ({name} > 0), or give class indices to case_metrics."
        )
    return ones


def _indices(mask: Mask, name: str, n_classes: int) -> np.ndarray:
    array = _array(mask)
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.integer):
        raise HebbsegError(f"{name} is of type {array.dtype}; class indices are integers. Take the argmax first.")
    if array.size and (array.min() < 0 or array.max() >= n_classes):
        raise HebbsegError(
            f"{name} has class indices {array.min()} … {array.max()}; with n_classes = {n_classes} "
            f"they are 0 … {n_classes - 1}."
        )
    return array


def _spacing(spacing: Spacing, n_axes: int) -> tuple[float, ...]:
    if spacing is None:
        return (1.0,) * n_axes
    steps = np.asarray(spacing, dtype=float)
    if steps.ndim == 0:
        steps = np.full(n_axes, float(steps))
    if steps.shape != (n_axes,) or not np.all(np.isfinite(steps)) or np.any(steps <= 0):
        raise HebbsegError(f"spacing is {spacing}; it is one positive number, or {n_axes} of them, one per axis.")
    return tuple(steps.tolist())
