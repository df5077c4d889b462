"""Dropout with cheap random numbers on the CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16


class Dropout(nn.Dropout):
    """`nn.Dropout`, drawn on the CPU from 16 random bits per value: four values for each number of torch's generator.

    The rate is rounded to a multiple of 2⁻¹⁶, and values that are kept are divided by the probability of keeping them.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not self.training or self.inplace:
            return F.dropout(x, self.p, self.training, self.inplace)
        dropped = round(self.p * LEVELS)
        if dropped == 0:
            return x
        if dropped == LEVELS:
            return x * 0
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[: x.numel()]
        if x.is_contiguous():
            bits = bits.view(x.shape)
        else:  # channels last: the same order in memory as x
            order = sorted(range(x.ndim), key=x.stride, reverse=True)
            bits = bits.view([x.shape[axis] for axis in order]).permute([order.index(axis) for axis in range(x.ndim)])
        keep = (bits >= dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))
        return x * keep
