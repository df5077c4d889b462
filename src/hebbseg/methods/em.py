"""Entropy minimization (EM) on unlabelled images."""

import math
from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, entropy, softmax
from hebbseg.methods.options import Share, Weight


def normalized_entropy(logits: Tensor) -> Tensor:
    """Return the mean over positions of −Σ_c p_c ln p_c / ln K, in [0, 1]. Shapes: (B, K, *S) → ()."""
    return entropy(softmax(logits)).mean() / math.log(logits.shape[1])


class EntropyMinimization(RampedMethod):
    """Entropy minimization on unlabelled images.

        L = L_sup(labelled) + λ(t) · H(unlabelled)

    where H is the mean entropy of the prediction divided by ln K.

    Grandvalet and Bengio, NIPS 2004; normalized, for segmentation, Vu et al., ADVENT, CVPR 2019, Eq. 2–3. Neither gives a
    weight for this task (ADVENT uses 0.001 for domain adaptation); the default is this project's own.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
    """

    title = "EM"

    def __init__(self, *, weight: Weight = 5.0, ramp: Ramp = "linear", ramp_share: Share = 1.0, **parts: Unpack[Parts]) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        logits = self.network(torch.cat([labelled.images, unlabelled]))
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "entropy": self.lambda_(step) * normalized_entropy(logits[count:]),
        }
