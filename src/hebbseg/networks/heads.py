"""What some methods add to a plain UNet while it is trained. The UNet's own weights stay its own, under their own names."""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.networks.unet import _CONV, UNet, initialize


def cropped(x: Tensor, size: Sequence[int]) -> Tensor:
    """The part of (B, C, *larger) that is the image; the rest came from padding."""
    return x[(slice(None), slice(None), *(slice(n) for n in size))]


class ScaleHeads(nn.Module):
    """Predictions from the coarser decoder levels: a 1×1 convolution each, then linear interpolation to full size.

    Shapes: the decoder's maps, coarse to fine → one (B, out_channels, *size) for each of ``scales`` − 1 levels, finest
    first. The finest prediction of all is the UNet's own head's.

    Args:
        network: whose decoder it is.
        scales: predictions in all, the UNet's included; a decoder with fewer levels gives fewer.
        seed: of the new weights.
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
    """A signed distance in [−1, 1] to each foreground class, from the decoder's finest map: tanh of a 1×1 convolution.

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
    """A decoder and a head beside the UNet's own, which they start as copies of.

    Shapes: the encoder's maps → (B, K, *S) logits at the size of the first map.
    """

    def __init__(self, *, network: UNet) -> None:
        super().__init__()
        self.decoder = copy.deepcopy(network.decoder)
        self.head = copy.deepcopy(network.head)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        return self.head(self.decoder(maps)[-1])
