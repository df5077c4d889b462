# %% [markdown]
# # A semi-supervised method of your own
# A method is a class with one function that returns the terms of its loss. It gets batches, augmentation, weight
# averaging, resuming, grids and reports like the built-in ones.

# %%
from typing import Unpack

import torch
from torch import Tensor, nn

from hebbseg.methods.base import Labelled, Method, Parts, Step
from hebbseg.methods.options import Weight
from hebbseg.networks.unet import UNet


class NoiseConsistency(Method):
    """The prediction must not change with noise on the image.

        L = L_sup(labelled) + λ mean (p(u + noise) − p(u))²

    Options:
        weight: λ
    """

    title = "Noise consistency"

    def __init__(self, *, weight: Weight = 1.0, **parts: Unpack[Parts]) -> None:
        super().__init__(**parts)
        self.weight = weight

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        unlabelled = self.needed(unlabelled)
        noise = 0.1 * torch.randn(unlabelled.shape, generator=step.generator)
        with torch.no_grad():
            target = self.network(unlabelled).softmax(1)
        difference = self.network(unlabelled + noise).softmax(1) - target
        return self.supervised(labelled) | {"consistency": self.weight * difference.square().mean()}


# %% [markdown]
# One update by hand. To train with `hebbseg train --method noise`, add an entry point `noise` in the group
# `hebbseg.methods` to your package.


# %%
def network() -> nn.Module:
    return UNet(spatial_dims=2, in_channels=3, out_channels=2, features=(4, 8))


torch.manual_seed(0)
method = NoiseConsistency(network=network(), another=network, loss="dice+ce")
optimizer = torch.optim.AdamW(method.parameters(), lr=1e-2)
images, masks = torch.randn(2, 3, 32, 32), torch.randint(0, 2, (2, 32, 32))
for number in range(5):
    step = Step(number=number, progress=number / 5, generator=torch.Generator().manual_seed(number))
    terms = method(Labelled(images, masks), torch.randn(2, 3, 32, 32), step)
    optimizer.zero_grad()
    sum(terms.values()).backward()
    optimizer.step()
    print(number, {name: round(float(term.detach()), 3) for name, term in terms.items()})
