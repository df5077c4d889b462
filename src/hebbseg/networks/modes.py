"""Context managers for the training and evaluation mode of modules."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


@contextmanager
def modes_kept(*networks: nn.Module) -> Iterator[None]:
    """Restore the mode of every module after the block; submodules may differ from their parents."""
    modes = {module: module.training for network in networks for module in network.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def without_dropout(network: nn.Module) -> Iterator[None]:
    """Turn dropout off inside the block."""
    with modes_kept(network):
        for module in network.modules():
            if isinstance(module, _DropoutNd):
                module.training = False
        yield


@contextmanager
def running_statistics_kept(network: nn.Module) -> Iterator[None]:
    """Leave the running statistics of batch norm as they are; in training mode, the layers still use those of the batch."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    try:
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
