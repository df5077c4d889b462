"""Entropy minimisation: be sure of what you see, whatever it is."""

import math
from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.ops import Ramp, entropy, ramp_up, softmax
from hebbseg.methods.options import Share, Weight


def normalized_entropy(logits: Tensor) -> Tensor:
    """Mean over positions of −Σ_c p_c ln p_c / ln K, in [0, 1]. Shapes: (B, K, *S) → ()."""
    return entropy(softmax(logits)).mean() / math.log(logits.shape[1])


class EntropyMinimization(Method):
    """L = L_sup(labelled) + λ(t) · H(unlabelled), H the mean entropy of the prediction divided by ln K.

    Grandvalet and Bengio, NIPS 2004; for segmentation, normalized as here, Vu et al., ADVENT, CVPR 2019, Eq. 2–3. Neither
    has a weight for this task (ADVENT's 0.001 is for another domain's images): the default is this project's common one.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
    """

    title = "EM"

    def __init__(self, *, weight: Weight = 5.0, ramp: Ramp = "linear", ramp_share: Share = 1.0, **parts: Unpack[Parts]) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        logits = self.network(torch.cat([labelled.images, unlabelled]))
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "entropy": λ * normalized_entropy(logits[count:]),
        }
