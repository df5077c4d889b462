"""Geometry of convolutions and transposed convolutions, without an explicit patch matrix (im2col).

A convolution maps a large map to a small map, a transposed convolution a small map to a large map. Both store their
weights as W[small channel, large channel of the group, *offset κ]. Each position n of the small map has a *patch*
u_n[l, κ] in the large map, and

    corr(a, b)[i, l, κ] = Σ_n a_n[i] · b_n[l, κ]

is the weight gradient of the convolution large → small with `a` as the output gradient and `b` as the input. The backend
computes it for any stride, padding, dilation and number of groups, in 1D, 2D and 3D.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

SUPPORTED = "Conv1d/2d/3d, ConvTranspose1d/2d/3d and Linear"


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The sliding window of a layer; a Linear layer is a convolution with one position per sample."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool

    @classmethod
    def of(cls, layer: nn.Module) -> "Geometry":
        if isinstance(layer, nn.Linear):
            return cls(kernel=(1,), stride=(1,), padding=(0,), dilation=(1,), groups=1, transposed=False)
        assert isinstance(layer, _ConvNd)
        return cls(
            kernel=tuple(layer.kernel_size),
            stride=tuple(layer.stride),
            padding=_window_padding(layer),
            dilation=tuple(layer.dilation),
            groups=layer.groups,
            transposed=isinstance(layer, _ConvTransposeNd),
        )

    @property
    def spatial_dims(self) -> int:
        return len(self.kernel)

    def maps(self, layer: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (small, large) maps of a forward pass, before padding.

        Shapes: Linear (…, C) → (N, C, 1); convolutions (C, *positions) or (B, C, *positions) → (B, C, *positions).
        """
        if isinstance(layer, nn.Linear):
            return y.reshape(-1, y.shape[-1], 1), x.reshape(-1, x.shape[-1], 1)  # (N, out, 1), (N, in, 1)
        if x.dim() == self.spatial_dims + 1:
            x, y = x.unsqueeze(0), y.unsqueeze(0)
        return (x, y) if self.transposed else (y, x)

    def pad(self, layer: nn.Module, large: Tensor) -> Tensor:
        """Apply padding that a convolution cannot apply itself (reflect, circular, asymmetric 'same') to the large map."""
        if self.transposed or not isinstance(layer, _ConvNd):
            return large
        sides = layer._reversed_padding_repeated_twice  # last dimension first, before and after
        if not any(sides) or any(self.padding):
            return large
        return F.pad(large, sides, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)

    def convolution(self, large: Tensor, weight: Tensor) -> Tensor:
        """Convolve with weights (S, L, *kernel), without groups: (B, L, *m) → (B, S, *n)."""
        return torch.ops.aten.convolution(
            large, weight, None, self.stride, self.padding, self.dilation, False, [0] * self.spatial_dims, 1
        )

    def transposed_convolution(self, small: Tensor, weight: Tensor, size: Sequence[int]) -> Tensor:
        """Apply the transposed convolution with weights (S, L, *kernel) and output ``size``: (B, S, *n) → (B, L, *m)."""
        extra = self._excess(small.shape[2:], size)
        return torch.ops.aten.convolution(small, weight, None, self.stride, self.padding, self.dilation, True, extra, 1)

    def correlate(self, small: Tensor, large: Tensor) -> Tensor:
        """Return corr(small, large), summed over the batch: (B, S, *n), (B, L, *m) → (S, L / groups, *kernel)."""
        channels, positions = small.shape[1], small.shape[2:]
        if self.kernel == (1,) and positions == large.shape[2:] == (1,) and self.groups == 1:  # Linear
            return torch.einsum("bsn,bln->sl", small, large).unsqueeze(-1)
        padding = self.padding
        excess = self._excess(positions, large.shape[2:]) if self.transposed else ()
        if any(e >= s for e, s in zip(excess, self.stride, strict=False)):
            # With output_padding ≥ stride, the convolution would have extra positions: crop the large map to its windows.
            sides = [(p, p - e) for p, e in zip(padding, excess, strict=True)]
            large = F.pad(large, [side for pair in reversed(sides) for side in pair])
            padding = (0,) * self.spatial_dims
        weight = small.new_empty((channels, large.shape[1] // self.groups, *self.kernel))
        _, correlation, _ = torch.ops.aten.convolution_backward(
            small, large, weight, None, self.stride, padding, self.dilation, False,
            [0] * self.spatial_dims, self.groups, (False, True, False),
        )  # fmt: skip
        return correlation

    def _excess(self, positions: Sequence[int], size: Sequence[int]) -> list[int]:
        """Return the size of the padded large map beyond its last window, per axis."""
        axes = zip(positions, size, self.stride, self.padding, self.dilation, self.kernel, strict=True)
        return [m + 2 * p - ((n - 1) * s + d * (k - 1) + 1) for n, m, s, p, d, k in axes]

    def window_sums(self, large: Tensor, small_size: tuple[int, ...]) -> Tensor:
        """Return Σ_n b_n[l, κ] per group: (B, L, *m) → (groups, L / groups, *kernel)."""
        total = large.sum(0, keepdim=True)
        return self.correlate(large.new_ones((1, self.groups, *small_size)), total)

    def window_moments(self, large: Tensor, small_size: tuple[int, ...]) -> Tensor:
        """Return Σ_n u_n[l, κ] u_n[l', κ'] per group, from strided views: (B, L, *m) → (groups, L/groups, K, L/groups, K)."""
        slices = list(self._slices(large, small_size))
        units, count = large.shape[1] // self.groups, len(slices)
        moments = large.new_empty((self.groups, units, count, units, count))
        for k, left in enumerate(slices):
            a = self.by_group(left)  # (B, G, U, N)
            for m in range(k, count):
                block = (a @ self.by_group(slices[m]).mT).sum(0)  # (G, U, U)
                moments[:, :, k, :, m] = block
                moments[:, :, m, :, k] = block.mT
        return moments

    def by_group(self, map_: Tensor) -> Tensor:
        """Reshape (B, C, *n) → (B, groups, C / groups, N)."""
        return map_.unflatten(1, (self.groups, -1)).flatten(3)

    def _slices(self, large: Tensor, small_size: tuple[int, ...]) -> Iterator[Tensor]:
        """Yield u_n[:, κ] as a map (B, L, *n) for each offset κ, a strided view of the padded large map."""
        sides = [p for pair in zip(reversed(self.padding), reversed(self.padding), strict=True) for p in pair]
        padded = F.pad(large, sides) if any(sides) else large
        for offset in product(*(range(k) for k in self.kernel)):
            view = padded
            for axis, (k, n) in enumerate(zip(offset, small_size, strict=True)):
                first, step = k * self.dilation[axis], self.stride[axis]
                index = [slice(None)] * view.dim()
                index[2 + axis] = slice(first, first + (n - 1) * step + 1, step)
                view = view[tuple(index)]
            yield view


def _window_padding(layer: _ConvNd) -> tuple[int, ...]:
    """Return the symmetric zero padding of a layer; 0 if `Geometry.pad` applies the padding."""
    if isinstance(layer, _ConvTransposeNd):
        assert not isinstance(layer.padding, str)
        return tuple(layer.padding)
    sides = list(layer._reversed_padding_repeated_twice)  # last dimension first, before and after
    before, after = sides[0::2], sides[1::2]
    if layer.padding_mode == "zeros" and before == after:
        return tuple(reversed(before))
    return (0,) * len(layer.kernel_size)


def is_plastic(layer: nn.Module) -> bool:
    """Return whether Hebbian rules support the layer; a lazy layer has no weights yet and is not supported."""
    return isinstance(layer, (_ConvNd, nn.Linear)) and not isinstance(layer, nn.modules.lazy.LazyModuleMixin)


def patch_covariance(signal: Tensor, kernel: tuple[int, ...], dilation: tuple[int, ...], groups: int) -> Tensor:
    """Return the covariance of the patches of a centered map, from its autocorrelation at lags −(k−1) … k−1.

        C[(c, κ), (c', κ')] = R[c, c', κ' − κ],     R[c, c', τ] = (1/N) Σ_p s[c, p] s[c', p + τ]

    R is a weight gradient with kernel size 2k − 1. Division by all N positions, not by the number of overlapping pairs,
    keeps C positive semi-definite.

    Shapes: (B, C, *n) → (groups, C/groups · K, C/groups · K), K the number of offsets.
    """
    lags = Geometry(
        kernel=tuple(2 * k - 1 for k in kernel),
        stride=(1,) * len(kernel),
        padding=tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True)),
        dilation=dilation,
        groups=groups,
        transposed=False,
    )
    correlation = lags.correlate(signal, signal) / (signal.shape[0] * signal[0, 0].numel())  # (C, C/groups, *2k−1)
    units = signal.shape[1] // groups
    offsets = torch.cartesian_prod(*(torch.arange(k) for k in kernel)).reshape(-1, len(kernel))  # (K, dims)
    index = torch.zeros(len(offsets), len(offsets), dtype=torch.long)
    for axis, k in enumerate(kernel):
        index = index * (2 * k - 1) + offsets[None, :, axis] - offsets[:, None, axis] + k - 1
    flat = correlation.reshape(groups, units, units, -1)[..., index.to(signal.device)]  # (G, c, c', κ, κ')
    return flat.permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)  # (G, c·K, c·K)
