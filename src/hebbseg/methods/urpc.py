"""Uncertainty-rectified pyramid consistency: all scales of the decoder must agree, most where they nearly do."""

from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.ops import Ramp, ramp_up, seed_of, softmax, squared_distance
from hebbseg.methods.options import Count, Share, Weight
from hebbseg.methods.perturbations import Perturbation, channel_dropout, feature_drop, feature_noise
from hebbseg.networks.heads import ScaleHeads, cropped
from hebbseg.networks.unet import UNet

# What each coarser level's map goes through before its prediction, from fine to coarse, then again from the start.
# Positions are removed from 0.7 of the largest activity on, where CCT begins at 0.6.
HARMS: tuple[Perturbation, ...] = (feature_noise, partial(feature_drop, low=0.7), channel_dropout)


def rectified_consistency(predictions: Tensor) -> Tensor:
    """1/S Σ_s [ Σ_v w_sv ‖p_sv − p̄_v‖² / K  /  Σ_v w_sv  +  mean_v D_sv ],  D_s = KL(p̄ ‖ p_s),  w_s = exp(−D_s).

    p̄ is the mean over the S scales. Shapes: probabilities (S, B, K, *size) → ().
    """
    mean = predictions.mean(dim=0)
    tiny = torch.finfo(mean.dtype).tiny
    terms = []
    for p in predictions:
        divergence = (mean * (mean.clamp_min(tiny).log() - p.clamp_min(tiny).log())).sum(dim=1)  # (B, *size)
        w = torch.exp(-divergence)
        terms.append((squared_distance(p, mean) * w).mean() / (w.mean() + 1e-8) + divergence.mean())
    return torch.stack(terms).mean()


class PyramidConsistency(Method):
    """Predictions p_s at S decoder scales, brought to full size; p̄ their mean:

        L = 1/S Σ_s L_sup(p_s) + λ(t) · 1/S Σ_s [ ⟨ w_s ‖p_s − p̄‖² / K ⟩ / ⟨ w_s ⟩ + ⟨ D_s ⟩ ]

    with D_s = KL(p̄ ‖ p_s), the uncertainty, and w_s = exp(−D_s); the second part on unlabelled images. The gradient goes
    through p̄ too. Before the coarser predictions the maps are harmed a little (noise, removed positions, removed
    channels). The finest prediction is the plain UNet's, which is kept.

    Luo et al., Semi-supervised medical image segmentation via uncertainty rectified pyramid consistency, MICCAI 2021 and
    Medical Image Analysis 2022.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        scales: S; a decoder with fewer levels gives fewer
    """

    title = "URPC"
    needs_unet = True
    network: UNet

    def __init__(
        self,
        *,
        weight: Weight = 0.1,
        ramp: Ramp = "sigmoid",
        ramp_share: Share = 1.0,
        scales: Count = 4,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
        self.scales = scales
        self.heads = ScaleHeads(network=self.network, scales=scales, seed=seed_of(self.network))

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        scales = self.pyramid(torch.cat([labelled.images, unlabelled]), step.generator)
        supervised = torch.stack([self.criterion(logits[:count], labelled.masks) for logits in scales]).mean()
        predictions = torch.stack([softmax(logits[count:]) for logits in scales])
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {"supervised": supervised, "consistency": λ * rectified_consistency(predictions)}

    def pyramid(self, images: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Logits (B, K, *S) of every scale, the plain UNet's first."""
        size = images.shape[2:]
        *coarse, fine = self.network.decoder(self.network.encoder(self.network.padded(images)))
        harmed = [HARMS[level % len(HARMS)](x, generator) for level, x in enumerate(reversed(coarse))]
        return [cropped(self.network.head(fine), size), *self.heads([*reversed(harmed), fine], size)]
