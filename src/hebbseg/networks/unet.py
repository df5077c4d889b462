"""UNet in 2D or 3D with transposed convolutions."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.errors import HebbsegError, look_up
from hebbseg.networks.dropout import Dropout

Norm = Literal["batch", "instance", "group", "none"]

DROPOUT = (0.05, 0.1, 0.2, 0.3, 0.5)
SLOPE = 0.01  # of the LeakyReLU

_CONV: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_UP: dict[int, type[nn.Module]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_POOL: dict[int, type[nn.Module]] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_BATCH: dict[int, type[nn.Module]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_INSTANCE: dict[int, type[nn.Module]] = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


def normalization(norm: str, spatial_dims: int, channels: int) -> nn.Module:
    """Return the normalization layer after a convolution."""
    table: dict[str, Callable[[], nn.Module]] = {
        "batch": lambda: _BATCH[spatial_dims](channels),
        "instance": lambda: _INSTANCE[spatial_dims](channels, affine=True),
        "group": lambda: nn.GroupNorm(max(n for n in range(1, 9) if channels % n == 0), channels),
        "none": nn.Identity,
    }
    return look_up(norm, table, "norm")()


class Block(nn.Sequential):
    """Twice (convolution → norm → LeakyReLU), with dropout between the two."""

    def __init__(
        self, *, spatial_dims: int, in_channels: int, out_channels: int, dropout: float, norm: Norm, kernel: Sequence[int]
    ) -> None:
        super().__init__()
        padding = tuple(side // 2 for side in kernel)
        for n, channels in ((1, in_channels), (2, out_channels)):
            # Norm layers have a bias themselves.
            conv = _CONV[spatial_dims](channels, out_channels, tuple(kernel), padding=padding, bias=norm == "none")
            self.add_module(f"conv{n}", conv)
            self.add_module(f"norm{n}", normalization(norm, spatial_dims, out_channels))
            self.add_module(f"act{n}", nn.LeakyReLU(SLOPE, inplace=True))
            if n == 1:
                self.add_module("dropout", Dropout(dropout))


class UpBlock(nn.Module):
    """Transposed convolution (its kernel is its stride), concatenation with the skip, then a block."""

    def __init__(
        self,
        *,
        spatial_dims: int,
        in_channels: int,
        out_channels: int,
        norm: Norm,
        stride: Sequence[int],
        kernel: Sequence[int],
    ) -> None:
        super().__init__()
        self.up = _UP[spatial_dims](in_channels, out_channels, tuple(stride), stride=tuple(stride))
        self.block = Block(
            spatial_dims=spatial_dims,
            in_channels=2 * out_channels,
            out_channels=out_channels,
            dropout=0.0,
            norm=norm,
            kernel=kernel,
        )

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.block(torch.cat([skip, self.up(x)], dim=1))


class MaxPool(nn.Module):
    """Max pooling with the values of `nn.MaxPool2d(stride)`, by default 2; faster on a CPU without gradients."""

    def __init__(self, spatial_dims: int, stride: Sequence[int] | None = None) -> None:
        super().__init__()
        stride = tuple(stride or (2,) * spatial_dims)
        self.general = _POOL[spatial_dims](stride)
        self.axes = tuple(axis for axis, step in enumerate(stride, start=2) if step == 2)

    def forward(self, x: Tensor) -> Tensor:
        with_gradients = torch.is_grad_enabled() and x.requires_grad
        if torch.jit.is_tracing() or with_gradients or x.device.type != "cpu" or any(x.shape[axis] % 2 for axis in self.axes):
            return self.general(x)
        for axis in self.axes:
            even, odd = x.unflatten(axis, (-1, 2)).unbind(axis + 1)
            x = torch.maximum(even, odd)
        return x


class Encoder(nn.Module):
    """Returns the feature maps of all levels, each half the size of the previous one along the pooled axes."""

    def __init__(
        self,
        *,
        spatial_dims: int,
        in_channels: int,
        features: Sequence[int],
        dropout: Sequence[float],
        norm: Norm,
        strides: Sequence[Sequence[int]],
        kernels: Sequence[Sequence[int]],
    ) -> None:
        super().__init__()
        self.pool = nn.ModuleList(MaxPool(spatial_dims, stride) for stride in strides)
        for level, channels in enumerate(features):
            block = Block(
                spatial_dims=spatial_dims,
                in_channels=in_channels if level == 0 else features[level - 1],
                out_channels=channels,
                dropout=dropout[level],
                norm=norm,
                kernel=kernels[level],
            )
            self.add_module(f"level{level}", block)

    def forward(self, x: Tensor) -> list[Tensor]:
        maps: list[Tensor] = []
        for name, level in self.named_children():
            if name != "pool":
                x = level(x if not maps else self.pool[len(maps) - 1](maps[-1]))
                maps.append(x)
        return maps


class Decoder(nn.Module):
    """Returns the feature maps of all levels, from coarse to full size."""

    def __init__(
        self,
        *,
        spatial_dims: int,
        features: Sequence[int],
        norm: Norm,
        strides: Sequence[Sequence[int]],
        kernels: Sequence[Sequence[int]],
    ) -> None:
        super().__init__()
        for level in reversed(range(len(features) - 1)):
            block = UpBlock(
                spatial_dims=spatial_dims,
                in_channels=features[level + 1],
                out_channels=features[level],
                norm=norm,
                stride=strides[level],
                kernel=kernels[level],
            )
            self.add_module(f"level{level}", block)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        x, decoded = maps[-1], []
        for level, skip in zip(self.children(), reversed(maps[:-1]), strict=True):
            x = level(x, skip)
            decoded.append(x)
        return decoded


class UNet(nn.Module):
    """Encoder, decoder and a 1×1 head, for any input size.

    Inputs are padded at the far sides to sizes that every level can pool (border repeated); the output is cropped.

    Shapes: (B, in_channels, *size) → (B, out_channels, *size) logits.

    Args:
        spatial_dims: 2 or 3 (1 works too).
        in_channels, out_channels: channels of the image, and number of classes including background.
        features: channels of each level; the default has about 1.9 million parameters in 2D.
        dropout: one rate for all encoder levels, or one per level; default: from 0.05 to 0.5.
        norm: ``"batch"``, ``"instance"``, ``"group"`` or ``"none"``.
        strides: for each level but the last, 1 or 2 per axis: pooling to the next level; None: 2 along every axis.
        kernels: for each level, 1 or 3 per axis: kernel size of its convolutions; None: 3 along every axis.
        seed: random seed of the weights, independent of torch's global generator; None uses the global generator.
    """

    def __init__(
        self,
        *,
        spatial_dims: int = 2,
        in_channels: int = 3,
        out_channels: int = 2,
        features: Sequence[int] = (16, 32, 64, 128, 256),
        dropout: float | Sequence[float] | None = None,
        norm: Norm = "batch",
        strides: Sequence[Sequence[int]] | None = None,
        kernels: Sequence[Sequence[int]] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if spatial_dims not in _CONV:
            raise HebbsegError(f"UNet(spatial_dims={spatial_dims!r}): allowed are 2 for images, 3 for volumes (1 for signals).")
        if len(features) < 2 or min(features) < 1:
            raise HebbsegError(f"UNet(features={tuple(features)!r}): needs at least two levels of one channel or more.")
        if dropout is None:
            dropout = [DROPOUT[min(level, len(DROPOUT) - 1)] for level in range(len(features))]
        rates = [float(dropout)] * len(features) if isinstance(dropout, int | float) else list(dropout)
        if len(rates) != len(features):
            raise HebbsegError(f"UNet(dropout={dropout!r}): {len(rates)} rates for {len(features)} levels; give one per level.")
        self.spatial_dims = spatial_dims
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.features_per_level = tuple(features)
        self.strides = _per_level("strides", strides, spatial_dims, levels=len(features) - 1, allowed=(1, 2))
        self.kernels = _per_level("kernels", kernels, spatial_dims, levels=len(features), allowed=(1, 3))
        geometry = {"strides": self.strides, "kernels": self.kernels}
        # torch's layers draw from the global generator when they are created; with a seed it must not change.
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            self.encoder = Encoder(
                spatial_dims=spatial_dims, in_channels=in_channels, features=features, dropout=rates, norm=norm, **geometry
            )
            self.decoder = Decoder(spatial_dims=spatial_dims, features=features, norm=norm, **geometry)
            self.head = _CONV[spatial_dims](features[0], out_channels, 1)
        initialize(self, generator=None if seed is None else torch.Generator().manual_seed(seed))

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[2:]
        logits = self.head(self.decoder(self.encoder(self.padded(x)))[-1])
        return logits[(..., *(slice(n) for n in size))]

    def features(self, x: Tensor) -> dict[str, Tensor]:
        """Return the map of every level: enc0 … encN from full size down, then dec(N−1) … dec0; sizes include padding."""
        encoded = self.encoder(self.padded(x))
        decoded = self.decoder(encoded)
        return {f"enc{level}": m for level, m in enumerate(encoded)} | {
            f"dec{len(decoded) - 1 - i}": m for i, m in enumerate(decoded)
        }

    @property
    def multiples(self) -> tuple[int, ...]:
        """The factor between the finest and the coarsest map along each axis."""
        return tuple(prod(steps) for steps in zip(*self.strides, strict=True))

    def padded(self, x: Tensor) -> Tensor:
        """Repeat the image's border at the far sides until every level can pool it."""
        if x.dim() != self.spatial_dims + 2 or x.shape[1] != self.in_channels:
            raise HebbsegError(
                f"UNet: got an input of shape {tuple(x.shape)}; this network takes (batch, {self.in_channels} channels, "
                f"{self.spatial_dims} spatial dimensions)."
            )
        missing = [(-n) % multiple for n, multiple in zip(x.shape[2:], self.multiples, strict=True)]
        if torch.jit.is_tracing() or any(missing):  # a trace must pad images of other sizes
            x = F.pad(x, [side for m in reversed(missing) for side in (0, m)], mode="replicate")
        return x if torch.jit.is_tracing() or x.device.type != "cpu" else _channels_last(x)


def _channels_last(x: Tensor) -> Tensor:
    """Return the input in the memory format that is faster on a CPU; later maps follow it.

    For volumes that is channels_last, for 2D only without gradients.
    """
    if x.dim() == 5:
        return x.contiguous(memory_format=torch.channels_last_3d)
    if x.dim() == 4 and not torch.is_grad_enabled():
        return x.contiguous(memory_format=torch.channels_last)
    return x


def _per_level(
    name: str, given: Sequence[Sequence[int]] | None, spatial_dims: int, *, levels: int, allowed: tuple[int, int]
) -> tuple[tuple[int, ...], ...]:
    """Return the strides or kernels of each level; by default, the larger number allowed along every axis."""
    if given is None:
        return ((allowed[1],) * spatial_dims,) * levels
    found = tuple(tuple(axes) for axes in given)
    if len(found) != levels or any(len(axes) != spatial_dims or not {*axes} <= {*allowed} for axes in found):
        example = ",".join(["x".join([str(allowed[1])] * spatial_dims)] * levels)
        raise HebbsegError(
            f"UNet({name}={found!r}): needs {levels} times {spatial_dims} numbers, each {allowed[0]} or {allowed[1]}, such as "
            f"{example}."
        )
    return found


def initialize(network: nn.Module, *, generator: torch.Generator | None = None) -> None:
    """Draw convolutions from He's normal distribution and transposed ones so that the variance is kept; biases are 0."""
    for module in network.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            nn.init.kaiming_normal_(module.weight, a=SLOPE, nonlinearity="leaky_relu", generator=generator)
        elif isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
            nn.init.normal_(module.weight, std=module.in_channels**-0.5, generator=generator)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
