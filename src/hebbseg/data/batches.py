"""Training batches: batch k depends only on the seed and k, so training can resume at any step."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from hebbseg.data.augment.views import Augment
from hebbseg.data.cases import IGNORE
from hebbseg.data.patches import PATCH_3D, cut, random_start, start_around
from hebbseg.data.splits.split import TrainingCases
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.seeding import derive_seed

POOLS = ("all", "unlabelled")
REDRAWS = 10  # of a patch that shows background


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The batch of one update.

    Shapes: images (B, C, *S) float32 and masks (B, *S) int64 of labelled cases; unlabelled (U, C, *S) or None.
    ``generator`` has drawn this batch. All other randomness of the update (strong views, teacher noise) uses it, so the
    update is reproducible.
    """

    step: int
    images: Tensor
    masks: Tensor
    unlabelled: Tensor | None
    ids: tuple[str, ...]
    unlabelled_ids: tuple[str, ...]
    generator: torch.Generator


class Batches:
    """A fixed number of batches of labelled and unlabelled training images.

    Cases are drawn in epochs without replacement, each in a new random order. Batches have no state: ``batch(k)`` is
    bit-identical after resuming.

    Args:
        store: the preprocessed images and masks.
        training: the labelled and unlabelled cases.
        steps: number of batches.
        seed: random seed of order, patches and augmentation.
        labelled_batch: labelled images per batch.
        unlabelled_batch: unlabelled images per batch; 0 for methods that use none.
        image_batch: images per batch in stage 1; default: ``labelled_batch + unlabelled_batch``.
        pool: draw unlabelled images from ``"all"`` training images (including labelled ones, without their masks) or
            only from the ``"unlabelled"`` ones and those whose masks are not annotated everywhere.
        augment: weak augmentation; None to augment later, on the device, with ``batch.generator``.
        patch: size of random patches. ``"auto"`` is None (whole images) in 2D and 96 × 96 × 80 for volumes, limited to
            their median size along each axis.
        foreground: fraction of labelled patches centered around a random foreground pixel, each class of the case being
            equally likely; the others are drawn uniformly, or around a random annotated pixel of a mask that is not
            annotated everywhere. Beyond such masks, patches are not annotated; beyond all others, they are background.
        background: share of the patches of background that are kept, in images that are read in patches.
        prefetch: prepare the next batch in a thread. Helps on a GPU; on a few CPU cores it does not.
    """

    def __init__(
        self,
        *,
        store: CaseStore,
        training: TrainingCases,
        steps: int,
        seed: int = 0,
        labelled_batch: int = 8,
        unlabelled_batch: int = 8,
        image_batch: int | None = None,
        pool: str = "all",
        augment: Augment | None = None,
        patch: tuple[int, ...] | str | None = "auto",
        foreground: float = 0.5,
        background: float = 0.1,
        prefetch: bool = False,
    ) -> None:
        self.store = store
        self.training = training
        self.steps = steps
        self.seed = seed
        self.labelled_batch = labelled_batch
        self.unlabelled_batch = unlabelled_batch
        self.image_batch = labelled_batch + unlabelled_batch if image_batch is None else image_batch
        self.pool = pool
        self.augment = augment
        self.patch = _resolved_patch(patch, store, training.images)
        self.foreground = foreground
        self.background = background
        self.prefetch = prefetch
        if pool not in POOLS:
            raise HebbsegError(f"Unknown pool={pool!r}. {did_you_mean(pool, POOLS)}")
        if min(steps, unlabelled_batch) < 0 or min(labelled_batch, self.image_batch) < 1:
            raise HebbsegError(
                f"steps={steps}, labelled_batch={labelled_batch}, unlabelled_batch={unlabelled_batch}, "
                f"image_batch={self.image_batch}: batch sizes must be at least 1 (unlabelled_batch: 0), steps at least 0."
            )
        self._labelled = tuple(sorted(training.labelled))
        self._images = training.images
        partly = (name for name in self._labelled if pool == "unlabelled" and store.annotated(name) is not None)
        self._unlabelled = self._images if pool == "all" else tuple(sorted((*training.unlabelled, *partly)))

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        return self.from_step(0)

    def from_step(self, first: int) -> Iterator[Batch]:
        """Yield batches ``first`` … ``steps`` − 1."""
        if not self.prefetch:
            yield from map(self.batch, range(first, self.steps))
            return
        with ThreadPoolExecutor(max_workers=1) as thread:
            coming = thread.submit(self.batch, first) if first < self.steps else None
            for step in range(first + 1, self.steps + 1):
                assert coming is not None
                ready = coming.result()
                coming = thread.submit(self.batch, step) if step < self.steps else None
                yield ready

    def batch(self, step: int) -> Batch:
        """Return batch ``step``, weakly augmented."""
        if not self._labelled:
            raise HebbsegError(
                f"{self.store.source.name}: the split has no labelled case, so only pre-training (stage 1) is possible. "
                "Draw a split with labelled cases."
            )
        generator = _generator(self.seed, "batch", step)
        ids = self._ids(self._labelled, "labelled", step, self.labelled_batch)
        images, masks = self._labelled_tensors(ids, generator)
        unlabelled_ids: tuple[str, ...] = ()
        unlabelled = None
        if self.unlabelled_batch and self._unlabelled:
            unlabelled_ids = self._ids(self._unlabelled, "unlabelled", step, self.unlabelled_batch)
            unlabelled = self._image_tensors(unlabelled_ids, generator)
        if self.augment is not None:
            images, masks = self.augment.labelled(images, masks, generator)
            if unlabelled is not None:
                unlabelled, _ = self.augment.weak(unlabelled, None, generator)
        return Batch(
            step=step,
            images=images,
            masks=masks,
            unlabelled=unlabelled,
            ids=ids,
            unlabelled_ids=unlabelled_ids,
            generator=generator,
        )

    def images_only(self, step: int) -> Tensor:
        """Return stage 1's batch ``step`` of labelled and unlabelled training images. Reads no mask."""
        generator = _generator(self.seed, "images", step)
        images = self._image_tensors(self.image_ids(step), generator)
        return images if self.augment is None else self.augment.weak(images, None, generator)[0]

    def images_with_maps(self, step: int, map_of: Callable[[str], Tensor]) -> tuple[Tensor, Tensor]:
        """Return `images_only` and integer maps, (B, *S), with the same cut and the same geometry; 0 beyond an image.

        Args:
            map_of: returns the integers, (*S), of a case at the size of its stored image.
        """
        generator = _generator(self.seed, "images", step)
        ids = self.image_ids(step)
        maps = [map_of(name) for name in ids]
        images = self._image_tensors(ids, generator, maps)
        stacked = torch.stack(maps)
        if self.augment is None:
            return images, stacked
        images, moved = self.augment.weak(images, stacked, generator)
        assert moved is not None
        return images, moved

    def of_images(self, ids: Sequence[str], *, image_batch: int) -> "Batches":
        """Return batches whose stage 1 draws from these training images only."""
        chosen = copy(self)
        chosen._images = tuple(sorted(ids))
        chosen.image_batch = image_batch
        return chosen

    def image_ids(self, step: int) -> tuple[str, ...]:
        """Return the case ids of `images_only`."""
        return self._ids(self._images, "images", step, self.image_batch)

    def _ids(self, names: tuple[str, ...], purpose: str, step: int, count: int) -> tuple[str, ...]:
        positions = range(step * count, (step + 1) * count)
        size = len(names)
        return tuple(names[_round_order(self.seed, purpose, p // size, size)[p % size]] for p in positions)

    def _labelled_tensors(self, ids: Sequence[str], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if self.patch is None:
            return self.store.images(ids), self.store.masks(ids)
        images, masks = [], []
        for name in ids:
            draw = partial(self._labelled_start, name, self.store.shape(name), generator)
            start = self._start(name, generator, draw)
            images.append(self.store.patch(name, start, self.patch))
            fill = 0 if self.store.annotated(name) is None else IGNORE
            masks.append(self.store.mask_patch(name, start, self.patch, fill))
        return self.store.preprocessing.to_network(torch.stack(images)), torch.stack(masks).long()

    def _image_tensors(self, ids: Sequence[str], generator: torch.Generator, maps: list[Tensor] | None = None) -> Tensor:
        """Return the images, or patches of them; replaces each of ``maps`` by the same patch of it."""
        if self.patch is None:
            return self.store.images(ids)
        patches = []
        for number, name in enumerate(ids):
            draw = partial(random_start, self.store.shape(name), self.patch, generator)
            start = self._start(name, generator, draw)
            patches.append(self.store.patch(name, start, self.patch))
            if maps is not None:
                maps[number] = cut(maps[number], start, self.patch)
        return self.store.preprocessing.to_network(torch.stack(patches))

    def _start(self, name: str, generator: torch.Generator, draw: Callable[[], list[int]]) -> list[int]:
        """Return a start drawn by ``draw``; most of those that show the background of a large image are drawn again."""
        assert self.patch is not None
        start = draw()
        for _ in range(REDRAWS):
            if not self.store.is_background(name, start, self.patch):
                break
            if bool(torch.rand((), generator=generator) < self.background):
                break
            start = draw()
        return start

    def _labelled_start(self, name: str, shape: Sequence[int], generator: torch.Generator) -> list[int]:
        assert self.patch is not None
        classes = self.store.foreground(name)
        wanted = bool(torch.rand((), generator=generator) < self.foreground)
        annotated = self.store.annotated(name)
        if wanted and classes:
            points = classes[int(torch.randint(len(classes), (), generator=generator))]
        elif annotated is not None and len(annotated):
            points = annotated
        else:
            return random_start(shape, self.patch, generator)
        point = points[int(torch.randint(len(points), (), generator=generator))].tolist()
        return start_around(point, shape, self.patch, generator)


def _resolved_patch(patch: tuple[int, ...] | str | None, store: CaseStore, ids: Sequence[str]) -> tuple[int, ...] | None:
    spatial_dims = store.source.spatial_dims
    if patch == "auto":
        return store.fitting(PATCH_3D, ids) if spatial_dims == 3 else None
    if patch is None:
        return None
    if isinstance(patch, str) or len(patch) != spatial_dims or min(patch) < 1:
        raise HebbsegError(f"patch={patch!r}: allowed are 'auto', None, or {spatial_dims} positive integers.")
    return tuple(patch)


@lru_cache(maxsize=16)
def _round_order(seed: int, purpose: str, round_number: int, size: int) -> tuple[int, ...]:
    return tuple(torch.randperm(size, generator=_generator(seed, f"order of {purpose}", round_number)).tolist())


def _generator(seed: int, purpose: str, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, purpose, number))
