"""The fingerprint of a data set: sizes, spacing and classes, and how small its masks can be stored."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hebbseg.config.fields import Section
from hebbseg.data.cases import IGNORE, Case, Source
from hebbseg.data.io.image_file import Header
from hebbseg.data.large_files import is_large_case
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError
from hebbseg.planning.round_trip import candidate_sizes, reference_mask, try_sizes

MASKS = 20  # labelled masks that are scaled down and back
IMAGES_WITHOUT_HEADERS = 3  # generated images that are looked at
PERCENTILES = (5, 95)  # of sizes, so that a single odd image does not decide


class RoundTrip(Section):
    """The Dice of the labelled masks, scaled to ``size`` and back: of the worst class, 0 … 1."""

    size: tuple[int, ...]
    dice: float


class Fingerprint(Section):
    """What a plan depends on. Sizes and spacing are those of all images; masks are those of labelled training images only.

    ``aspect`` is the median of height / width (1 for volumes). ``size_ratio`` is the largest ratio of a side between large
    and small images (95th and 5th percentile). ``classes`` is None if no mask was read. ``spacing_ratio`` is the largest ratio
    of the spacings of two images along an axis, ``without_spacing`` the number of images whose file states none, and
    ``extent_mm`` the median size in millimeters.
    """

    images: int
    labelled: int
    unlabelled: int
    test: int
    spatial_dims: int
    channels: int
    classes: int | None
    median_size: tuple[int, ...]
    smallest_size: tuple[int, ...]
    largest_size: tuple[int, ...]
    aspect: float
    size_ratio: float
    spacing_mm: tuple[float, ...] | None
    masks_tried: int = 0
    round_trips: tuple[RoundTrip, ...] = ()
    spacing_ratio: float = 1.0
    without_spacing: int = 0
    extent_mm: tuple[float, ...] | None = None

    @property
    def one_size(self) -> bool:
        return self.smallest_size == self.largest_size


def take_fingerprint(
    source: Source, training: TrainingCases, *, test: int = 0, masks: bool = True, sizes: bool = True
) -> Fingerprint:
    """Return the fingerprint of a data set for a run with these training cases.

    Reads headers of all images, and up to `MASKS` masks of labelled training cases; no other mask is read.

    Args:
        test: number of test cases.
        masks: whether masks may be read.
        sizes: whether to try working sizes; False if the size is fixed already.
    """
    shapes = _shapes(source, training)  # (images, axes)
    middle = tuple(int(side) for side in np.median(shapes, axis=0))
    low, high = np.percentile(shapes, PERCENTILES, axis=0)
    aspect = float(np.median(shapes[:, 0] / shapes[:, 1])) if source.spatial_dims == 2 else 1.0
    spacings = [case.spacing_mm for case in source.cases if case.spacing_mm is not None]
    trips: list[RoundTrip] = []
    kept: list[Tensor] = []
    classes = _classes(source) if masks and training.labelled else None
    if sizes and classes is not None and source.spatial_dims == 2 and (candidates := candidate_sizes(middle, aspect)):
        kept = _labelled_masks(source, training.labelled, classes)
        if any(bool(mask.any()) for mask in kept):
            tried = try_sizes(kept, candidates, classes)
            trips = [RoundTrip(size=size, dice=round(dice, 4)) for size, dice in tried]
    return Fingerprint(
        images=len(source.cases),
        labelled=len(training.labelled),
        unlabelled=len(training.unlabelled),
        test=test,
        spatial_dims=source.spatial_dims,
        channels=source.channels,
        classes=classes,
        median_size=middle,
        smallest_size=tuple(shapes.min(axis=0).tolist()),
        largest_size=tuple(shapes.max(axis=0).tolist()),
        aspect=round(aspect, 4),
        size_ratio=round(float((high / low).max()), 3),
        spacing_mm=tuple(median(axis) for axis in zip(*spacings, strict=True)) if spacings else None,
        masks_tried=len(kept),
        round_trips=tuple(trips),
        **_spacings(source, shapes),
    )


def _spacings(source: Source, shapes: np.ndarray) -> dict[str, Any]:
    """Return the fields about spacings; empty if no image has one. ``shapes`` are used if images have no headers."""
    stated = {case.id: np.array(case.spacing_mm) for case in source.cases if case.spacing_mm is not None}
    if not stated:
        return {}
    spacings = np.array(list(stated.values()))
    extents = np.median(shapes, axis=0) * np.median(spacings, axis=0)
    if isinstance(source, FileSource):
        headers = {id: source.headers.get(id) for id in stated}
        found = [np.array(header.shape) * stated[id] for id, header in headers.items() if isinstance(header, Header)]
        extents = np.median(found, axis=0) if found else extents
    return {
        "spacing_ratio": round(float((spacings.max(axis=0) / spacings.min(axis=0)).max()), 4),
        "without_spacing": len(source.cases) - len(stated),
        "extent_mm": tuple(float(side) for side in extents),
    }


def spread(items: Sequence[str], count: int) -> list[str]:
    """Return up to ``count`` of the items, evenly spaced."""
    if len(items) <= count:
        return list(items)
    return [items[round(place)] for place in np.linspace(0, len(items) - 1, count)]


def _shapes(source: Source, training: TrainingCases) -> np.ndarray:
    """Return the spatial shapes of the images, (n, axes), from headers; of generated images, those of some training images."""
    if isinstance(source, FileSource):
        headers = [header for header in source.headers.values() if isinstance(header, Header)]
        found = [header.shape for header in headers if len(header.shape) == source.spatial_dims]
    else:
        cases = {case.id: case for case in source.cases}
        chosen = spread(sorted(training.images), IMAGES_WITHOUT_HEADERS)
        found = [source.image(cases[name]).shape[1:] for name in chosen]
    if not found:
        raise HebbsegError(f"{source.name}: no image has a readable size. `hebbseg check` lists the problems.")
    return np.array(found)


def _classes(source: Source) -> int | None:
    """Return the number of classes, or None if the masks cannot be understood: decoding reports that in full."""
    try:
        return len(source.classes)
    except HebbsegError:
        return None


def any_partly_annotated(source: Source, labelled: Sequence[str]) -> bool:
    """Return whether one of up to `MASKS` labelled masks is not annotated everywhere."""
    return any(bool((mask == IGNORE).any()) for mask in _read_masks(source, labelled))


def _labelled_masks(source: Source, labelled: Sequence[str], classes: int) -> list[Tensor]:
    """Return up to `MASKS` labelled masks.

    Masks that are not annotated everywhere are left out: scribbles do not show how fine the objects are.
    """
    return [
        reference_mask(torch.from_numpy(np.ascontiguousarray(mask, dtype=np.uint8)), classes)
        for mask in _read_masks(source, labelled)
        if not (mask == IGNORE).any()
    ]


def _read_masks(source: Source, labelled: Sequence[str]) -> Iterator[np.ndarray]:
    """Read up to `MASKS` labelled masks; those that cannot be read are reported when the data are decoded."""
    cases = {case.id: case for case in source.cases}
    # A source of files keeps these masks, so that decoding the data does not read them again.
    read: Callable[[Case], np.ndarray] = getattr(source, "mask_ahead", source.mask)
    for name in spread(sorted(name for name in labelled if not is_large_case(source, cases[name])), MASKS):
        with suppress(HebbsegError):
            yield read(cases[name])
