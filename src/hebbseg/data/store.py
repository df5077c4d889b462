"""Images decoded and prepared once, kept in memory while they fit, and given out as tensors."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hebbseg.data.cache import cache_key, mapped
from hebbseg.data.cases import Case, Source
from hebbseg.data.patches import foreground_points
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError

SIZES_LOOKED_AT = 20  # images that tell how large the others are


def default_memory_limit() -> int:
    """A quarter of the machine's memory, in bytes; 4 GiB where the system does not tell."""
    if not hasattr(os, "sysconf"):
        return 4 * 2**30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class CaseStore:
    """The cases that somebody may see, prepared. Asking for any other is an error, and so is asking for its mask.

    An image is read and prepared when it is first asked for. It stays in memory as long as all of them take no more
    than ``memory_limit_bytes``; the others are kept on disk (`hebbseg.data.cache`) and mapped. A mask file is opened
    when that mask is asked for and at no other time.

    Args:
        source: where cases are read from.
        preprocessing: what is done to each once.
        images: ids whose images may be read.
        masks: ids whose masks may be read.
        memory_limit_bytes: default a quarter of the machine's memory.
        folder: where mapped arrays go; default the user's cache folder.
    """

    def __init__(
        self,
        *,
        source: Source,
        preprocessing: Preprocessing,
        images: Iterable[str],
        masks: Iterable[str] = (),
        memory_limit_bytes: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.source = source
        self.preprocessing = preprocessing
        self.memory_limit_bytes = default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
        self.folder = folder
        self.ids = tuple(images)
        self.ids_with_mask = tuple(masks)
        self._cases = {case.id: case for case in source.cases}
        self._image_ids = frozenset(self.ids)
        self._mask_ids = frozenset(self.ids_with_mask)
        self._kept: dict[tuple[str, str], Tensor] = {}
        self._points: dict[str, list[Tensor]] = {}
        self._native_shapes: dict[str, tuple[int, ...]] = {}
        self._used = [0]  # bytes in memory, shared by all that `restricted_to` gives
        unknown = sorted((self._image_ids | self._mask_ids) - self._cases.keys())
        if unknown:
            raise HebbsegError(
                f"{source.name} has no case {unknown[0]!r} ({len(unknown)} such in all). Were files moved after the "
                "split was drawn? Draw a new one, or put them back."
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
        """All a training may see: images of the training side, masks of its labelled and validation cases."""
        ids = (*training.images, *training.validation)
        if not ids:
            raise HebbsegError(f"{source.name}: the split has no training image. Draw one with more cases.")
        return cls(
            source=source,
            preprocessing=preprocessing or Preprocessing.for_source(source),
            images=ids,
            masks=(*training.labelled, *training.validation),
            memory_limit_bytes=memory_limit_bytes,
            folder=folder,
        )

    def restricted_to(self, source: Source, *, images: Iterable[str], masks: Iterable[str] = ()) -> "CaseStore":
        """These cases alone, of this source or of one with fewer cases; what is in memory is shared."""
        some = CaseStore(
            source=source,
            preprocessing=self.preprocessing,
            images=images,
            masks=masks,
            memory_limit_bytes=self.memory_limit_bytes,
            folder=self.folder,
        )
        some._kept, some._points, some._used = self._kept, self._points, self._used
        some._native_shapes = self._native_shapes
        return some

    def keep(self, case: Case, image: np.ndarray, mask: np.ndarray | None) -> None:
        """Takes over a case that was decoded already."""
        self._prepared("image", case, lambda: self._prepare_image(case, image))
        if mask is not None:
            self._prepared("mask", case, lambda: self.preprocessing.mask(mask))

    def images(self, ids: Sequence[str]) -> Tensor:
        """(B, C, *S) float32 as the network sees it. Several at once must be of one size."""
        return self.preprocessing.to_network(self._stacked([self.image(name) for name in ids], ids))

    def masks(self, ids: Sequence[str]) -> Tensor:
        """(B, *S) class indices, int64, at the size of `images`."""
        return self._stacked([self.mask(name) for name in ids], ids).long()

    def image(self, name: str) -> Tensor:
        """One image as it is kept, (C, *S), not to be changed; ``preprocessing.to_network`` makes it a network's."""
        case = self._allowed(name, self._image_ids, "image")
        return self._prepared("image", case, lambda: self._prepare_image(case, self.source.image(case)))

    def mask(self, name: str) -> Tensor:
        """One mask as it is kept, (*S) uint8. Not to be changed."""
        case = self._allowed(name, self._mask_ids, "mask")
        return self._prepared("mask", case, lambda: self.preprocessing.mask(self.source.mask(case)))

    def native_shape(self, name: str) -> tuple[int, ...]:
        """The spatial shape of an image before it was resized."""
        if name not in self._native_shapes:
            case = self._allowed(name, self._image_ids, "image")
            self._native_shapes[name] = self.source.image(case).shape[1:]
        return self._native_shapes[name]

    def foreground(self, name: str) -> list[Tensor]:
        """Some positions of each foreground class of a mask: (n, dims) for each class that occurs."""
        if name not in self._points:
            self._points[name] = foreground_points(self.mask(name))
        return self._points[name]

    def fitting(self, patch: Sequence[int], ids: Sequence[str]) -> tuple[int, ...]:
        """The patch, along each axis no larger than the median size of these images. Reads about 20 of them."""
        some = ids[:: -(-len(ids) // SIZES_LOOKED_AT)]
        sizes = np.median([self.image(name).shape[1:] for name in some], axis=0).astype(int)
        return tuple(min(wanted, int(size)) for wanted, size in zip(patch, sizes, strict=True))

    def load(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Reads every image now rather than when it is first needed; ``progress`` is told (done, of how many)."""
        for done, name in enumerate(self.ids, start=1):
            self.image(name)
            if progress is not None:
                progress(done, len(self.ids))

    def _allowed(self, name: str, allowed: frozenset[str], what: str) -> Case:
        if name not in allowed:
            raise HebbsegError(
                f"The {what} of case {name!r} is not for this stage: {len(allowed)} {what}s of {self.source.name} may "
                "be read here. Ask for one of those, or draw another split."
            )
        return self._cases[name]

    def _prepare_image(self, case: Case, image: np.ndarray) -> Tensor:
        if image.ndim != self.source.spatial_dims + 1 or len(image) != self.source.channels:
            raise HebbsegError(
                f"{case.image[0] if case.image else case.id}: an array of shape {image.shape}, expected "
                f"{self.source.channels} channels and {self.source.spatial_dims} spatial axes like the other cases. "
                "Convert or remove it."
            )
        self._native_shapes[case.id] = image.shape[1:]
        return self.preprocessing.image(image)

    def _prepared(self, what: str, case: Case, make: Callable[[], Tensor]) -> Tensor:
        kept = self._kept.get((what, case.id))
        if kept is not None:
            return kept
        if self._used[0] < self.memory_limit_bytes:
            kept = make()
            self._used[0] += kept.numel() * kept.element_size()
        if kept is None or self._used[0] > self.memory_limit_bytes:
            ready = kept
            array = mapped(self._key(what, case), lambda: (make() if ready is None else ready).numpy(), self.folder)
            kept = torch.from_numpy(array)
        self._kept[what, case.id] = kept
        return kept

    def _key(self, what: str, case: Case) -> str:
        files = case.image if what == "image" else case.mask or ()
        # Axes and channels follow from the other images of the set, too: one file may be grey today and colour tomorrow.
        settings = {"what": what, "axes": getattr(self.source, "axes", None), **self.preprocessing.describe()}
        if what == "image":
            settings["channels"] = self.source.channels
        else:
            rule = getattr(self.source, "rule", None)  # generated masks have none: their source's name tells all
            settings["rule"] = None if rule is None else rule.describe()
        return cache_key(self.source.name, case.id, files, settings)

    def _stacked(self, tensors: list[Tensor], ids: Sequence[str]) -> Tensor:
        shapes = {tuple(tensor.shape) for tensor in tensors}
        if len(shapes) != 1:
            raise HebbsegError(
                f"{len(ids)} cases ({', '.join(list(ids)[:3])} …) of {len(shapes)} different sizes cannot be one "
                "batch. Give them a common size, cut patches, or ask for one at a time."
            )
        return torch.stack(tensors)
