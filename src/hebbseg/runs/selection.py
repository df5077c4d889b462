"""The labelled images of a run whose setting ``select`` is not random."""

from weakref import WeakKeyDictionary

import numpy as np

from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import RANDOM, Selection, Split
from hebbseg.planning.criteria import Pool, rank_images
from hebbseg.runs.dataset import draw_split
from hebbseg.runs.ranking import DESCRIPTORS, describe_images, descriptor_store

DEFAULT_DESCRIPTORS = DESCRIPTORS[0]
_DESCRIPTORS: WeakKeyDictionary[Source, dict[tuple[int, tuple[str, ...]], np.ndarray]] = WeakKeyDictionary()
"""Descriptors by source, seed and images: runs of a grid on the same data share them."""


def draw_selected_split(settings: Settings, source: Source, reporter: Reporter) -> Split:
    """Draw the split, with the labelled cases that the setting ``select`` chooses.

    They are chosen among the training cases with masks by descriptors of all training images. Test and validation images
    are not read; a training image that cannot be read is an error. The order depends on the data, the seed of the split and
    the criterion only, so label regimes are nested.
    """
    criterion, seed = settings.data.select, settings.split_seed
    split = draw_split(settings, source)
    if criterion == RANDOM or not split.training.labelled:
        return split
    images = split.training.images
    known = _DESCRIPTORS.setdefault(source, {})
    if (seed, images) not in known:
        known[seed, images] = describe_images(
            descriptor_store(source, images, DEFAULT_DESCRIPTORS), DEFAULT_DESCRIPTORS, seed=seed, reporter=reporter
        )
    cases = {case.id: case for case in source.cases}
    pool = Pool(
        names=images,
        descriptors=known[seed, images],
        groups=[cases[name].group for name in images],
        barred=frozenset(i for i, name in enumerate(images) if not cases[name].has_mask),
        seed=seed,
    )
    picks = rank_images(criterion, pool, len(split.training.labelled))
    return draw_split(settings, source, Selection(name=criterion, order=tuple(images[pick.index] for pick in picks)))
