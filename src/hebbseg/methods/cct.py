"""Cross-consistency training: decoders that see harmed features must say what the main one says."""

from typing import Unpack

import torch
from torch import Tensor, nn

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.ops import Ramp, ramp_up, softmax, squared_distance
from hebbseg.methods.options import Share, Weight
from hebbseg.methods.perturbations import PERTURBATIONS
from hebbseg.networks.heads import AuxiliaryDecoder, cropped
from hebbseg.networks.unet import UNet


class CrossConsistency(Method):
    """L = L_sup(labelled) + λ(t) · 1/A Σ_a mean ‖p_a(h_a(z)) − p(z)‖² / K on unlabelled images.

    z are the encoder's maps, p the main decoder's prediction without its gradient, p_a that of auxiliary decoder a, which
    sees every map harmed by h_a (skips too, or they would tell the answer): noise in proportion, the most active
    positions removed, or whole channels removed. The gradient reaches the auxiliary decoders and the shared encoder, not
    the main decoder. Auxiliary decoders start as copies of the main one, and are thrown away in the end.

    Ouali, Hudelot and Tami, Semi-supervised semantic segmentation with cross-consistency training, CVPR 2020. Its guided
    cutout and masks and its virtual adversarial noise are left out.

    Options:
        weight: λ at the end of the ramp
        ramp: how λ rises over the training
        ramp_share: part of the training after which λ has its full value
        perturbations: one auxiliary decoder for each of these, separated by commas; noise, drop, dropout, also repeated
    """

    title = "CCT"
    needs_unet = True
    network: UNet

    def __init__(
        self,
        *,
        weight: Weight = 30.0,
        ramp: Ramp = "sigmoid",
        ramp_share: Share = 0.1,
        perturbations: str = "noise,drop,dropout",
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share
        self.perturbations = perturbations
        self._names = [name.strip() for name in perturbations.split(",")]
        for name in self._names:
            if name not in PERTURBATIONS:
                raise HebbsegError(f"cct, perturbations={perturbations!r}: {did_you_mean(name, PERTURBATIONS)}")
        self.auxiliary = nn.ModuleList(AuxiliaryDecoder(network=self.network) for _ in self._names)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count, size = len(labelled.images), unlabelled.shape[2:]
        maps = self.network.encoder(self.network.padded(torch.cat([labelled.images, unlabelled])))
        logits = cropped(self.network.head(self.network.decoder(maps)[-1]), size)
        target = softmax(logits[count:].detach())
        distances = []
        for name, decoder in zip(self._names, self.auxiliary, strict=True):
            harmed = [PERTURBATIONS[name](z[count:], step.generator) for z in maps]
            distances.append(squared_distance(softmax(cropped(decoder(harmed), size)), target).mean())
        λ = self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": λ * torch.stack(distances).mean(),
        }
