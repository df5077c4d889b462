"""FixMatch: what is seen clearly in a weak view is the label of a strong one."""

from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.cutmix import cutmix_boxes, mixed
from hebbseg.methods.ops import Ramp, confident_cross_entropy, pseudo_label, ramp_up
from hebbseg.methods.options import Share, Weight
from hebbseg.networks.modes import without_dropout


class FixMatch(Method):
    """L = L_sup(labelled) + λ · 1/N Σ_n 1[max_c q_nc ≥ τ] · CE(p_n, argmax q_n) on unlabelled images,

    q the prediction on the weak view, without gradient and without dropout, p that on its strong view (`Augment.strong`:
    the same geometry, harsher light, noise and blur).

    Sohn et al., FixMatch, NeurIPS 2020: λ = 1 from the first update on, τ = 0.95; pixel by pixel, with or without CutMix,
    it is the baseline of UniMatch (Yang et al., CVPR 2023).

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        threshold: τ, the probability from which a pseudo label is trusted
        cutmix: chance that a box of the strong view shows another image of the batch
    """

    title = "FixMatch"

    def __init__(
        self,
        *,
        weight: Weight = 1.0,
        ramp: Ramp = "constant",
        ramp_share: Share = 1.0,
        threshold: Share = 0.95,
        cutmix: Share = 0.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
        self.threshold = threshold
        self.cutmix = cutmix

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        with torch.no_grad(), without_dropout(self.network):
            label, confidence = pseudo_label(self.network(unlabelled))
        strong = self.augment.strong(unlabelled, step.generator)
        boxes = cutmix_boxes(len(unlabelled), unlabelled.shape[2:], self.cutmix, step.generator)
        strong, label, confidence = (mixed(x.roll(1, dims=0), x, boxes) for x in (strong, label, confidence))
        logits = self.network(torch.cat([labelled.images, strong]))
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "pseudo": λ * confident_cross_entropy(logits[count:], label, confidence, self.threshold),
        }
