# %% [markdown]
# # Hebbian learning in your own network
# One layer learns from patches without labels. Its filters become the principal components of the patches, which
# NumPy computes for comparison.

# %%
import numpy as np
import torch
from torch import nn

from hebbseg import HebbianPCA, Plasticity
from hebbseg.data.sources import open_source

torch.manual_seed(0)
source = open_source("phantom:glands?n=8&size=32")
images = torch.stack([torch.from_numpy(source.image(case)) for case in source.cases]).float()
images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
layer = nn.Conv2d(3, 4, 3, bias=False)

# %% [markdown]
# A forward pass observes the patches, `write_gradients` sets `weight.grad = −ΔW`, and any optimizer takes the step.

# %%
optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
with Plasticity(layer, HebbianPCA(), exclude=()) as plasticity:
    for _ in range(600):
        with torch.no_grad():
            layer(images)
        plasticity.write_gradients(relative=True)
        optimizer.step()

# %% [markdown]
# The same by an eigendecomposition of all patches. A filter is right if its output has as much variance as that of
# its principal component; components of nearly equal variance may mix.

# %%
patches = nn.functional.unfold(images, 3).transpose(1, 2).reshape(-1, 27).numpy().astype(np.float64)
covariance = patches.T @ patches / len(patches)
variances = np.linalg.eigvalsh(covariance)[::-1]
filters = layer.weight.detach().reshape(4, 27).numpy().astype(np.float64)
filters /= np.linalg.norm(filters, axis=1, keepdims=True)
for number, learned in enumerate(filters):
    print(f"filter {number}: {learned @ covariance @ learned / variances[number]:.3f} of the variance of component {number}")
