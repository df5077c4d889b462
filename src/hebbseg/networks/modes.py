"""Training and evaluation mode of a network's modules, changed for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


@contextmanager
def modes_kept(*networks: nn.Module) -> Iterator[None]:
    """Restores the mode of each module after the block; some may be in evaluation mode while their parents train."""
    modes = {module: module.training for network in networks for module in network.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def without_dropout(network: nn.Module) -> Iterator[None]:
    """Turns dropout off inside the block; every other mode stays as it is."""
    with modes_kept(network):
        for module in network.modules():
            if isinstance(module, _DropoutNd):
                module.training = False
        yield
