"""Facts about a data set that only its files tell: the number of patients and the sizes of images."""

import numpy as np

from hebbseg.data.cases import Source
from hebbseg.data.sources import open_source
from hebbseg.errors import HebbsegError
from hebbseg.reporting.results import RunResult

SIZES_FROM = 5  # images


def source_of(run: RunResult) -> Source:
    """Open the data of a run as the run did."""
    names = ("label_map", "group", "mask_threshold", "instances", "ignore", "images", "masks", "level")
    options = {name: run.settings.get(name) for name in names}
    return open_source(run.settings["data"], **{name: value for name, value in options.items() if value is not None})


def patients_and_size(run: RunResult) -> tuple[int | None, str]:
    """Return the number of patients, None if not known, and the size of images as text; (None, "") without the data."""
    try:
        source = source_of(run)
        groups = {case.group for case in source.cases if case.group is not None}
        places = np.linspace(0, len(source.cases) - 1, min(SIZES_FROM, len(source.cases)))
        shapes = np.array([source.image(source.cases[round(place)]).shape[1:] for place in places])  # (images, axes)
    except (HebbsegError, OSError, ValueError, KeyError):
        return None, ""
    ends = zip(shapes.min(axis=0).tolist(), shapes.max(axis=0).tolist(), strict=True)
    return len(groups) or None, " × ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in ends)
