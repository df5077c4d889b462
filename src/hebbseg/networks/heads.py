"""Auxiliary heads and decoders that some methods add to the UNet during training; the UNet itself is not changed."""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from hebbseg.networks.unet import _CONV, UNet, initialize


def cropped(x: Tensor, size: Sequence[int]) -> Tensor:
    """Crop (B, C, *padded) to the size of the image."""
    return x[(slice(None), slice(None), *(slice(n) for n in size))]


class ScaleHeads(nn.Module):
    """Predictions from the coarser decoder levels: a 1×1 convolution each, then linear interpolation to full size.

    Shapes: the decoder's maps, coarse to fine → (B, out_channels, *size) for each of ``scales`` − 1 levels, finest first.

    Args:
        network: the UNet whose decoder maps are used.
        scales: number of predictions including the UNet's own, which is the finest; limited by the decoder's levels.
        seed: random seed of the new weights.
    """

    def __init__(self, *, network: UNet, scales: int, seed: int) -> None:
        super().__init__()
        self.mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[network.spatial_dims]
        channels = network.features_per_level[1 : min(scales, len(network.features_per_level) - 1)]
        with torch.random.fork_rng(devices=[]):
            for level, features in enumerate(channels, start=1):
                self.add_module(f"level{level}", _CONV[network.spatial_dims](features, network.out_channels, 1))
        initialize(self, generator=torch.Generator().manual_seed(seed))

    def forward(self, maps: Sequence[Tensor], size: Sequence[int]) -> list[Tensor]:
        full = maps[-1].shape[2:]
        coarser = list(reversed(maps[:-1]))
        return [
            cropped(F.interpolate(head(x), size=full, mode=self.mode, align_corners=False), size)
            for head, x in zip(self.children(), coarser, strict=False)
        ]


class DistanceHead(nn.Module):
    """Signed distance in [−1, 1] to each foreground class: tanh of a 1×1 convolution of the decoder's finest map.

    Shapes: (B, F, *S) → (B, K − 1, *S).
    """

    def __init__(self, *, network: UNet, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            self.conv = _CONV[network.spatial_dims](network.features_per_level[0], network.out_channels - 1, 1)
        initialize(self, generator=torch.Generator().manual_seed(seed))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x))


class AuxiliaryDecoder(nn.Module):
    """A second decoder and head with the layers of the UNet's and random weights of their own.

    Normalization layers start with weight 1, bias 0 and no running statistics.

    Shapes: the encoder's maps → (B, K, *size) logits.

    Args:
        network: the UNet whose decoder and head have the same layers.
        seed: random seed of the weights.
    """

    def __init__(self, *, network: UNet, seed: int) -> None:
        super().__init__()
        self.decoder = copy.deepcopy(network.decoder)
        self.head = copy.deepcopy(network.head)
        initialize(self, generator=torch.Generator().manual_seed(seed))
        for module in self.modules():
            if isinstance(module, (_NormBase, nn.GroupNorm)):
                module.reset_parameters()

    def forward(self, maps: Sequence[Tensor], size: Sequence[int]) -> Tensor:
        return cropped(self.head(self.decoder(maps)[-1]), size)
