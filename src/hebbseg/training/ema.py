"""Exponential moving average of weights, and batch-norm statistics that match them."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hebbseg.networks.modes import modes_kept


class WeightAverage:
    """An exponential moving average of a network's weights,

        W̄ ← d W̄ + (1 − d) W,      d = min(decay, (1 + n) / (10 + n)) at update n,

    so that the initial weights do not dominate early averages. Norm statistics are copied, not averaged.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.network = copy.deepcopy(network).eval().requires_grad_(False)

    @torch.no_grad()
    def include(self, network: nn.Module) -> None:
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        averages, current = ([p.detach() for p in each.parameters()] for each in (self.network, network))
        torch._foreach_lerp_(averages, current, 1 - decay)
        for average, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            average.copy_(buffer)

    def state_dict(self) -> dict[str, object]:
        return {"updates": self.updates, "network": self.network.state_dict()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        assert isinstance(state["updates"], int) and isinstance(state["network"], dict)
        self.updates = state["updates"]
        self.network.load_state_dict(state["network"])


@torch.no_grad()
def recalibrate_norms(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Recompute batch-norm statistics as plain means over batches of images; needed after averaging or rescaling weights.

    Dropout is off, as in inference. A network without batch norm is not changed.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not norms:
        return
    momenta = {norm: norm.momentum for norm in norms}
    with modes_kept(network):
        network.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative average over all batches
            norm.train()
        try:
            for images in batches:
                network(images)
        finally:
            for norm, momentum in momenta.items():
                norm.momentum = momentum
