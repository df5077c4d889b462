"""Bidirectional copy-paste (BCP): labelled crops in unlabelled images, and the reverse."""

from typing import Literal, Unpack

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from hebbseg.data.augment.cutmix import copy_paste_box, mixed
from hebbseg.data.labels.ignore import completed
from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.losses import region_loss
from hebbseg.methods.ops import follow, make_teacher, pseudo_label
from hebbseg.methods.options import Rate, Share, Weight

SINGLE_OBJECT = 0.95  # minimum fraction of a class in its largest connected component


def largest_parts(masks: Tensor, classes: list[int]) -> Tensor:
    """Keep only the largest connected component of each given class, per image; the rest becomes background.

    Shapes: class indices (B, *S) → (B, *S).
    """
    kept = masks.cpu().numpy().copy()
    for mask in kept:
        for index in classes:
            mask[(mask == index) & ~_largest(mask == index)] = 0
    return torch.from_numpy(kept).to(masks.device)


def single_objects(masks: Tensor, classes: int) -> list[int]:
    """Return the foreground classes that are a single object in every mask (B, *S) that contains them.

    Pixels that are not annotated count as the class of the nearest annotated pixel.
    """
    found = []
    whole = [completed(mask) for mask in masks.cpu().numpy()]
    for index in range(1, classes):
        areas = [(mask == index) for mask in whole if (mask == index).any()]
        if areas and all(_largest(area).sum() >= SINGLE_OBJECT * area.sum() for area in areas):
            found.append(index)
    return found


def _largest(area: np.ndarray) -> np.ndarray:
    parts, _ = ndimage.label(area, structure=np.ones((3,) * area.ndim))
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return (parts == sizes.argmax()) & area


class BidirectionalCopyPaste(Method):
    """Copy-paste between labelled and unlabelled images in both directions.

        inward    M u_p + (1 − M) x_i,   L_in  = α L(ŷ_p on M) + L(y_i on 1 − M)
        outward   M x_j + (1 − M) u_q,   L_out = L(y_j on M) + α L(ŷ_q on 1 − M)

    where M is 0 in a box and 1 elsewhere, x are labelled images, u unlabelled images, ŷ the pseudo-labels of an EMA teacher
    and L the supervised loss restricted to a region. During warm-up, labelled images are pasted into one another. Every
    image is used in both directions, so one labelled and one unlabelled image per batch suffice.

    If a class is a single object (an atrium), only the largest connected component of its pseudo-label is kept. With many
    objects (glands) this would remove most of the class; ``auto`` decides from the labelled masks of the batch.

    Bai et al., Bidirectional copy-paste for semi-supervised medical image segmentation, CVPR 2023.

    Options:
        weight: α, weight of the loss on pseudo-labelled positions
        box: side of the box as a fraction of the side of the image
        warm_up: fraction of training with labelled images only
        decay: EMA decay of the teacher
        largest_part: keep only the largest connected component of each class in a pseudo-label
    """

    title = "BCP"

    def __init__(
        self,
        *,
        weight: Weight = 0.5,
        box: Share = 2 / 3,
        warm_up: Share = 0.25,
        decay: Rate = 0.99,
        largest_part: Literal["auto", "always", "never"] = "auto",
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.box = box
        self.warm_up = warm_up
        self.decay = decay
        self.largest_part = largest_part
        self.teacher = make_teacher(self.network)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        inside = copy_paste_box(unlabelled.shape[2:], self.box, step.generator).to(unlabelled.device)
        if step.progress < self.warm_up:
            images, masks = (mixed(x.roll(1, dims=0), x, inside) for x in labelled)
            return {"supervised": self.criterion(self.network(images), masks)}
        count = max(len(labelled.images), len(unlabelled))
        x, y = (_cycled(each, count) for each in labelled)
        u, ŷ = (_cycled(each, count) for each in (unlabelled, self.pseudo_masks(labelled, unlabelled)))
        u2, ŷ2 = u.roll(1, dims=0), ŷ.roll(1, dims=0)
        logits_in, logits_out = self.network(torch.cat([mixed(x, u, inside), mixed(u2, x, inside)])).chunk(2)
        region = inside.expand(count, *inside.shape[1:])
        name = self.loss_name
        return {
            "supervised": region_loss(logits_in, y, region, name) + region_loss(logits_out, y, ~region, name),
            "pseudo": self.weight * (region_loss(logits_in, ŷ, ~region, name) + region_loss(logits_out, ŷ2, region, name)),
        }

    @torch.no_grad()
    def pseudo_masks(self, labelled: Labelled, unlabelled: Tensor) -> Tensor:
        """Return the teacher's hard labels (B, *S), reduced to the largest components if requested."""
        logits = self.teacher(unlabelled)
        masks, classes = pseudo_label(logits)[0], logits.shape[1]
        if self.largest_part == "never":
            return masks
        every = list(range(1, classes))
        return largest_parts(masks, every if self.largest_part == "always" else single_objects(labelled.masks, classes))

    def after_step(self, step: Step) -> None:
        follow(self.teacher, self.network, self.decay, step.number)


def _cycled(x: Tensor, count: int) -> Tensor:
    """Repeat x along the batch axis up to ``count`` images."""
    return x[torch.arange(count, device=x.device) % len(x)]
