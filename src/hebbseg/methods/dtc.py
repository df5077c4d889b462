"""Dual-task consistency: a mask and a signed distance, two ways to say one thing."""

from typing import Unpack

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.ops import Ramp, ramp_up, seed_of, softmax
from hebbseg.methods.options import Share, Weight
from hebbseg.networks.heads import DistanceHead, cropped
from hebbseg.networks.unet import UNet


def signed_distance(masks: Tensor, classes: int) -> Tensor:
    """For each foreground class, −d / max d inside, 0 on its inner border, d / max d outside, d the distance in pixels.

    A class that an image does not have is all outside (1), one that fills it all inside (−1).
    Shapes: class indices (B, *S) → (B, classes − 1, *S) in [−1, 1].
    """
    fields = np.empty((len(masks), classes - 1, *masks.shape[1:]), dtype=np.float32)
    for image, mask in enumerate(masks.cpu().numpy()):
        for index in range(1, classes):
            fields[image, index - 1] = _field(mask == index)
    return torch.from_numpy(fields).to(masks.device)


def _field(inside: np.ndarray) -> np.ndarray:
    if inside.all() or not inside.any():
        return np.full(inside.shape, -1.0 if inside.any() else 1.0)
    depth, outside = distance_transform_edt(inside), distance_transform_edt(~inside)
    depth[depth == 1] = 0  # the inner border: an outside pixel shares a face with it
    return outside / outside.max() - depth / max(depth.max(), 1)


class DualTaskConsistency(Method):
    """A second head predicts, for each foreground class, the signed distance s (tanh, negative inside):

        L = L_sup + β · mean (s − s*)² on labelled images + λ(t) · mean (σ(−k s_c) − p_c)² on all images

    where σ(−k s) is a smooth step from distance to mask and p_c the softmax of class c; several foreground classes have a
    distance each. Distances count pixels and are divided by their largest, inside and outside apart.

    Luo et al., Semi-supervised medical image segmentation through dual-task consistency, AAAI 2021.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        distance_weight: β, of the distance regression
        steepness: k, of the step from distance to mask
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
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
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
        mask = torch.sigmoid(-self.steepness * distance)
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "distance": self.distance_weight * F.mse_loss(distance[:count], truth.to(distance)),
            "consistency": λ * F.mse_loss(mask, softmax(logits)[:, 1:]),
        }
