"""Files of images and masks too large for memory, read in parts."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hebbseg.data.cases import IGNORE, Case, DataError, Source
from hebbseg.data.io.formats import has_parts, map_image, map_labels
from hebbseg.data.io.image_file import Header
from hebbseg.data.io.tiles import BAND_PIXELS, TiledArray, bands, is_large_size, subsampled
from hebbseg.data.labels.instances import id_values
from hebbseg.data.labels.masks import to_indices
from hebbseg.data.sources.files import FileSource

OPEN_FILES = 64


def is_large_case(source: Source, case: Case) -> bool:
    """Return whether patches of the image are read from its file: it is 2D, large, and of a format that has parts."""
    if not isinstance(source, FileSource) or source.spatial_dims != 2 or len(case.image) != 1:
        return False
    header = source.headers.get(case.id)
    return isinstance(header, Header) and is_large_size(header) and has_parts(case.image[0])


def find_large(source: Source) -> list[Case]:
    """Return the large cases of a source."""
    return [case for case in source.cases if is_large_case(source, case)]


class LargeFiles:
    """Parts of the images and masks of large cases; memory does not grow with their size, and little with their number.

    Args:
        source: the data set.
        cases: the large cases.
    """

    def __init__(self, source: FileSource, cases: Sequence[Case]) -> None:
        self.source = source
        self.cases = {case.id: case for case in cases}
        self._images: OrderedDict[str, Any] = OrderedDict()
        self._masks: OrderedDict[str, Any] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self.cases

    def shape(self, name: str) -> tuple[int, ...]:
        header = self.source.headers[name]
        assert isinstance(header, Header)
        return header.shape

    def array(self, case: Case) -> Any:
        """Return the image (C, H, W) as stored in the file, to be indexed by slices."""
        return _opened(self._images, case.id, lambda: self._open_image(case))

    def mask_part(self, case: Case, rows: slice, columns: slice) -> np.ndarray:
        """Return class indices (h, w) uint8."""
        array, raw = _opened(self._masks, case.id, lambda: self._open_mask(case))
        assert case.mask is not None
        return to_indices(raw(array[:, rows, columns]), self.source.rule, case.mask[0])

    def mask_bands(self, case: Case) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the mask in bands: (first row, class indices (h, W) uint8)."""
        array, _ = _opened(self._masks, case.id, lambda: self._open_mask(case))
        for rows in bands(array):
            yield rows.start, self.mask_part(case, rows, slice(None))

    def id_bands(self, case: Case) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the object ids of the mask in bands: (first row, ids (h, W)); 0 is background or not annotated."""
        array, raw = _opened(self._masks, case.id, lambda: self._open_mask(case))
        for rows in bands(array):
            found = id_values(raw(array[:, rows]), self.source.rule)
            if not self.source.masks.instances:  # one file per object, whatever its values
                found = found > 0
            yield rows.start, np.where(self.mask_part(case, rows, slice(None)) == IGNORE, 0, found.astype(np.int64))

    def _open_image(self, case: Case) -> Any:
        image = map_image(case.image[0], self.source.level)
        if image is None:
            raise DataError(
                case.image[0],
                f"{'×'.join(map(str, self.shape(case.id)))} pixels that cannot be read in parts",
                "Store it in tiles, for example with vips tiffsave --tile, or cut it into smaller images.",
            )
        return _keeping_little(image.array)

    def _open_mask(self, case: Case) -> Any:
        assert case.mask is not None
        if len(case.mask) > 1:
            raise DataError(case.mask[0], "one of several masks of a large image", "Merge them into one file.")
        found = map_labels(case.mask[0], self.source.level) if has_parts(case.mask[0]) else None
        if found is None:
            raise DataError(
                case.mask[0], "the mask of a large image cannot be read in parts", "Store it as a tiled TIFF or as OME-Zarr."
            )
        self.source.refuse_other_size(tuple(found[0].shape[1:]), case, case.mask[0])
        return _keeping_little(found[0]), found[1]


def small_case(source: FileSource, case: Case, side: int, *, mask: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
    """Return every k-th pixel of a large image (C, h, w) and of its mask (h, w), so that no side is longer than ``side``."""
    large = LargeFiles(source, [case])
    step = -(-max(large.shape(case.id)) // side)
    image = source.with_common_channels(subsampled(large.array(case), step), case)
    if not mask or not case.has_mask:
        return image, None
    parts = [band[-top % step :: step, ::step] for top, band in large.mask_bands(case)]
    return image, np.concatenate(parts)


def _opened(kept: OrderedDict[str, Any], name: str, read: Callable[[], Any]) -> Any:
    """Return what ``read`` returned for this name; the last `OPEN_FILES` are kept."""
    if name not in kept:
        kept[name] = read()
        if len(kept) > OPEN_FILES:
            kept.popitem(last=False)
    kept.move_to_end(name)
    return kept[name]


def _keeping_little(array: Any) -> Any:
    """Limit the decoded tiles that are kept to a row of tiles of a mask, as many files are open."""
    if isinstance(array, TiledArray):
        array.kept_bytes = BAND_PIXELS
    return array
