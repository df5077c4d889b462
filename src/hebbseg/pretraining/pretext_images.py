"""Training images of a pretext task: batches, the superpixels of each image, and held-out images."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hebbseg.data.batches import Batches
from hebbseg.seeding import derive_seed

HELD_OUT = 0.1  # of the training images
VIEWS = 32  # at least, of held-out images in a validation

Segment = Callable[[Tensor, int], Tensor]
"""(image (C, *S), pixels of a training patch) → integers (*S), 0 for none."""


def same(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True, kw_only=True)
class PretextImages:
    """Images of stage 1 by batch number, without masks. Batch k depends only on the seed and k.

    Args:
        ids: the training images.
        batches: draws the batches.
        move: moves a tensor to the device.
        rank: number of this process, which trains on every ``processes``-th image of a batch.
        processes: number of processes.
        segments: the segments of each image, computed at its first use; share it between tasks with equal options.
    """

    ids: tuple[str, ...]
    batches: Batches
    move: Callable[[Tensor], Tensor] = same
    rank: int = 0
    processes: int = 1
    segments: dict[str, Tensor] = field(default_factory=dict)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.ids) / self.batches.image_batch)

    def batch(self, step: int, segment: Segment | None) -> tuple[Tensor, Tensor | None]:
        """Return batch ``step`` of images (B, C, *S) and, if the task segments images, of segments (B, *S)."""
        part = slice(self.rank, None, self.processes)
        if segment is None:
            return self.move(self.batches.images_only(step)[part]), None
        images, segments = self.batches.images_with_maps(step, lambda name: self._segments_of(name, segment))
        return self.move(images[part]), self.move(segments[part])

    def validation(self, segment: Segment | None) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the same batches at every call: each image at least once, at least 32 images or patches in total."""
        count = math.ceil(max(len(self.ids), VIEWS) / self.batches.image_batch)
        yield from (self.batch(step, segment) for step in range(count))

    def held_out(self) -> tuple["PretextImages", "PretextImages"]:
        """Return the images to train on and 10 % of the images, at least one, that are held out; drawn by the seed."""
        generator = torch.Generator().manual_seed(derive_seed(self.batches.seed, "held-out images of stage 1"))
        order = torch.randperm(len(self.ids), generator=generator).tolist()
        names, count = sorted(self.ids), max(1, round(HELD_OUT * len(self.ids)))
        held = tuple(sorted(names[number] for number in order[:count]))
        kept = tuple(name for name in names if name not in held)
        size = self.batches.image_batch
        few = self.batches.of_images(held, image_batch=min(size, count))
        return (
            replace(self, ids=kept, batches=self.batches.of_images(kept, image_batch=size)),
            replace(self, ids=held, batches=few, rank=0, processes=1),  # every process validates on all of them
        )

    def _segments_of(self, name: str, segment: Segment) -> Tensor:
        if name not in self.segments:
            image = self.batches.store.images([name])[0]  # (C, *S)
            patch = self.batches.patch
            self.segments[name] = segment(image, math.prod(image.shape[1:] if patch is None else patch))
        return self.segments[name]
