"""Metrics of objects: object Dice and object Hausdorff distance of the GlaS challenge, F1, AJI and panoptic quality.

Conventions:

* Objects are given as label images: 0 is background, every other value is one object. G₁ … are the objects of the target,
  S₁ … those of the prediction.
* Both images without objects: ratios 1, distance 0. One of them without objects: ratios 0, distance = the image diagonal
  √Σ(nᵢ·spacingᵢ)². No case is NaN or dropped.
* The object that overlaps most: the first of several with the same overlap.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import mean_and_ci90
from hebbseg.evaluation.object_pairs import Numbered, Pair

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
    return metrics_of(Numbered.of(prediction), Numbered.of(target), spacing)


def metrics_of(
    prediction: Numbered, target: Numbered, spacing: Sequence[float] | None = None, *, most: int | None = None
) -> dict[str, float]:
    """Return `object_metrics` of numbered objects, which can be on disk.

    Args:
        most: Hausdorff distances of pairs whose common box has more pixels are computed on a part of the pixels; None: on all.
    """
    shape = target.labels.shape
    if prediction.labels.shape != shape:
        raise HebbsegError(f"prediction has shape {prediction.labels.shape} and target {shape}; the shapes must be equal.")
    steps = (1.0,) * len(shape) if spacing is None else tuple(spacing)
    pair = Pair(target=target, prediction=prediction, spacing=steps, most=most)
    counts = {"n_target": len(target.areas), "n_prediction": len(prediction.areas)}
    if not (counts["n_target"] and counts["n_prediction"]):
        none = not (counts["n_target"] or counts["n_prediction"])
        ratios = dict.fromkeys(OBJECT_METRICS, float(none))
        diagonal = float(np.linalg.norm(np.multiply(shape, steps)))
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
