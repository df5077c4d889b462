"""Bidirectional copy-paste: labelled and unlabelled images lend each other their middles."""

from typing import Literal, Unpack

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.cutmix import copy_paste_box, mixed
from hebbseg.methods.losses import region_loss
from hebbseg.methods.ops import follow, make_teacher, pseudo_label
from hebbseg.methods.options import Rate, Share, Weight

MOSTLY = 0.95  # of a class in its largest part: then it is one object


def largest_parts(masks: Tensor, classes: list[int]) -> Tensor:
    """Of each class named, only the largest connected part of each image stays; the rest becomes background.

    Shapes: class indices (B, *S) → the same.
    """
    kept = masks.cpu().numpy().copy()
    for mask in kept:
        for index in classes:
            largest = _largest(mask == index)
            mask[(mask == index) & ~largest] = 0
    return torch.from_numpy(kept).to(masks.device)


def single_objects(masks: Tensor, classes: int) -> list[int]:
    """Foreground classes that are one object wherever these masks (B, *S) show them."""
    found = []
    for index in range(1, classes):
        areas = [(mask == index) for mask in masks.cpu().numpy() if (mask == index).any()]
        if areas and all(_largest(area).sum() >= MOSTLY * area.sum() for area in areas):
            found.append(index)
    return found


def _largest(area: np.ndarray) -> np.ndarray:
    parts, _ = ndimage.label(area, structure=np.ones((3,) * area.ndim))
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return (parts == sizes.argmax()) & area


class BidirectionalCopyPaste(Method):
    """With M = 0 in a box and 1 around it, labelled images x_i, x_j, unlabelled u_p, u_q, and teacher labels ŷ:

        inward    M u_p + (1 − M) x_i,   L_in  = α L(ŷ_p on M) + L(y_i on 1 − M)
        outward   M x_j + (1 − M) u_q,   L_out = L(y_j on M) + α L(ŷ_q on 1 − M)

    L is the supervised loss of the positions in a region. During the first part of the training labelled images are
    pasted into one another. The teacher is the student's running mean. Every image is used in both directions, so that a
    batch of one labelled and one unlabelled image will do.

    Where a class is one object (an atrium), only the largest part of its pseudo label is kept; where it is many (glands),
    that would delete most of it. ``auto`` looks at the labelled masks of the batch.

    Bai et al., Bidirectional copy-paste for semi-supervised medical image segmentation, CVPR 2023.

    Options:
        weight: α, of positions whose label is the teacher's
        box: the box's side as a part of the image's
        warm_up: part of the training with labelled images alone
        decay: the teacher's memory from one update to the next
        largest_part: keep only the largest part of each class in a pseudo label
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
        """The teacher's hard labels (B, *S), cleaned."""
        logits = self.teacher(unlabelled)
        masks, classes = pseudo_label(logits)[0], logits.shape[1]
        if self.largest_part == "never":
            return masks
        always = self.largest_part == "always"
        return largest_parts(masks, list(range(1, classes)) if always else single_objects(labelled.masks, classes))

    def after_step(self, step: Step) -> None:
        follow(self.teacher, self.network, self.decay, step.number)


def _cycled(x: Tensor, count: int) -> Tensor:
    """The first ``count`` of x, x, x, …"""
    return x[torch.arange(count, device=x.device) % len(x)]
