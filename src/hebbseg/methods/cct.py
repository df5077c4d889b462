"""Cross-consistency training (CCT): auxiliary decoders with perturbed features match the main decoder."""

from typing import Unpack

import torch
from torch import Tensor, nn

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, softmax, squared_distance
from hebbseg.methods.options import Share, Weight
from hebbseg.methods.perturbations import PERTURBATIONS
from hebbseg.networks.heads import AuxiliaryDecoder, cropped
from hebbseg.networks.unet import UNet


class CrossConsistency(RampedMethod):
    """Consistency between the main decoder and auxiliary decoders with perturbed features.

        L = L_sup(labelled) + λ(t) · 1/A Σ_a mean ‖p_a(h_a(z)) − p(z)‖² / K    on unlabelled images

    where z are the encoder's feature maps, p the prediction of the main decoder (no gradient) and p_a that of auxiliary
    decoder a, with perturbation h_a on every map, skip connections included: multiplicative noise, dropping of the most
    active positions, or channel dropout. The gradient reaches the auxiliary decoders and the shared encoder, not the main
    decoder. Auxiliary decoders start as copies of the main decoder and are discarded after training.

    Ouali, Hudelot and Tami, Semi-supervised semantic segmentation with cross-consistency training, CVPR 2020. Guided
    cutout, context and object masks and virtual adversarial noise are not implemented.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        perturbations: comma-separated list of noise, drop and dropout, with one auxiliary decoder per entry; may repeat
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
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.perturbations = perturbations
        self._names = [name.strip() for name in perturbations.split(",")]
        for name in self._names:
            if name not in PERTURBATIONS:
                remedy = did_you_mean(name, PERTURBATIONS)
                raise HebbsegError(f"Method cct, option perturbations={perturbations!r}: unknown name {name!r}. {remedy}")
        self.auxiliary = nn.ModuleList(AuxiliaryDecoder(network=self.network) for _ in self._names)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count, size = len(labelled.images), unlabelled.shape[2:]
        maps = self.network.encoder(self.network.padded(torch.cat([labelled.images, unlabelled])))
        logits = cropped(self.network.head(self.network.decoder(maps)[-1]), size)
        target = softmax(logits[count:].detach())
        distances = []
        for name, decoder in zip(self._names, self.auxiliary, strict=True):
            perturbed = [PERTURBATIONS[name](z[count:], step.generator) for z in maps]
            distances.append(squared_distance(softmax(cropped(decoder(perturbed), size)), target).mean())
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": self.lambda_(step) * torch.stack(distances).mean(),
        }
