"""Uncertainty-rectified pyramid consistency (URPC) between the scales of the decoder."""

from functools import partial
from itertools import cycle
from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, seed_of, softmax, squared_distance
from hebbseg.methods.options import Count, Share, Weight
from hebbseg.methods.perturbations import Perturbation, channel_dropout, feature_drop, feature_noise
from hebbseg.networks.heads import ScaleHeads, cropped
from hebbseg.networks.unet import UNet

# Perturbations of the coarser decoder levels from fine to coarse, repeated; the original drops positions from 0.7 on.
LEVEL_PERTURBATIONS: tuple[Perturbation, ...] = (feature_noise, partial(feature_drop, low=0.7), channel_dropout)


def rectified_consistency(predictions: Tensor) -> Tensor:
    """Return the second term of `PyramidConsistency` without λ. Shapes: probabilities (S, B, K, *size) → ()."""
    mean = predictions.mean(dim=0)
    tiny = torch.finfo(mean.dtype).tiny
    terms = []
    for p in predictions:
        divergence = (mean * (mean.clamp_min(tiny).log() - p.clamp_min(tiny).log())).sum(dim=1)  # (B, *size)
        w = torch.exp(-divergence)
        terms.append((squared_distance(p, mean) * w).mean() / (w.mean() + 1e-8) + divergence.mean())
    return torch.stack(terms).mean()


class PyramidConsistency(RampedMethod):
    """Consistency between the predictions at S scales of the decoder.

        L = 1/S Σ_s L_sup(p_s) + λ(t) · 1/S Σ_s [ ⟨ w_s ‖p_s − p̄‖² / K ⟩ / ⟨ w_s ⟩ + ⟨ D_s ⟩ ]

    where p_s is the prediction at scale s, upsampled to full size, p̄ their mean, D_s = KL(p̄ ‖ p_s) the uncertainty,
    w_s = exp(−D_s) and ⟨·⟩ the mean over positions; the second term is on unlabelled images, with gradient through p̄. The
    feature maps of the coarser scales are perturbed (noise, dropped positions, channel dropout). The finest prediction is
    that of the plain UNet, which is the final model.

    Luo et al., Semi-supervised medical image segmentation via uncertainty rectified pyramid consistency, MICCAI 2021 and
    Medical Image Analysis 2022.

    Options:
        weight: λ at the end of the ramp; twice the original's 0.1, whose supervised loss is ½ (CE + Dice), here CE + Dice
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        scales: S, number of scales; at most the number of decoder levels
    """

    title = "URPC"
    needs_unet = True
    network: UNet

    def __init__(
        self,
        *,
        weight: Weight = 0.2,
        ramp: Ramp = "sigmoid",
        ramp_share: Share = 1.0,
        scales: Count = 4,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.scales = scales
        self.heads = ScaleHeads(network=self.network, scales=scales, seed=seed_of(self.network))

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        scales = self.pyramid(torch.cat([labelled.images, unlabelled]), step.generator)
        supervised = torch.stack([self.criterion(logits[:count], labelled.masks) for logits in scales]).mean()
        predictions = torch.stack([softmax(logits[count:]) for logits in scales])
        return {"supervised": supervised, "consistency": self.lambda_(step) * rectified_consistency(predictions)}

    def pyramid(self, images: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Return the logits (B, K, *S) of all scales, the plain UNet's first."""
        size = images.shape[2:]
        *coarse, fine = self.network.decoder(self.network.encoder(self.network.padded(images)))
        perturbed = [perturb(x, generator) for perturb, x in zip(cycle(LEVEL_PERTURBATIONS), reversed(coarse), strict=False)]
        return [cropped(self.network.head(fine), size), *self.heads([*reversed(perturbed), fine], size)]
