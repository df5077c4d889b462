"""Prediction of TIFFs larger than memory: mapped from disk, predicted in windows, written in tiles."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from hebbseg.atomic_files import reserve
from hebbseg.data.io.formats import FORMATS, read_header, suffix_of
from hebbseg.data.io.image_file import Image
from hebbseg.data.io.tiff_map import ReadPart, map_picture, write_mask_in_tiles, write_picture_in_tiles
from hebbseg.inference.predictor import Predictor
from hebbseg.inference.sliding_window import predict_streaming
from hebbseg.inference.streaming import release_pages
from hebbseg.reporting.plots.overlay import overlay

LARGE_PIXELS = 4096 * 4096
SAMPLE_PIXELS = 1024 * 1024  # for intensity statistics
PREVIEW_SIDE = 2048
BAND_ROWS = 512


def is_large(path: Path, segmenters: Sequence[Predictor]) -> bool:
    """Return whether the image is streamed: a large uncompressed TIFF, and models that predict in windows."""
    first = segmenters[0]
    if FORMATS.get(suffix_of(path)) != "tiff" or first.spatial_dims != 2 or first.preprocessing.resizes:
        return False
    if first.window is None or any((s.window, s.preprocessing) != (first.window, first.preprocessing) for s in segmenters):
        return False
    height, *rest = read_header(path).shape
    return len(rest) == 1 and height * rest[0] > LARGE_PIXELS and map_picture(path) is not None


def predict_large(
    segmenters: Sequence[Predictor],
    path: Path,
    mask: Path,
    *,
    uncertainty: Path | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> np.ndarray:
    """Write the mask of a large TIFF (and optionally its uncertainty, 0 … 255) without loading the image.

    Memory does not grow with the number of rows; one byte per pixel (two with uncertainty) of disk space is needed.

    Returns:
        A downscaled image with contours, (height, width, 3).
    """
    image = map_picture(path)
    first = segmenters[0]
    assert image is not None and first.window is not None
    height, width = image.shape
    mask.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=mask.parent, prefix=".predicting-") as scratch:

        def mapped(name: str) -> np.ndarray:
            path = Path(scratch) / name
            with path.open("wb") as file:
                reserve(file.fileno(), height * width)  # writing to a map on a full disk would end the process
            return np.memmap(path, dtype=np.uint8, mode="r+", shape=(height, width))

        classes, levels = mapped("classes"), None if uncertainty is None else mapped("uncertainty")
        predict_streaming(
            [segmenter.class_network for segmenter in segmenters],
            image.array,
            classes,
            window=first.window,
            tta=False if first.tta == "none" else first.tta,
            batch=4,
            prepare=_preparing(first, image.array),
            uncertainty_out=levels,
            progress=report,
        )
        write_mask_in_tiles(mask, (height, width), _parts(classes), image, first.classes)
        if uncertainty is not None and levels is not None:
            write_picture_in_tiles(uncertainty, (height, width), _parts(levels), image)
        step = -(-max(height, width) // PREVIEW_SIDE)
        return overlay(_subsampled(image.array, step), _subsampled(classes, step))


def classes_of_large(segmenter: Predictor, path: Path) -> np.ndarray:
    """Return the class indices (H, W) uint8 of a large TIFF, those of `predict_large`, without loading the image."""
    image = map_picture(path)
    assert image is not None and segmenter.window is not None
    classes = np.zeros(image.shape, np.uint8)
    predict_streaming(
        segmenter.class_network,
        image.array,
        classes,
        window=segmenter.window,
        tta=False if segmenter.tta == "none" else segmenter.tta,
        batch=4,
        prepare=_preparing(segmenter, image.array),
    )
    return classes


def _preparing(segmenter: Predictor, image: np.ndarray) -> Callable[[Tensor], Tensor]:
    """Return the preprocessing of windows, with intensity statistics of the whole image."""
    step = max(1, round((image.shape[1] * image.shape[2] / SAMPLE_PIXELS) ** 0.5))
    sample = _subsampled(image, step)
    of_part = segmenter.preprocessing.of_parts(segmenter.as_channels(sample.astype(sample.dtype.newbyteorder("="))))
    return lambda window: segmenter.preprocessing.to_network(of_part(segmenter.as_channels(window.numpy())))


def _subsampled(array: np.ndarray, step: int) -> np.ndarray:
    """Return every ``step``-th row and column of a mapped array (…, H, W), read in bands to save memory."""
    band = step * max(1, BAND_ROWS // step)
    parts = []
    for row in range(0, array.shape[-2], band):
        parts.append(np.array(array[..., row : row + band : step, ::step]))
        release_pages(array)
    return np.concatenate(parts, axis=-2)


def _parts(array: np.ndarray) -> ReadPart:
    """Return a function that reads parts of a mapped array (H, W) and releases earlier ones at each new row."""

    def read(rows: slice, columns: slice) -> np.ndarray:
        if columns.start == 0:
            release_pages(array)
        return np.array(array[rows, columns])

    return read


def preview(image: Image, indices: np.ndarray) -> np.ndarray:
    """Return the image with contours; 2D images have rows first, whatever the order of axes in their file."""
    array = image.array
    if indices.ndim == 2 and image.axes == "xyz":
        array, indices = array.transpose(0, 2, 1), indices.T
    return overlay(array, indices, spacing=image.spacing_mm if indices.ndim == 3 else None)
