"""Metrics of cases too large for memory."""

from collections.abc import Sequence

import numpy as np

from hebbseg.data.cases import IGNORE, Case, Source
from hebbseg.data.io.tiles import subsampled
from hebbseg.data.large import LargeCases
from hebbseg.data.large_files import is_large_case
from hebbseg.data.sources.files import FileSource
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.evaluate import InParts
from hebbseg.evaluation.metrics import case_metrics
from hebbseg.inference.large_images import is_large, streamed
from hebbseg.inference.predictor import Predictor

LONGEST = 2048  # side of the masks whose distances are computed


def measure_large(segmenter: Predictor, source: Source, case: Case, spacing: Sequence[float] | None) -> InParts | None:
    """Return the metrics of a large case, and None for all others.

    Dice and Jaccard are those of all pixels. Distances are those of every k-th pixel along each axis, in the unit of all
    pixels; k = 1 up to 2048 pixels.

    Args:
        segmenter: the model.
        source: the data set.
        case: the case.
        spacing: of neighboring pixels; None: distances are in pixels.
    """
    if not is_large_case(source, case) or not isinstance(source, FileSource):
        return None
    if not is_large(case.image[0], [segmenter], source.level):
        return None
    large, classes = LargeCases(source, segmenter.preprocessing, [case]), len(source.classes)
    table = np.zeros((classes, classes), np.int64)  # (prediction, target)
    step = -(-max(large.shape(case.id)) // LONGEST)
    small = []
    with streamed([segmenter], case.image[0], None, level=source.level) as found:
        for top, target in large.mask_bands(case):
            prediction = found.classes[top : top + len(target)]
            known = target != IGNORE
            table += np.bincount(prediction[known].astype(np.int64) * classes + target[known], minlength=classes**2).reshape(
                classes, classes
            )
            small.append(target[-top % step :: step, ::step])
        prediction, target = subsampled(found.classes, step), np.concatenate(small)
    if not table.any():
        raise HebbsegError(
            f"{case.id}: every pixel has the value to ignore. Annotate some pixels of this mask, or leave it out."
        )
    distances = [step * each for each in (spacing or (1.0, 1.0))]
    if (target == IGNORE).all():
        target = np.where(target == IGNORE, 0, target)
    rows = case_metrics(prediction, target, classes, distances, case=case.id)
    return InParts(rows=[row | _overlap(table, row["class"]) for row in rows], prediction=prediction, target=target)


def _overlap(table: np.ndarray, index: int) -> dict[str, float | int]:
    """Return the overlap metrics of a class, by the conventions of `hebbseg.evaluation.metrics`."""
    both, predicted, drawn = int(table[index, index]), int(table[index].sum()), int(table[:, index].sum())
    union = predicted + drawn - both
    return {
        "dice": 2 * both / (predicted + drawn) if union else 1.0,
        "jaccard": both / union if union else 1.0,
        "n_intersection": both,
        "n_prediction": predicted,
        "n_target": drawn,
    }
