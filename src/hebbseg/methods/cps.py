"""Cross pseudo supervision: two networks that began apart, each the other's teacher."""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.ops import Ramp, pseudo_label, ramp_up
from hebbseg.methods.options import Share, Weight


class CrossPseudoSupervision(Method):
    """L = Σ_{i=1,2} L_sup(p_i) + λ · [ CE(p_1, argmax p_2) + CE(p_2, argmax p_1) ] on labelled and unlabelled images.

    The hard labels carry no gradient. Both networks are initialised the same way, from different seeds; the first is kept.

    Chen et al., Semi-supervised semantic segmentation with cross pseudo supervision, CVPR 2021: λ = 1.5 (PASCAL VOC) from
    the first update on.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
    """

    title = "CPS"
    networks = 2

    def __init__(
        self, *, weight: Weight = 1.5, ramp: Ramp = "constant", ramp_share: Share = 1.0, **parts: Unpack[Parts]
    ) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
        self.second = parts["another"]()

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        images = torch.cat([labelled.images, unlabelled])
        first, second = self.network(images), self.second(images)
        (label1, _), (label2, _) = pseudo_label(first), pseudo_label(second)
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(first[:count], labelled.masks) + self.criterion(second[:count], labelled.masks),
            "cross": λ * (F.cross_entropy(first, label2) + F.cross_entropy(second, label1)),
        }
