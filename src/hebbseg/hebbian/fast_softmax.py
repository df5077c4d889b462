"""Softmax across units, faster than `torch.softmax` on the CPU without gradients."""

import math

import torch
from torch import Tensor

CACHED = 2**18
"""Number of activations per block, so that intermediate results fit in the CPU cache."""


def softmax_across_units(y: Tensor, dim: int, scale: float) -> Tensor:
    """Return softmax(scale · y) along ``dim``, in the memory layout of ``y``."""
    if y.requires_grad:
        return (y * scale).softmax(dim)
    units_last = y.movedim(dim, -1)
    if units_last.is_contiguous():  # a channels_last map
        return _along_memory(units_last, scale).movedim(-1, dim)
    return _across_maps(y, dim, scale) if y.device.type == "cpu" else (y * scale).softmax(dim)


def _along_memory(units_last: Tensor, scale: float) -> Tensor:
    gate, units = torch.empty_like(units_last), units_last.shape[-1]
    rows = max(CACHED // units, 1)
    # (…, U) → (N, U)
    for part, into in zip(units_last.reshape(-1, units).split(rows), gate.view(-1, units).split(rows), strict=True):
        torch.softmax(part * scale, -1, out=into)
    return gate


def _across_maps(y: Tensor, dim: int, scale: float) -> Tensor:
    # Clamping avoids denormal numbers, which are slow.
    lowest = math.log(torch.finfo(y.dtype).tiny) / 2
    gate = torch.add(y.amax(dim, keepdim=True) * -scale, y, alpha=scale).clamp_min_(lowest).exp_()
    return gate.mul_(gate.sum(dim, keepdim=True).reciprocal_())
