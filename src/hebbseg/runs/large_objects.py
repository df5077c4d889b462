"""Objects of prediction and target of cases too large for memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from hebbseg.data.cases import IGNORE, Case, Source
from hebbseg.data.io.tiles import release_pages
from hebbseg.data.io.volume_map import new_map
from hebbseg.data.labels.instances import Objects
from hebbseg.data.large_files import LargeFiles, is_large_case
from hebbseg.data.sources.files import FileSource
from hebbseg.evaluation.object_metrics import metrics_of
from hebbseg.evaluation.object_pairs import Numbered
from hebbseg.inference.areas import LARGEST
from hebbseg.inference.large_images import is_large, streamed
from hebbseg.inference.object_parts import find_in_parts
from hebbseg.inference.objects import ObjectOptions
from hebbseg.inference.predictor import Predictor


class Labels(Protocol):
    """Label images on disk, and the class of each object."""

    @property
    def labels(self) -> np.ndarray: ...
    @property
    def classes(self) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class LargePair:
    """Objects of prediction and target on disk; ``annotated``: those of the target are the ids of the mask."""

    prediction: Labels
    target: Labels
    annotated: bool

    def metrics(self, index: int, spacing: tuple[float, ...] | None) -> dict[str, float]:
        """Return the metrics of a class; Hausdorff distances of objects too large for memory are those of some pixels."""
        found = (Numbered.of(each.labels, np.append(False, each.classes == index)) for each in (self.prediction, self.target))
        return metrics_of(next(found), next(found), spacing, most=LARGEST)


@contextmanager
def large_pair(
    segmenter: Predictor, source: Source, case: Case, options: ObjectOptions, folder: Path
) -> Iterator[LargePair | None]:
    """Find the objects of a large case part by part; None for all other cases.

    Args:
        folder: for temporary files of 20 bytes per pixel.
    """
    if not is_large_case(source, case) or not isinstance(source, FileSource):
        yield None
        return
    if not is_large(case.image[0], [segmenter], source.level):
        yield None
        return
    with streamed([segmenter], case.image[0], folder, level=source.level, inside=True) as found:
        n_classes, spacing = len(source.classes), found.image.spacing_mm
        predicted = find_in_parts(found.classes, n_classes, options, found.scratch, inside=found.inside, spacing=spacing)
        scratch = found.scratch / "target"
        scratch.mkdir()
        files = LargeFiles(source, [case])
        mask = new_map(scratch / "classes", found.classes.shape, np.uint8)
        for top, band in files.mask_bands(case):
            rows = slice(top, top + len(band))
            mask[rows] = np.where(band == IGNORE, 0, band)
            predicted.labels[rows][band == IGNORE] = 0
            release_pages(mask)
            release_pages(predicted.labels)
        target: Labels
        if source.has_ids:
            target = _annotated(files, case, scratch)
        else:
            target = find_in_parts(mask, n_classes, ObjectOptions(fill_holes=False), scratch)
        yield LargePair(prediction=predicted, target=target, annotated=source.has_ids)


def _annotated(files: LargeFiles, case: Case, scratch: Path) -> Objects:
    """Return the objects of a mask whose values number them, on disk."""
    labels = new_map(scratch / "ids", files.shape(case.id), np.int32)
    values = np.zeros(0, np.int64)
    for _, ids in files.id_bands(case):
        values = np.union1d(values, ids[ids > 0])
    for top, ids in files.id_bands(case):
        labels[top : top + len(ids)] = np.where(ids > 0, np.searchsorted(values, ids) + 1, 0)
        release_pages(labels)
    return Objects(labels=labels, classes=np.ones(len(values), np.int64))
