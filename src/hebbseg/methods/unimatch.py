"""UniMatch: FixMatch with two strong views and one view whose features are harmed."""

from typing import Literal, Unpack

import torch
from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.cutmix import cutmix_boxes, mixed
from hebbseg.methods.losses import foreground_dice, region_loss
from hebbseg.methods.ops import Ramp, confident_cross_entropy, pseudo_label, ramp_up
from hebbseg.methods.options import Rate, Share, Weight
from hebbseg.methods.perturbations import channel_dropout
from hebbseg.networks.heads import cropped
from hebbseg.networks.unet import UNet


class UniMatch(Method):
    """L = L_sup(labelled) + λ D · [ ½ H(p_f, q) + ¼ H(p_1, q) + ¼ H(p_2, q) ] on unlabelled images,

    H(p, q) = 1/N Σ_n 1[max_c q_nc ≥ τ] · CE(p_n, argmax q_n), or the Dice loss of the positions where max_c q_nc ≥ τ; q is
    the prediction on the weak view, without gradient, p_f the decoder's prediction on the weak view's encoder maps after
    channel dropout (skips too), p_1 and p_2 those on two strong views, drawn apart, with CutMix.

    Yang et al., Revisiting weak-to-strong consistency in semi-supervised semantic segmentation, CVPR 2023.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        threshold: τ, the probability from which a pseudo label is trusted
        pseudo_loss: H, what compares a prediction with its trusted pseudo label
        dice_gated: D is the foreground Dice on the labelled images of the batch, so that a network that misses the
            foreground there does not learn from its own pseudo-labels; else D = 1
        feature_view: use p_f, which needs the UNet; without it, the two strong views count ½ each
        dropout: chance that a channel of the harmed features is removed
        cutmix: chance that a box of a strong view shows another image of the batch
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
        threshold: Share = 0.95,
        pseudo_loss: Literal["ce", "dice"] = "ce",
        dice_gated: bool = False,
        feature_view: bool = True,
        dropout: Rate = 0.5,
        cutmix: Share = 0.5,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
        self.threshold = threshold
        self.pseudo_loss = pseudo_loss
        self.dice_gated = dice_gated
        self.feature_view = feature_view
        self.dropout = dropout
        self.cutmix = cutmix

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        net, generator = self.network, step.generator
        known, total, size = len(labelled.images), len(labelled.images) + len(unlabelled), unlabelled.shape[2:]
        images = torch.cat([labelled.images, unlabelled])
        if self.feature_view:
            harmed = [
                torch.cat([z, channel_dropout(z[known:], generator, self.dropout)]) for z in net.encoder(net.padded(images))
            ]
            logits = cropped(net.head(net.decoder(harmed)[-1]), size)
        else:
            logits = net(images)
        label, confidence = pseudo_label(logits[known:total])
        terms = [0.5 * self._distance(logits[total:], label, confidence)] if self.feature_view else []

        views: list[Tensor] = []
        labels: list[Tensor] = []
        confidences: list[Tensor] = []
        for _ in range(2):
            strong = self.augment.strong(unlabelled, generator)
            boxes = cutmix_boxes(len(unlabelled), size, self.cutmix, generator)
            for each, x in ((views, strong), (labels, label), (confidences, confidence)):
                each.append(mixed(x.roll(1, dims=0), x, boxes))
        for p, q, c in zip(net(torch.cat(views)).chunk(2), labels, confidences, strict=True):
            terms.append((0.25 if self.feature_view else 0.5) * self._distance(p, q, c))
        D = foreground_dice(logits[:known], labelled.masks) if self.dice_gated else 1.0
        λ = D * self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:known], labelled.masks),
            **({"features": λ * terms[0]} if self.feature_view else {}),
            "strong": λ * (terms[-2] + terms[-1]),
        }

    def _distance(self, logits: Tensor, label: Tensor, confidence: Tensor) -> Tensor:
        if self.pseudo_loss == "ce":
            return confident_cross_entropy(logits, label, confidence, self.threshold)
        return region_loss(logits, label, confidence >= self.threshold, "dice")
