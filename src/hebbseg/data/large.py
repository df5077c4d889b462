"""Images too large for memory: patches and masks are read from their files in parts."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hebbseg.data.cases import IGNORE, Case, DataError, Source
from hebbseg.data.io.formats import has_parts, map_image, map_labels
from hebbseg.data.io.image_file import Header
from hebbseg.data.io.tiles import BAND_PIXELS, TiledArray, bands, is_large_size, sampled, subsampled
from hebbseg.data.labels.masks import to_indices
from hebbseg.data.patches import POINTS_PER_CLASS
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources.files import FileSource

OPEN_FILES = 64
UNIFORM = 0.08  # standard deviation of a patch of background, relative to the range of the image
EXTREME = 0.2  # distance of its mean from the brightest or darkest pixels, relative to that range


def is_large_case(source: Source, case: Case) -> bool:
    """Return whether patches of the image are read from its file: it is 2D, large, and of a format that has parts."""
    if not isinstance(source, FileSource) or source.spatial_dims != 2 or len(case.image) != 1:
        return False
    header = source.headers.get(case.id)
    return isinstance(header, Header) and is_large_size(header) and has_parts(case.image[0])


def find_large(source: Source) -> list[Case]:
    """Return the large cases of a source."""
    return [case for case in source.cases if is_large_case(source, case)]


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Normalization of an image, and the darkest and brightest values of the mean over its channels."""

    prepare: Callable[[np.ndarray], Tensor]
    low: float
    high: float


class LargeCases:
    """Parts of the images and masks of large cases; memory does not grow with their size, and little with their number.

    Args:
        source: the data set.
        preprocessing: normalization; intensity statistics are those of sampled tiles. ``size`` must be None.
        cases: the large cases.
    """

    def __init__(self, source: FileSource, preprocessing: Preprocessing, cases: Sequence[Case]) -> None:
        self.source = source
        self.preprocessing = preprocessing
        self._cases = {case.id: case for case in cases}
        self._images: OrderedDict[str, Any] = OrderedDict()
        self._masks: OrderedDict[str, Any] = OrderedDict()
        self._facts: dict[str, _Facts] = {}
        self._points: dict[str, tuple[list[Tensor], Tensor | None]] = {}
        self._last: tuple[tuple[Any, ...], np.ndarray] | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._cases

    def shape(self, name: str) -> tuple[int, ...]:
        header = self.source.headers[name]
        assert isinstance(header, Header)
        return header.shape

    def image(self, name: str, start: Sequence[int], patch: Sequence[int]) -> Tensor:
        """Return a patch (C, *patch) like that of a preprocessed image, with zeros beyond the image."""
        values = self._raw(name, start, patch)
        prepared = self.facts(name).prepare(values)
        return _padded(prepared, start, patch, self.shape(name), 0)

    def mask(self, name: str, start: Sequence[int], patch: Sequence[int], fill: int) -> Tensor:
        """Return a patch of the class indices (*patch) uint8, with ``fill`` beyond the mask."""
        shape = self.shape(name)
        rows, columns = (_inside(*each) for each in zip(start, patch, shape, strict=True))
        part = torch.from_numpy(np.ascontiguousarray(self.mask_part(self._cases[name], rows, columns)))
        return _padded(part[None], start, patch, shape, fill)[0]

    def is_background(self, name: str, start: Sequence[int], patch: Sequence[int]) -> bool:
        """Return whether a patch is nearly uniform, and nearly as bright or as dark as the image gets."""
        facts = self.facts(name)
        brightness = self._raw(name, start, patch).mean(axis=0, dtype=np.float32)
        extent, mean = facts.high - facts.low, float(brightness.mean())
        extreme = min(abs(facts.high - mean), abs(mean - facts.low)) < EXTREME * extent
        return extent <= 0 or (extreme and float(brightness.std()) < UNIFORM * extent)

    def points(self, name: str) -> tuple[list[Tensor], Tensor | None]:
        """Return sampled positions of each foreground class, and of the annotated pixels if some are not annotated."""
        if name not in self._points:
            classes: dict[int, _Thinned] = {}
            annotated, partial = _Thinned(), False
            for top, band in self.mask_bands(self._cases[name]):
                for index in np.unique(band).tolist():
                    if index not in (0, IGNORE):
                        classes.setdefault(index, _Thinned()).add(band == index, top)
                partial |= bool((band == IGNORE).any())
                annotated.add(band != IGNORE, top)
            found = [classes[index].positions() for index in sorted(classes)]
            self._points[name] = found, annotated.positions() if partial else None
        return self._points[name]

    def facts(self, name: str) -> _Facts:
        if name not in self._facts:
            sample = self.source.with_common_channels(sampled(self.array(self._cases[name])), self._cases[name])
            brightness = sample[:, :, 0].mean(axis=0, dtype=np.float32)  # (C, n, 1) → (n)
            low, high = np.percentile(brightness[np.isfinite(brightness)], (0.5, 99.5)) if brightness.size else (0.0, 0.0)
            prepare = self.preprocessing.of_parts(sample)
            self._facts[name] = _Facts(prepare=prepare, low=float(low), high=float(high))
        return self._facts[name]

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

    def _raw(self, name: str, start: Sequence[int], patch: Sequence[int]) -> np.ndarray:
        """Return the values of a patch as far as it lies inside the image; the last one is kept."""
        key = (name, *start, *patch)
        last = self._last
        if last is None or last[0] != key:
            rows, columns = (_inside(*each) for each in zip(start, patch, self.shape(name), strict=True))
            case = self._cases[name]
            last = key, self.source.with_common_channels(np.array(self.array(case)[:, rows, columns]), case)
            self._last = last
        return last[1]

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
    large = LargeCases(source, Preprocessing(size=None, normalize="unit"), [case])
    step = -(-max(large.shape(case.id)) // side)
    image = source.with_common_channels(subsampled(large.array(case), step), case)
    if not mask or not case.has_mask:
        return image, None
    parts = [band[-top % step :: step, ::step] for top, band in large.mask_bands(case)]
    return image, np.concatenate(parts)


class _Thinned:
    """Evenly spaced positions of pixels that come band by band: every k-th, where k doubles as their number grows."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        self._seen = 0
        self._stride = 1

    def add(self, area: np.ndarray, top: int) -> None:
        """Add the pixels of an area (h, W) whose first row is ``top``."""
        places = np.flatnonzero(area)
        chosen = places[-self._seen % self._stride :: self._stride]
        self._kept.append(np.stack([top + chosen // area.shape[1], chosen % area.shape[1]], axis=-1))
        self._seen += len(places)
        while sum(map(len, self._kept)) > 2 * POINTS_PER_CLASS:
            self._kept = [np.concatenate(self._kept)[::2]]
            self._stride *= 2

    def positions(self) -> Tensor:
        return torch.from_numpy(np.concatenate(self._kept))


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


def _inside(start: int, length: int, size: int) -> slice:
    return slice(max(0, start), min(size, start + length))


def _padded(part: Tensor, start: Sequence[int], patch: Sequence[int], shape: Sequence[int], fill: int) -> Tensor:
    """Return (C, *patch) with ``part``, what lies inside the image, at its place."""
    if tuple(part.shape[1:]) == tuple(patch):
        return part
    whole = part.new_full((len(part), *patch), fill)
    top, left = (max(0, -begin) for begin in start)
    whole[:, top : top + part.shape[1], left : left + part.shape[2]] = part
    return whole
