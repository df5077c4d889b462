"""Cross-consistency training (CCT): auxiliary decoders with perturbed features match the main decoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Unpack

import torch
from torch import Tensor, nn

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.methods.adversarial import virtual_adversarial
from hebbseg.methods.base import Labelled, Parts, RampedMethod, Step
from hebbseg.methods.ops import Ramp, seed_of, softmax, squared_distance
from hebbseg.methods.options import Count, Share, Weight
from hebbseg.methods.perturbations import (
    channel_dropout,
    context_mask,
    feature_drop,
    feature_noise,
    guided_cutout,
    masked_out,
    object_mask,
)
from hebbseg.networks.heads import AuxiliaryDecoder, cropped
from hebbseg.networks.modes import running_statistics_kept
from hebbseg.networks.unet import UNet
from hebbseg.seeding import derive_seed


@dataclass(frozen=True, kw_only=True)
class Features:
    """What a perturbation depends on.

    Args:
        maps: the encoder's feature maps (B, C, *S) of the unlabelled images, from full size to the deepest.
        foreground: where the main decoder predicts a class other than 0, boolean (B, *S) at the size of the first map.
        decoder: the auxiliary decoder that gets the perturbed maps.
        size: size of the images without padding.
        generator: the random generator of the update.
    """

    maps: Sequence[Tensor]
    foreground: Tensor
    decoder: AuxiliaryDecoder
    size: Sequence[int]
    generator: torch.Generator

    def each(self, perturb: Callable[[Tensor, torch.Generator], Tensor]) -> list[Tensor]:
        """Return all maps after a random perturbation."""
        return [perturb(z, self.generator) for z in self.maps]


def cut_out(features: Features) -> list[Tensor]:
    """Return the maps with zeros in the boxes of `guided_cutout`; the boxes are the same in all maps of an image."""
    boxes = guided_cutout(features.foreground, features.generator)
    return [masked_out(z, boxes) for z in features.maps]


def adversarial(features: Features) -> list[Tensor]:
    """Return the maps with the perturbation of `virtual_adversarial` added to the deepest one."""
    with running_statistics_kept(features.decoder):
        r = virtual_adversarial(features.maps, lambda maps: features.decoder(maps, features.size), features.generator)
    return [*features.maps[:-1], features.maps[-1] + r]


PERTURBATIONS: dict[str, Callable[[Features], list[Tensor]]] = {
    "noise": lambda features: features.each(feature_noise),
    "drop": lambda features: features.each(feature_drop),
    "dropout": lambda features: features.each(channel_dropout),
    "cutout": cut_out,
    "context": lambda features: [context_mask(z, features.foreground) for z in features.maps],
    "object": lambda features: [object_mask(z, features.foreground) for z in features.maps],
    "vat": adversarial,
}


class CrossConsistency(RampedMethod):
    """Consistency between the main decoder and auxiliary decoders with perturbed features.

        L = L_sup(labelled) + λ(t) · 1/A Σ_a mean ‖p_a(h_a(z)) − p(z)‖² / K    on unlabelled images

    where z are the encoder's feature maps, p the prediction of the main decoder (no gradient) and p_a that of auxiliary
    decoder a with perturbation h_a:

        noise      multiplicative noise
        drop       zeros at the most active positions
        dropout    channel dropout
        cutout     zeros in a random box in the bounding box of each predicted object
        context    zeros outside of predicted objects
        object     zeros in predicted objects
        vat        virtual adversarial perturbation of the deepest map

    All but the last perturb every map, skip connections included. Predicted objects are the positions where the main decoder
    predicts a class other than 0. The gradient reaches the auxiliary decoders and the shared encoder, not the main decoder.
    Each auxiliary decoder is initialized randomly with a seed of its own, also if the network is pre-trained. Auxiliary
    decoders are discarded after training.

    Ouali, Hudelot and Tami, Semi-supervised semantic segmentation with cross-consistency training, CVPR 2020.

    Options:
        weight: λ at the end of the ramp
        ramp: shape of the ramp of λ
        ramp_share: fraction of training after which λ reaches its full value
        perturbations: comma-separated list of noise, drop, dropout, cutout, context, object and vat; may repeat
        decoders: A, number of auxiliary decoders (30 in the original); they use the perturbations in the order of the list,
            which is repeated
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
        perturbations: str = "noise,drop,dropout,cutout,context,object,vat",
        decoders: Count = 7,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(weight=weight, ramp=ramp, ramp_share=ramp_share, **parts)
        self.perturbations = perturbations
        self.decoders = decoders
        names = [name.strip() for name in perturbations.split(",")]
        for name in names:
            if name not in PERTURBATIONS:
                remedy = did_you_mean(name, PERTURBATIONS)
                raise HebbsegError(f"Method cct, option perturbations={perturbations!r}: unknown name {name!r}. {remedy}")
        self._names = list(islice(cycle(names), decoders))
        seeds = [derive_seed(seed_of(self.network), "auxiliary decoder", a) for a in range(decoders)]
        self.auxiliary = nn.ModuleList(AuxiliaryDecoder(network=self.network, seed=seed) for seed in seeds)

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        count, size = len(labelled.images), unlabelled.shape[2:]
        maps = self.network.encoder(self.network.padded(torch.cat([labelled.images, unlabelled])))
        padded = self.network.head(self.network.decoder(maps)[-1])
        logits = cropped(padded, size)
        target = softmax(logits[count:].detach())
        foreground = padded[count:].detach().argmax(dim=1) > 0
        maps = [z[count:] for z in maps]
        distances = []
        for name, decoder in zip(self._names, self.auxiliary, strict=True):
            assert isinstance(decoder, AuxiliaryDecoder)
            features = Features(maps=maps, foreground=foreground, decoder=decoder, size=size, generator=step.generator)
            distances.append(squared_distance(softmax(decoder(PERTURBATIONS[name](features), size)), target).mean())
        return {
            "supervised": self.criterion(logits[:count], labelled.masks),
            "consistency": self.lambda_(step) * torch.stack(distances).mean(),
        }
