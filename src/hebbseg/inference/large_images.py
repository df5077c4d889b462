"""Prediction of images larger than memory: read part by part, predicted in windows, written in tiles."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.formats import map_image, read_header, write_mask, write_mask_parts
from hebbseg.data.io.image_file import Image, Place, ReadPart
from hebbseg.data.io.orientation import to_grid
from hebbseg.data.io.tiles import is_large_size, part_of, release_pages, sampled, subsampled
from hebbseg.data.io.volume_map import map_volume, new_map
from hebbseg.inference.memory import BATCH, refuse_more_than_memory
from hebbseg.inference.objects import merged_border
from hebbseg.inference.predictor import Predictor
from hebbseg.inference.sliding_window import predict_streaming
from hebbseg.reporting.plots.overlay import overlay

PREVIEW_SIDES = {2: 2048, 3: 256}
BAND_BYTES = {2: 2**27, 3: 2**28}  # of the sums of an incomplete row of windows
# Uncertainty maps are written like masks: level i of 255 is "class" i.
LEVELS = tuple(ClassInfo(index=level, value=level) for level in range(256))


def is_large(path: Path, segmenters: Sequence[Predictor], level: int = 0) -> bool:
    """Return whether the image is streamed: it is large and can be read in parts, and the models predict in windows."""
    first = segmenters[0]
    if first.preprocessing.resizes or first.window is None:
        return False
    grid = first.window, first.preprocessing, first.axes, first.orientation
    if any((s.window, s.preprocessing, s.axes, s.orientation) != grid for s in segmenters):
        return False
    header = read_header(path, level)
    if not is_large_size(header) or len(header.shape) != first.spatial_dims:
        return False
    return header.channels == 1 if first.spatial_dims == 3 else map_image(path, level) is not None


def predict_large(
    segmenters: Sequence[Predictor],
    path: Path,
    mask: Path,
    *,
    level: int = 0,
    uncertainty: Path | None = None,
    further: "Callable[[Streamed], np.ndarray] | None" = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> np.ndarray:
    """Write the mask of a large image (and optionally its uncertainty, 0 … 255) without loading the image.

    Memory does not grow with the image; one byte per pixel (two with uncertainty) of disk space is needed, and for volumes
    also the size of their values.

    Args:
        segmenters: the models, whose probabilities are averaged.
        path: the image.
        mask: file of the mask.
        level: of a pyramid.
        uncertainty: file of the uncertainty map; None: none.
        further: writes other files and returns the labels (*S) of objects, whose contours are drawn, not those of classes.
        report: called with (windows done, total windows).

    Returns:
        A downscaled image with contours, (height, width, 3).
    """
    with streamed(
        segmenters, path, mask.parent, level=level, uncertain=uncertainty is not None, inside=further is not None, report=report
    ) as found:
        labels = None if further is None else further(found)
        for target, indices, classes in (
            (mask, found.classes, segmenters[0].classes),
            (uncertainty, found.levels, LEVELS),
        ):
            if target is None or indices is None:
                continue
            if indices.ndim == 3:
                write_mask(target, indices, found.image, classes)
            else:
                write_mask_parts(target, parts_of(indices), found.image, classes)
            release_pages(indices)
        return found.preview(labels)


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """The predicted classes and uncertainty of a large image, (*S) uint8, in files that exist for a while.

    ``small`` has every ``step``-th pixel of the image along each axis. ``inside`` (*S) is that of models of borders, see
    `hebbseg.inference.object_parts.find_in_parts`. ``scratch`` is a folder for further temporary files.
    """

    image: Image
    classes: np.ndarray
    levels: np.ndarray | None
    small: np.ndarray
    step: int
    scratch: Path
    inside: np.ndarray | None = None

    def preview(self, labels: np.ndarray | None = None) -> np.ndarray:
        """Return a downscaled image with the contours of classes or labels, (height, width, 3)."""
        dims = self.classes.ndim
        spacing = self.image.spacing_mm if dims == 3 else None
        return overlay(self.small, subsampled(self.classes if labels is None else labels, self.step, dims), spacing=spacing)


@contextmanager
def streamed(
    segmenters: Sequence[Predictor],
    path: Path,
    folder: Path | None,
    *,
    level: int = 0,
    uncertain: bool = False,
    inside: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Streamed]:
    """Predict a large image into temporary files in ``folder`` (default: the system's folder for such files).

    With ``inside``, the inside of objects is kept as well, if the model has learned their borders.
    """
    first = segmenters[0]
    assert first.window is not None
    refuse_more_than_memory(first.network_options, first.window, len(first.classes), size=first.window)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".predicting-") as scratch:
        image = map_volume(path, Path(scratch) / "image") if first.spatial_dims == 3 else map_image(path, level)
        assert image is not None
        dims = first.spatial_dims
        step = -(-max(image.shape) // PREVIEW_SIDES[dims])
        small = subsampled(image.array, step, dims)

        own, wanted = (image.axes, image.orientation), (first.axes, first.orientation)

        def turned(array: np.ndarray) -> np.ndarray:
            """Return (C, *S) in the model's order of axes and orientation; only volumes can have others."""
            if dims == 2:
                return array
            return np.moveaxis(to_grid(np.moveaxis(array, 0, -1), own, wanted, dims=dims), -1, 0)

        array = turned(image.array)
        size = tuple(array.shape[1:])
        classes = new_map(Path(scratch) / "classes", size, np.uint8)
        levels = new_map(Path(scratch) / "uncertainty", size, np.uint8) if uncertain else None
        kept = new_map(Path(scratch) / "inside", size, np.float16) if inside and first.borders else None
        predict_streaming(
            [segmenter.class_network if kept is None else segmenter.network for segmenter in segmenters],
            array,
            classes,
            window=first.window,
            tta=False if first.tta == "none" else first.tta,
            blend=first.blend,
            batch=BATCH,
            prepare=_preparing(first, sampled(image.array) if dims == 2 else turned(small)),
            uncertainty_out=levels,
            progress=report,
            band_pixels=BAND_BYTES[dims] // (4 * (len(first.classes) + 1)),
            merge=None if kept is None else partial(_merge, kept),
        )
        yield Streamed(
            image=image,
            classes=to_grid(classes, wanted, own, dims=dims),
            levels=None if levels is None else to_grid(levels, wanted, own, dims=dims),
            small=small,
            step=step,
            scratch=Path(scratch),
            inside=None if kept is None else to_grid(kept, wanted, own, dims=dims),
        )


def _merge(inside: np.ndarray, place: tuple[slice, slice], probabilities: Tensor) -> Tensor:
    """Keep the inside of a band, and return its probabilities without border."""
    values = probabilities[1].where(probabilities[1] > probabilities[2], -probabilities[1])
    inside[place] = values.numpy()
    release_pages(inside)
    return merged_border(probabilities)


def _preparing(segmenter: Predictor, sample: np.ndarray) -> Callable[[Tensor], Tensor]:
    """Return the preprocessing of windows, with the intensity statistics of pixels (C, *s) of the whole image."""
    of_part = segmenter.preprocessing.of_parts(segmenter.as_channels(sample))
    return lambda window: segmenter.preprocessing.to_network(of_part(segmenter.as_channels(window.numpy())))


def parts_of(array: np.ndarray) -> ReadPart:
    """Return a function that reads parts of a mapped array (H, W) and releases earlier ones at each new row."""

    def read(rows: Place, columns: Place) -> np.ndarray:
        if isinstance(columns, slice) and columns.start == 0:
            release_pages(array)
        return part_of(array, rows, columns)

    return read


def preview(image: Image, indices: np.ndarray) -> np.ndarray:
    """Return the image with contours; 2D images have rows first, whatever the order of axes in their file."""
    array = image.array
    if indices.ndim == 2 and image.axes == "xyz":
        array, indices = array.transpose(0, 2, 1), indices.T
    return overlay(array, indices, spacing=image.spacing_mm if indices.ndim == 3 else None)
