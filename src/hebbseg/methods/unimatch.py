"""UniMatch: FixMatch with two strong views and a view with perturbed features."""

from functools import partial
from typing import Literal, Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.cutmix import strong_view
from hebbseg.methods.losses import foreground_dice, pseudo_label_loss
from hebbseg.methods.ops import Ramp, pseudo_label, ramp_up
from hebbseg.methods.options import Rate, Share, Weight
from hebbseg.methods.perturbations import channel_dropout
from hebbseg.networks.heads import cropped
from hebbseg.networks.unet import UNet


class UniMatch(RampedMethod):
    """Weak-to-strong consistency with two strong views and feature perturbation.

        L = L_sup(labelled) + λ D · [ ½ H(p_f, q) + ¼ H(p_1, q) + ¼ H(p_2, q) ]    on unlabelled images
        H(p, q) = 1/N Σ_n 1[max_c q_nc ≥ τ] · CE(p_n, argmax q_n), or the Dice loss where max_c q_nc ≥ τ

    where q is the prediction for the weak view (no gradient), p_f that of the decoder after channel dropout on the encoder's
    feature maps of the weak view (skip connections included), and p_1, p_2 those for two independent strong views with CutMix.

    Yang et al., Revisiting weak-to-strong consistency in semi-supervised semantic segmentation, CVPR 2023.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        start: fraction of training on labelled images alone, before pseudo-labels are used
        threshold: τ, minimum confidence of a pseudo-label
        pseudo_loss: H, cross-entropy (ce) or Dice loss (dice) on confident positions
        dice_gated: multiply the loss on pseudo-labels by D, the foreground Dice on the labelled images of the batch, so that
            a network that misses the foreground does not learn from its own pseudo-labels; otherwise D = 1
        feature_view: use p_f, which requires the UNet; otherwise each strong view has the weight ½
        dropout: probability of dropping a channel of the perturbed features
        cutmix: probability of CutMix with another image of the batch in each strong view
    """

    title = "UniMatch"
    needs_unet = True
    network: UNet

    def __init__(
        self,
        *,
        weight: Weight = 1.0,
        ramp: Ramp = "constant",
        ramp_share: Share = 1.0,
        start: Share = 0.0,
        threshold: Share = 0.95,
        pseudo_loss: Literal["ce", "dice"] = "ce",
        dice_gated: bool = False,
        feature_view: bool = True,
        dropout: Rate = 0.5,
        cutmix: Share = 0.5,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.start = start
        self.threshold = threshold
        self.pseudo_loss = pseudo_loss
        self.dice_gated = dice_gated
        self.feature_view = feature_view
        self.dropout = dropout
        self.cutmix = cutmix

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        if step.progress < self.start:
            return self.supervised(labelled)
        unlabelled = self.needed(unlabelled)
        distance = partial(pseudo_label_loss, threshold=self.threshold, loss=self.pseudo_loss)
        net, generator = self.network, step.generator
        known, total, size = len(labelled.images), len(labelled.images) + len(unlabelled), unlabelled.shape[2:]
        images = torch.cat([labelled.images, unlabelled])
        if self.feature_view:
            maps = net.encoder(net.padded(images))
            maps = [torch.cat([z, channel_dropout(z[known:], generator, self.dropout)]) for z in maps]
            logits = cropped(net.head(net.decoder(maps)[-1]), size)
        else:
            logits = net(images)
        label, confidence = pseudo_label(logits[known:total])
        terms = [0.5 * distance(logits[total:], label, confidence)] if self.feature_view else []

        views = [strong_view(unlabelled, label, confidence, self.augment, self.cutmix, generator) for _ in range(2)]
        for p, (_, q, c) in zip(net(torch.cat([view for view, _, _ in views])).chunk(2), views, strict=True):
            terms.append((0.25 if self.feature_view else 0.5) * distance(p, q, c))
        D = foreground_dice(logits[:known], labelled.masks) if self.dice_gated else 1.0
        λ = D * self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:known], labelled.masks),
            **({"features": λ * terms[0]} if self.feature_view else {}),
            "strong": λ * (terms[-2] + terms[-1]),
        }
