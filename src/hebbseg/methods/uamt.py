"""Uncertainty-aware Mean Teacher (UAMT): consistency where the teacher is certain."""

import math
from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, Step
from hebbseg.methods.mean_teacher import MeanTeacher
from hebbseg.methods.ops import Ramp, entropy, input_noise, masked_mean, ramp_up, softmax, squared_distance
from hebbseg.methods.options import Count, Rate, Share, Weight


def certain(passes: Tensor, progress: float) -> Tensor:
    """Return where the entropy of the mean prediction is below (¾ + ¼ exp(−5 (1 − t)²)) ln K.

    Shapes: probabilities (T, B, K, *S) of T passes → boolean (B, *S).
    """
    threshold = (0.75 + 0.25 * ramp_up("sigmoid", progress)) * math.log(passes.shape[2])
    return entropy(passes.mean(dim=0)) < threshold


class UncertaintyAwareMeanTeacher(MeanTeacher):
    """Mean Teacher with consistency restricted to positions of low predictive entropy.

        L = L_sup + λ(t) · Σ_v m_v ‖p_v − p̄_v‖² / K  /  Σ_v m_v,     m_v = 1[H_v < (¾ + ¼ r(t)) ln K]

    on unlabelled images, where p̄ is the target from one teacher pass, H_v the entropy of the mean of T stochastic passes with
    independent input noise and dropout, and r(t) = exp(−5 (1 − t)²). All T + 1 passes form one batch, whose statistics the
    teacher's normalization layers use.

    Yu et al., Uncertainty-aware self-ensembling model for semi-supervised 3D left atrium segmentation, MICCAI 2019.

    Options:
        weight: λ at the end of the ramp; twice the original's 0.1, whose supervised loss is ½ (CE + Dice), here CE + Dice
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        decay: EMA decay of the teacher
        noise: standard deviation of the input noise relative to that of the image, clipped at two standard deviations
        passes: T, number of stochastic teacher passes
    """

    title = "UAMT"

    def __init__(
        self,
        *,
        weight: Weight = 0.2,
        ramp: Ramp = "sigmoid",
        ramp_share: Share = 1.0,
        decay: Rate = 0.99,
        noise: Weight = 0.1,
        passes: Count = 8,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, decay=decay, noise=noise, **parts)
        self.passes = passes

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        with torch.no_grad():
            copies = unlabelled.repeat(self.passes + 1, *(1,) * (unlabelled.ndim - 1))
            passes = softmax(self.teacher(input_noise(copies, step.generator, self.noise)))
            passes = passes.reshape(self.passes + 1, *unlabelled.shape[:1], *passes.shape[1:])  # (T + 1, B, K, *S)
            mask = certain(passes[1:], step.progress)
        logits = self.network(torch.cat([labelled.images, unlabelled]))
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": self.lambda_(step) * masked_mean(squared_distance(softmax(logits[count:]), passes[0]), mask),
        }
