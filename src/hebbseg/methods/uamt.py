"""Uncertainty-aware mean teacher: agree with the teacher where it is sure."""

import math
from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, Step
from hebbseg.methods.mean_teacher import MeanTeacher
from hebbseg.methods.ops import Ramp, entropy, input_noise, masked_mean, ramp_up, softmax, squared_distance
from hebbseg.methods.options import Count, Rate, Share, Weight


def certain(passes: Tensor, progress: float) -> Tensor:
    """Where the entropy of the mean prediction is below (¾ + ¼ exp(−5 (1 − t)²)) ln K.

    Shapes: probabilities (T, B, K, *S) of T passes → (B, *S) of truth values.
    """
    threshold = (0.75 + 0.25 * ramp_up("sigmoid", progress)) * math.log(passes.shape[2])
    return entropy(passes.mean(dim=0)) < threshold


class UncertaintyAwareMeanTeacher(MeanTeacher):
    """Mean teacher whose consistency counts only where T stochastic passes of the teacher agree:

        L = L_sup + λ(t) · Σ_v m_v ‖p_v − p̄_v‖² / K  /  Σ_v m_v,     m_v = 1[H_v < (¾ + ¼ r(t)) ln K]

    on unlabelled images; H_v is the entropy of the mean of T teacher predictions, each with its own input noise and real
    dropout, r(t) = exp(−5 (1 − t)²). The T passes, and the one that gives the target p̄, are one batch. The teacher
    normalizes with that batch's statistics (a copy of an image changes them as little as the noise does), which fit its
    weights; running ones would be late.

    Yu et al., Uncertainty-aware self-ensembling model for semi-supervised 3D left atrium segmentation, MICCAI 2019.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        decay: the teacher's memory from one update to the next
        noise: standard deviation of the input noise in units of the image's own, clipped at twice that
        passes: T, stochastic passes of the teacher
    """

    title = "UAMT"

    def __init__(
        self,
        *,
        weight: Weight = 0.1,
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
            seen = softmax(self.teacher(input_noise(copies, step.generator, self.noise)))
            seen = seen.reshape(self.passes + 1, *unlabelled.shape[:1], *seen.shape[1:])  # (T + 1, B, K, *S)
            sure = certain(seen[1:], step.progress)
        logits = self.network(torch.cat([labelled.images, unlabelled]))
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": λ * masked_mean(squared_distance(softmax(logits[count:]), seen[0]), sure),
        }
