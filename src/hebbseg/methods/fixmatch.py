"""FixMatch: confident pseudo-labels from a weak view supervise a strong view."""

from typing import Literal, Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.cutmix import strong_view
from hebbseg.methods.losses import foreground_dice, pseudo_label_loss
from hebbseg.methods.ops import Ramp, follow, make_teacher, pseudo_label
from hebbseg.methods.options import CountOrZero, Rate, Share, Weight
from hebbseg.networks.modes import without_dropout


class FixMatch(RampedMethod):
    """Weak-to-strong consistency with confident pseudo-labels.

        L = L_sup(labelled) + λ D · H(p, q)                                          on unlabelled images
        H(p, q) = 1/N Σ_n 1[max_c q_nc ≥ τ] · CE(p_n, argmax q_n), or the Dice loss where max_c q_nc ≥ τ

    where q is the prediction for the weak view (no gradient, no dropout) and p that for the strong view (`Augment.strong`:
    same geometry, stronger intensity changes, noise and blur).

    Sohn et al., FixMatch, NeurIPS 2020: λ = 1, constant, τ = 0.95, q from the network itself. Applied per pixel, with or
    without CutMix, it is the baseline of UniMatch (Yang et al., CVPR 2023).

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        start: fraction of training on labelled images alone, before pseudo-labels are used
        start_updates: number of updates on labelled images alone, if it is larger than that fraction
        threshold: τ, minimum confidence of a pseudo-label
        pseudo_loss: H, cross-entropy (ce) or Dice loss (dice) on confident positions
        dice_gated: multiply the loss on pseudo-labels by D, the foreground Dice on the labelled images of the batch, so that
            a network that misses the foreground does not learn from its own pseudo-labels; otherwise D = 1
        decay: EMA decay of a teacher that predicts q; 0 for none: q is predicted by the network itself
        cutmix: probability of CutMix in the strong view
        cutmix_with: images that CutMix pastes from, other unlabelled images of the batch or labelled ones with their masks
    """

    title = "FixMatch"

    def __init__(
        self,
        *,
        weight: Weight = 1.0,
        ramp: Ramp = "constant",
        ramp_share: Share = 1.0,
        start: Share = 0.0,
        start_updates: CountOrZero = 0,
        threshold: Share = 0.95,
        pseudo_loss: Literal["ce", "dice"] = "ce",
        dice_gated: bool = False,
        decay: Rate = 0.0,
        cutmix: Share = 0.0,
        cutmix_with: Literal["unlabelled", "labelled"] = "unlabelled",
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.start = start
        self.start_updates = start_updates
        self.threshold = threshold
        self.pseudo_loss = pseudo_loss
        self.dice_gated = dice_gated
        self.decay = decay
        self.cutmix = cutmix
        self.cutmix_with = cutmix_with
        self.teacher = make_teacher(self.network) if decay else None

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        if step.progress < self.start or step.number < self.start_updates:
            return self.supervised(labelled)
        unlabelled = self.needed(unlabelled)
        count = len(labelled.images)
        predictor = self.teacher or self.network
        with torch.no_grad(), without_dropout(predictor):
            label, confidence = pseudo_label(predictor(unlabelled))
        pasted = labelled if self.cutmix_with == "labelled" else None
        strong, label, confidence = strong_view(
            unlabelled, label, confidence, self.augment, self.cutmix, step.generator, pasted
        )
        logits = self.network(torch.cat([labelled.images, strong]))
        D = foreground_dice(logits[:count], labelled.masks) if self.dice_gated else 1.0
        distance = pseudo_label_loss(logits[count:], label, confidence, self.threshold, self.pseudo_loss)
        return {"supervised": self.criterion(logits[:count], labelled.masks), "pseudo": D * self.lambda_(step) * distance}

    def after_step(self, step: Step) -> None:
        if self.teacher is not None:
            follow(self.teacher, self.network, self.decay, step.number)
