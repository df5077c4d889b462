"""Methods small enough to follow by hand."""

import torch
from torch import Tensor

from hebbseg import UNet
from hebbseg.methods import make_method
from hebbseg.methods.base import Labelled, Method, Step


def network(seed: int = 0, *, dims: int = 2, classes: int = 3, **options) -> UNet:
    """Group norm and no dropout, so that an image's answer is its own, whatever stands beside it; double precision."""
    settings = {"features": (4, 6, 8), "norm": "group", "dropout": 0.0} | options
    return UNet(spatial_dims=dims, in_channels=2, out_channels=classes, seed=seed, **settings).double()


def method(name: str, *, loss: str = "dice+ce", options=None, **network_options) -> Method:
    return make_method(
        name,
        network=network(**network_options),
        another=lambda: network(1, **network_options),
        loss=loss,
        options=options,
    ).double()


def batch(*, dims: int = 2, classes: int = 3, labelled: int = 2, unlabelled: int = 2, seed: int = 0):
    size = (8, 12) if dims == 2 else (8, 4, 8)
    generator = torch.Generator().manual_seed(seed)
    images, others = (torch.rand(n, 2, *size, generator=generator, dtype=torch.float64) for n in (labelled, unlabelled))
    masks = torch.randint(classes, (labelled, *size), generator=generator)
    return Labelled(images, masks), others


def step(number: int = 3, progress: float = 0.6, seed: int = 7) -> Step:
    return Step(number=number, progress=progress, generator=torch.Generator().manual_seed(seed))


def gradients(term: Tensor, module: torch.nn.Module) -> dict[str, Tensor]:
    """Of every weight that the term depends on; weights it does not depend on are left out."""
    named = dict(module.named_parameters())
    found = torch.autograd.grad(term, [p for p in named.values() if p.requires_grad], allow_unused=True, retain_graph=True)
    names = [name for name, p in named.items() if p.requires_grad]
    return {name: g for name, g in zip(names, found) if g is not None and g.abs().max() > 0}
