"""Ensembles: models whose class probabilities are averaged."""

from collections.abc import Sequence

from torch import Tensor

from hebbseg.data.io.image_file import Image
from hebbseg.errors import HebbsegError
from hebbseg.inference.predictor import Predictor


def check_ensemble(segmenters: Sequence[Predictor]) -> None:
    """Raise unless all segmenters have the same classes, spatial dimensions and order of axes."""
    first = segmenters[0]
    for other in segmenters[1:]:
        for what, a, b in (
            ("classes", _classes(first), _classes(other)),
            ("spatial dimensions", first.spatial_dims, other.spatial_dims),
            ("order of axes", first.axes, other.axes),
            ("learned borders", first.borders, other.borders),
        ):
            if a != b:
                raise HebbsegError(f"The models of an ensemble differ in {what}: {a} and {b}. Choose models that agree.")


def mean_probabilities(segmenters: Sequence[Predictor], image: Image) -> Tensor:
    """Return the mean over segmenters, (K, *S)."""
    total = segmenters[0].probabilities_of_file(image)
    for segmenter in segmenters[1:]:
        total += segmenter.probabilities_of_file(image)
    return total / len(segmenters)


def _classes(segmenter: Predictor) -> list[tuple[str, object]]:
    return [(info.name, info.value) for info in segmenter.classes]
