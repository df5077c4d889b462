"""Store of preprocessed images and masks: decoded once, cached in memory or on disk, returned as tensors."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skimage.segmentation import expand_labels
from torch import Tensor

from hebbseg.data.cache import cache_key
from hebbseg.data.cases import Case, Source
from hebbseg.data.labels.instances import border_of, objects_of
from hebbseg.data.large import LargeCases
from hebbseg.data.large_files import find_large
from hebbseg.data.memory import MemoryThenDisk, default_memory_limit
from hebbseg.data.patches import annotated_points, cut, foreground_points
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError

MASK_RESAMPLING = "area"  # in the cache keys of resized masks, which were resized to the nearest pixel before
SIZES_SAMPLED = 20  # images whose sizes represent the data set


class CaseStore:
    """Preprocessed images and masks, restricted to given cases. Requesting any other image or mask raises an error.

    Images and masks are read and preprocessed on first access. They stay in memory up to ``memory_limit_bytes``; beyond
    it, they are cached on disk (`hebbseg.data.cache`) and memory-mapped at each access.

    Args:
        source: the data set.
        preprocessing: resizing and normalization.
        images: ids of the cases whose images can be read.
        masks: ids of the cases whose masks can be read.
        originals: ids of the cases whose masks `keep` also stores as they are in the files, for `original_mask`.
        memory_limit_bytes: default: `default_memory_limit`.
        folder: folder of the on-disk cache; default: the user's cache folder.
        borders: training masks have one more class, the border of each object (see `border_of`).
        in_parts: patches of large images are read from their files (see `hebbseg.data.large`).
    """

    def __init__(
        self,
        *,
        source: Source,
        preprocessing: Preprocessing,
        images: Iterable[str],
        masks: Iterable[str] = (),
        originals: Iterable[str] = (),
        memory_limit_bytes: int | None = None,
        folder: Path | None = None,
        borders: bool = False,
        in_parts: bool = False,
    ) -> None:
        self.borders = borders
        self.source = source
        self.preprocessing = preprocessing
        self.memory_limit_bytes = default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
        self.folder = folder
        self.ids = tuple(images)
        self.ids_with_mask = tuple(masks)
        self._cases = {case.id: case for case in source.cases}
        large = find_large(source) if in_parts else []
        self.large = LargeCases(source, preprocessing, large) if isinstance(source, FileSource) and large else None
        self._image_ids = frozenset(self.ids)
        self._mask_ids = frozenset(self.ids_with_mask)
        self._originals = frozenset(originals)
        self._arrays = MemoryThenDisk(limit=self.memory_limit_bytes, folder=folder)
        self._points: dict[str, list[Tensor]] = {}
        self._annotated: dict[str, Tensor | None] = {}
        self._native_shapes: dict[str, tuple[int, ...]] = {}
        unknown = sorted((self._image_ids | self._mask_ids) - self._cases.keys())
        if unknown:
            raise HebbsegError(
                f"{source.name} has no case {unknown[0]!r} ({len(unknown)} missing in total). If files were moved after "
                "the split was drawn, restore them or draw a new split."
            )

    @classmethod
    def for_training(
        cls,
        source: Source,
        training: TrainingCases,
        *,
        preprocessing: Preprocessing | None = None,
        memory_limit_bytes: int | None = None,
        folder: Path | None = None,
    ) -> "CaseStore":
        """Return a store of the training and validation images and of the labelled and validation masks."""
        ids = (*training.images, *training.validation)
        if not ids:
            raise HebbsegError(f"{source.name}: the split has no training image. Draw a split with more cases.")
        return cls(
            source=source,
            preprocessing=preprocessing or Preprocessing.for_source(source),
            images=ids,
            masks=(*training.labelled, *training.validation),
            memory_limit_bytes=memory_limit_bytes,
            folder=folder,
        )

    def restricted_to(self, source: Source, *, images: Iterable[str], masks: Iterable[str] = ()) -> "CaseStore":
        """Return a store of these cases that shares this store's memory. ``source`` may have fewer cases."""
        subset = CaseStore(
            source=source,
            preprocessing=self.preprocessing,
            images=images,
            masks=masks,
            memory_limit_bytes=self.memory_limit_bytes,
            folder=self.folder,
            borders=self.borders,
        )
        subset._arrays, subset._points, subset.large = self._arrays, self._points, self.large
        subset._native_shapes, subset._annotated = self._native_shapes, self._annotated
        return subset

    def keep(self, case: Case, image: np.ndarray, mask: np.ndarray | None) -> None:
        """Preprocess and store a case that is already decoded."""
        self._prepared("image", case, lambda: self._prepare_image(case, image))
        if mask is not None:
            self._prepared("mask", case, lambda: self.preprocessing.mask(mask, case.spacing_mm))
            if case.id in self._originals and self.preprocessing.resizes:
                self._prepared("original mask", case, lambda: _as_tensor(mask))

    def images(self, ids: Sequence[str]) -> Tensor:
        """Return network input, (B, C, *S) float32. All images must have the same size."""
        return self.preprocessing.to_network(self._stacked([self.image(name) for name in ids], ids))

    def masks(self, ids: Sequence[str]) -> Tensor:
        """Return `training_mask` of each case with `IGNORE`, (B, *S) int64, at the size of `images`."""
        return self._stacked([self.training_mask(name) for name in ids], ids).long()

    def image(self, name: str) -> Tensor:
        """Return one image as stored, (C, *S); do not modify it. ``preprocessing.to_network`` converts it to network input."""
        case = self._whole(name, self._image_ids, "image")
        return self._prepared("image", case, lambda: self._prepare_image(case, self.source.image(case)))

    def mask(self, name: str) -> Tensor:
        """Return one mask as stored, (*S) uint8; do not modify it."""
        case = self._whole(name, self._mask_ids, "mask")
        return self._prepared("mask", case, lambda: self.preprocessing.mask(self.source.mask(case), case.spacing_mm))

    def training_mask(self, name: str) -> Tensor:
        """Return one mask as stored, (*S) uint8; with ``borders``, border pixels have the index after the last class."""
        mask = self.mask(name)
        if not self.borders:
            return mask
        return self._prepared("training mask", self._cases[name], lambda: self._with_border(self._cases[name], mask))

    def is_large(self, name: str) -> bool:
        """Return whether the image and mask of a case are read in patches only."""
        return self.large is not None and name in self.large

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the spatial shape of an image as stored."""
        return self._parts(name).shape(name) if self.is_large(name) else tuple(self.image(name).shape[1:])

    def patch(self, name: str, start: Sequence[int], size: Sequence[int]) -> Tensor:
        """Return the patch (C, *size) of an image as stored, with zeros beyond it."""
        return self._parts(name).image(name, start, size) if self.is_large(name) else cut(self.image(name), start, size)

    def mask_patch(self, name: str, start: Sequence[int], size: Sequence[int], fill: int) -> Tensor:
        """Return the patch (*size) of a training mask as stored, with ``fill`` beyond it."""
        if self.is_large(name):
            return self._parts(name, masks=True).mask(name, start, size, fill)
        return cut(self.training_mask(name), start, size, fill)

    def is_background(self, name: str, start: Sequence[int], size: Sequence[int]) -> bool:
        """Return whether a patch of a large image shows nothing but background; False for all other images."""
        return self.is_large(name) and self._parts(name).is_background(name, start, size)

    def original_mask(self, name: str) -> Tensor:
        """Return one mask before resizing, (*S) uint8; do not modify it."""
        if not self.preprocessing.resizes:
            return self.mask(name)
        case = self._allowed(name, self._mask_ids, "mask")
        return self._prepared("original mask", case, lambda: _as_tensor(self.source.mask(case)))

    def native_shape(self, name: str) -> tuple[int, ...]:
        """Return the spatial shape of an image before resizing."""
        if name not in self._native_shapes:
            case = self._allowed(name, self._image_ids, "image")
            self._native_shapes[name] = self.source.image(case).shape[1:]
        return self._native_shapes[name]

    def foreground(self, name: str) -> list[Tensor]:
        """Return sampled positions, (n, dims), of each foreground class in the mask."""
        if self.is_large(name):
            return self._parts(name, masks=True).points(name)[0]
        if name not in self._points:
            self._points[name] = foreground_points(self.mask(name))
        return self._points[name]

    def annotated(self, name: str) -> Tensor | None:
        """Return sampled positions, (n, dims), of annotated pixels in the mask; None if every pixel is annotated."""
        if self.is_large(name):
            return self._parts(name, masks=True).points(name)[1]
        if name not in self._annotated:
            self._annotated[name] = annotated_points(self.mask(name))
        return self._annotated[name]

    def fitting(self, patch: Sequence[int], ids: Sequence[str]) -> tuple[int, ...]:
        """Return the patch size limited to the median size of about 20 of these images, axis by axis."""
        sampled = ids[:: -(-len(ids) // SIZES_SAMPLED)]
        sizes = np.median([self.shape(name) for name in sampled], axis=0).astype(int)
        return tuple(min(wanted, int(size)) for wanted, size in zip(patch, sizes, strict=True))

    def load(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Read every image now; ``progress`` is called with (number done, total)."""
        for done, name in enumerate(self.ids, start=1):
            if not self.is_large(name):
                self.image(name)
            if progress is not None:
                progress(done, len(self.ids))

    def _allowed(self, name: str, allowed: frozenset[str], what: str) -> Case:
        if name not in allowed:
            raise HebbsegError(
                f"The {what} of case {name!r} is not available in this stage, which reads {len(allowed)} {what}s of "
                f"{self.source.name}. Request one of those, or draw another split."
            )
        return self._cases[name]

    def _parts(self, name: str, *, masks: bool = False) -> LargeCases:
        self._allowed(name, self._mask_ids if masks else self._image_ids, "mask" if masks else "image")
        assert self.large is not None
        return self.large

    def _whole(self, name: str, allowed: frozenset[str], what: str) -> Case:
        case = self._allowed(name, allowed, what)
        if self.is_large(name):
            raise HebbsegError(
                f"{case.image[0]}: an image of {'×'.join(map(str, self.shape(name)))} pixels is read in patches only, but this "
                f"needs the whole {what}. Cut it into smaller images, or choose another method, --select or protocol."
            )
        return case

    def _with_border(self, case: Case, mask: Tensor) -> Tensor:
        objects, _ = objects_of(self.source, case)
        # The border has the same width at the working size, whatever the size of the image.
        ids = self.preprocessing.ids(objects.labels, case.spacing_mm).numpy()
        # Resized by area, the mask can be a pixel larger or smaller than the ids, which are resized by nearest neighbor.
        border = torch.from_numpy(border_of(np.where(mask.numpy() == 1, expand_labels(ids, 2), 0)))
        return torch.where(border, torch.tensor(len(self.source.classes), dtype=mask.dtype), mask)

    def _prepare_image(self, case: Case, image: np.ndarray) -> Tensor:
        if image.ndim != self.source.spatial_dims + 1 or len(image) != self.source.channels:
            raise HebbsegError(
                f"{case.image[0] if case.image else case.id}: shape {image.shape}, but the other cases have "
                f"{self.source.channels} channels and {self.source.spatial_dims} spatial axes. Convert or remove the image."
            )
        self._native_shapes[case.id] = image.shape[1:]
        try:
            return self.preprocessing.image(image, case.spacing_mm)
        except HebbsegError as error:
            raise HebbsegError(f"{case.image[0] if case.image else case.id}: {error}") from error

    def _prepared(self, what: str, case: Case, make: Callable[[], Tensor]) -> Tensor:
        return self._arrays.get((what, case.id), make, lambda: self._key(what, case))

    def _key(self, what: str, case: Case) -> str:
        files = case.image if what == "image" else case.mask or ()
        # Axes and channels also depend on the other images: a grayscale image becomes RGB if others are in color.
        settings: dict[str, Any] = {"what": what, "axes": getattr(self.source, "axes", None)}
        settings |= {"orientation": found} if (found := getattr(self.source, "orientation", None)) else {}
        settings |= {} if what == "original mask" else self.preprocessing.describe()
        settings |= {"resampling": MASK_RESAMPLING} if what == "mask" else {}
        if what == "image":
            settings["channels"] = self.source.channels
        else:
            rule = getattr(self.source, "rule", None)  # None for generated masks
            settings["rule"] = None if rule is None else rule.describe()
        return cache_key(self.source.name, case.id, files, settings)

    def _stacked(self, tensors: list[Tensor], ids: Sequence[str]) -> Tensor:
        shapes = {tuple(tensor.shape) for tensor in tensors}
        if len(shapes) != 1:
            raise HebbsegError(
                f"{len(ids)} cases ({', '.join(list(ids)[:3])} …) have {len(shapes)} different sizes and cannot form a "
                "batch. Resize them to one size, train on patches, or request them one by one."
            )
        return torch.stack(tensors)


def _as_tensor(mask: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(mask, dtype=np.uint8))
