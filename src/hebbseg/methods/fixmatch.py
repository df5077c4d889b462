"""FixMatch: confident pseudo-labels from a weak view supervise a strong view."""

from typing import Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.cutmix import strong_view
from hebbseg.methods.ops import Ramp, confident_cross_entropy, pseudo_label
from hebbseg.methods.options import Share, Weight
from hebbseg.networks.modes import without_dropout


class FixMatch(RampedMethod):
    """Weak-to-strong consistency with confident pseudo-labels.

        L = L_sup(labelled) + λ · 1/N Σ_n 1[max_c q_nc ≥ τ] · CE(p_n, argmax q_n)    on unlabelled images

    where q is the prediction for the weak view (no gradient, no dropout) and p that for the strong view (`Augment.strong`:
    same geometry, stronger intensity changes, noise and blur).

    Sohn et al., FixMatch, NeurIPS 2020: λ = 1, constant, τ = 0.95. Applied per pixel, with or without CutMix, it is the
    baseline of UniMatch (Yang et al., CVPR 2023).

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        threshold: τ, minimum confidence of a pseudo-label
        cutmix: probability of CutMix with another image of the batch in the strong view
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
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.threshold = threshold
        self.cutmix = cutmix

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        with torch.no_grad(), without_dropout(self.network):
            label, confidence = pseudo_label(self.network(unlabelled))
        strong, label, confidence = strong_view(unlabelled, label, confidence, self.augment, self.cutmix, step.generator)
        logits = self.network(torch.cat([labelled.images, strong]))
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "pseudo": self.lambda_(step) * confident_cross_entropy(logits[count:], label, confidence, self.threshold),
        }
