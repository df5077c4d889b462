"""Descriptors of images without masks: one row of numbers per image."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.networks.modes import modes_kept

SCALES = 4
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def standardized(rows: np.ndarray) -> np.ndarray:
    """Return the columns with mean 0 and variance 1; columns that are constant up to rounding become 0."""
    centered = rows - rows.mean(axis=0)
    spread = centered.std(axis=0)
    constant = spread <= 1e-6 * np.maximum(1.0, np.abs(rows).max(axis=0))
    return np.where(constant, 0.0, centered / np.where(constant, 1.0, spread))


def feature_descriptors(
    network: nn.Module,
    images: Iterable[Tensor],
    *,
    layers: Sequence[str],
    forward: Callable[[Tensor], object] | None = None,
    done: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Return mean and standard deviation over positions of every feature map of these modules, (n, 2 · maps), standardized.

    Args:
        images: network input (C, *S), one by one.
        layers: names of modules that return a map (B, K, *S).
        forward: applies the network to an image, whole or in windows; default: whole.
        done: called after each image.
    """
    rows = []
    device = next(network.parameters()).device
    with modes_kept(network), torch.no_grad(), _moments(network.eval(), layers) as moments:
        for image in images:
            moments.clear()
            network(image[None].to(device)) if forward is None else forward(image)
            rows.append(np.concatenate([_mean_and_std(moments[name]) for name in layers]))
            done()
    return standardized(np.stack(rows))


def texture_descriptors(images: Iterable[Tensor], *, done: Callable[[], None] = lambda: None) -> np.ndarray:
    """Return plain color and texture statistics, (n, d), standardized.

    For every channel: mean, standard deviation and quantiles of the values in 0 … 1, and at `SCALES` scales (each half the
    size of the previous one) the logarithm of the mean squared gradient.

    Args:
        images: values in 0 … 1, (C, *S), one by one.
    """
    rows = []
    for image in images:
        flat = image.flatten(1).double()  # (C, *S) → (C, positions)
        quantiles = np.quantile(flat.numpy(), QUANTILES, axis=1)  # (quantiles, C)
        rows.append(np.concatenate([flat.mean(1), flat.std(1, correction=0), quantiles.ravel(), *_gradient_energies(image)]))
        done()
    return standardized(np.stack(rows))


def _gradient_energies(image: Tensor) -> Iterator[np.ndarray]:
    pool = F.avg_pool2d if image.dim() == 3 else F.avg_pool3d
    for scale in range(SCALES):
        if scale:
            image = pool(image[None], 2, ceil_mode=True)[0]
        gradients = [
            image.diff(dim=axis).square().flatten(1).mean(1) for axis in range(1, image.dim()) if image.shape[axis] > 1
        ]
        energy = torch.stack(gradients).sum(0) if gradients else torch.zeros(len(image))
        yield (energy.double() + 1e-8).log().numpy()


@contextmanager
def _moments(network: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    """Accumulate number of positions, sum and sum of squares, (3, K), of the outputs (B, K, *S) of each module."""
    moments: dict[str, np.ndarray] = {}

    def observe(name: str, module: nn.Module, args: object, output: Tensor) -> None:
        flat = output.detach().double().transpose(0, 1).flatten(1)  # (B, K, *S) → (K, positions)
        count = flat.new_full((len(flat),), flat.shape[1])
        found = torch.stack([count, flat.sum(1), flat.square().sum(1)]).cpu().numpy()
        moments[name] = moments.get(name, 0.0) + found

    handles = [network.get_submodule(name).register_forward_hook(partial(observe, name)) for name in layers]
    try:
        yield moments
    finally:
        for handle in handles:
            handle.remove()


def _mean_and_std(moments: np.ndarray) -> np.ndarray:
    """``moments`` (3, K): number of positions, sum and sum of squares → (2 K,)."""
    count, total, squares = moments
    mean = total / count
    return np.concatenate([mean, np.sqrt(np.maximum(0, squares / count - mean**2))])
