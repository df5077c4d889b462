"""Dual-task consistency (DTC): segmentation and signed distance regression agree."""

from typing import Unpack

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from hebbseg.data.cases import IGNORE
from hebbseg.data.labels.ignore import completed
from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, masked_mean, seed_of, softmax
from hebbseg.methods.options import Share, Weight
from hebbseg.networks.heads import DistanceHead, cropped
from hebbseg.networks.unet import UNet


def signed_distance(masks: Tensor, classes: int) -> Tensor:
    """Return −d / max d inside each foreground class, 0 on its inner boundary, d / max d outside; d in pixels.

    The map is 1 everywhere for a class that is absent and −1 everywhere for a class that fills the image. Pixels that are
    not annotated count as the class of the nearest annotated pixel, so a boundary lies halfway between annotated areas.
    Shapes: class indices (B, *S) → (B, classes − 1, *S) in [−1, 1].
    """
    fields = [[_field(mask == index) for index in range(1, classes)] for mask in map(completed, masks.cpu().numpy())]
    return torch.from_numpy(np.array(fields, dtype=np.float32)).to(masks.device)


def regression_loss(distance: Tensor, truth: Tensor, masks: Tensor) -> Tensor:
    """Return the mean of (s − s*)² over the annotated pixels. Shapes: (B, K − 1, *S) twice, class indices (B, *S) → ()."""
    annotated = masks != IGNORE
    if annotated.all():
        return F.mse_loss(distance, truth)
    return masked_mean((distance - truth).square().mean(dim=1), annotated)


def _field(inside: np.ndarray) -> np.ndarray:
    if inside.all() or not inside.any():
        return np.full(inside.shape, -1.0 if inside.any() else 1.0)
    depth, outside = distance_transform_edt(inside), distance_transform_edt(~inside)
    depth[depth == 1] = 0  # the inner boundary: pixels that share a face with the outside
    return outside / outside.max() - depth / max(depth.max(), 1)


class DualTaskConsistency(RampedMethod):
    """Consistency between segmentation and signed distance regression.

        L = L_sup + β · mean (s − s*)²  (labelled)  + λ(t) · mean (σ(−k s_c) − p_c)²  (all images)

    where the first mean is over annotated pixels, s_c is the signed distance of foreground class c, predicted by a second
    head (tanh, negative inside), s* its ground truth (`signed_distance`), σ(−k s) a smooth step from distance to mask and
    p_c the softmax of class c.

    Luo et al., Semi-supervised medical image segmentation through dual-task consistency, AAAI 2021.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        distance_weight: β, weight of the distance regression
        steepness: k, steepness of the step from distance to mask
    """

    title = "DTC"
    needs_unet = True
    network: UNet

    def __init__(
        self,
        *,
        weight: Weight = 1.0,
        ramp: Ramp = "sigmoid",
        ramp_share: Share = 1.0,
        distance_weight: Weight = 0.3,
        steepness: Weight = 1500.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.distance_weight = distance_weight
        self.steepness = steepness
        self.distance_head = DistanceHead(network=self.network, seed=seed_of(self.network))

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count, size = len(labelled.images), unlabelled.shape[2:]
        images = self.network.padded(torch.cat([labelled.images, unlabelled]))
        fine = self.network.decoder(self.network.encoder(images))[-1]
        logits, distance = cropped(self.network.head(fine), size), cropped(self.distance_head(fine), size)
        truth = signed_distance(labelled.masks, self.network.out_channels)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "distance": self.distance_weight * regression_loss(distance[:count], truth.to(distance), labelled.masks),
            "consistency": self.lambda_(step) * F.mse_loss(torch.sigmoid(-self.steepness * distance), softmax(logits)[:, 1:]),
        }
