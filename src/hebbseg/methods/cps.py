"""Cross pseudo supervision (CPS): two networks train on each other's pseudo-labels."""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, pseudo_label
from hebbseg.methods.options import Share, Weight


class CrossPseudoSupervision(RampedMethod):
    """Two networks, each trained on the other's pseudo-labels.

        L = Σ_{i=1,2} L_sup(p_i) + λ · [ CE(p_1, argmax p_2) + CE(p_2, argmax p_1) ]    on labelled and unlabelled images

    where p_i is the prediction of network i and argmax carries no gradient. Both networks use the same initialization with
    different seeds. The first one is the final model.

    Chen et al., Semi-supervised semantic segmentation with cross pseudo supervision, CVPR 2021: λ = 1.5 (PASCAL VOC),
    constant.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
    """

    title = "CPS"
    networks = 2

    def __init__(
        self, *, weight: Weight = 1.5, ramp: Ramp = "constant", ramp_share: Share = 1.0, **parts: Unpack[Parts]
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.second = parts["another"]()

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        images = torch.cat([labelled.images, unlabelled])
        first, second = self.network(images), self.second(images)
        (label1, _), (label2, _) = pseudo_label(first), pseudo_label(second)
        return {
            "supervised": self.criterion(first[:count], labelled.masks) + self.criterion(second[:count], labelled.masks),
            "cross": self.lambda_(step) * (F.cross_entropy(first, label2) + F.cross_entropy(second, label1)),
        }
