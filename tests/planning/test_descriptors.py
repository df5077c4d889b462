"""Descriptors against loops over positions and channels."""

import numpy as np
import pytest
import torch
from torch import nn

from hebbseg.networks.unet import UNet
from hebbseg.planning.descriptors import QUANTILES, SCALES, feature_descriptors, standardized, texture_descriptors


def test_standardized_columns_have_mean_0_and_variance_1_or_are_0() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 4)) * (1, 5, 0, 1e-9) + (2, -1, 7, 1e3)
    found = standardized(rows)
    np.testing.assert_allclose(found[:, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found[:, :2].std(axis=0), 1)
    assert (found[:, 2:] == 0).all(), "constant up to rounding"


@pytest.mark.parametrize("dims", [2, 3])
def test_features_are_mean_and_deviation_over_positions(dims: int) -> None:
    network = UNet(spatial_dims=dims, in_channels=1, features=(2, 3), norm="group", seed=0).train()
    images = [torch.randn(1, *(8,) * dims, generator=torch.Generator().manual_seed(k)) for k in range(4)]
    layers = ["encoder.level0", "encoder.level1"]
    found = feature_descriptors(network, images, layers=layers)
    assert network.training and not any(module._forward_hooks for module in network.modules())
    network.eval()
    rows = []
    for image in images:
        maps = network.features(image[None])
        numbers = []
        for name in ("enc0", "enc1"):
            channels = [maps[name][0, k].detach().double().flatten().tolist() for k in range(maps[name].shape[1])]
            means = [sum(values) / len(values) for values in channels]
            squares = [sum((v - m) ** 2 for v in values) / len(values) for values, m in zip(channels, means)]
            numbers += [*means, *np.sqrt(squares)]
        rows.append(numbers)
    np.testing.assert_allclose(found, standardized(np.array(rows)), atol=1e-6)


def test_windows_give_the_statistics_of_all_their_positions() -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 1))
    images = [torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(k)) for k in range(5)]

    def in_halves(image: torch.Tensor) -> None:
        for half in image.split(4, dim=2):
            network(half[None])

    whole = feature_descriptors(network, images, layers=["0"])
    np.testing.assert_allclose(feature_descriptors(network, images, layers=["0"], forward=in_halves), whole, atol=1e-9)


def test_textures_are_colors_quantiles_and_gradients() -> None:
    images = [torch.rand(2, 16, 24, generator=torch.Generator().manual_seed(k)) for k in range(4)]
    steps = []
    found = texture_descriptors(images, done=lambda: steps.append(1))
    rows = []
    for image in images:
        values = [channel.double().flatten().numpy() for channel in image]
        row = [v.mean() for v in values] + [v.std() for v in values]
        row += [np.quantile(v, q) for q in QUANTILES for v in values]
        maps = image.numpy()
        for scale in range(SCALES):
            if scale:
                c, h, w = maps.shape
                maps = maps.reshape(c, h // 2, 2, w // 2, 2).mean(axis=(2, 4))
            row += [np.log(sum((np.diff(m, axis=a) ** 2).mean() for a in (0, 1)) + 1e-8) for m in maps]
        rows.append(row)
    np.testing.assert_allclose(found, standardized(np.array(rows)), atol=1e-4)
    assert len(steps) == 4


def test_textures_of_volumes_and_of_a_single_row() -> None:
    volumes = [torch.rand(1, 9, 8, 7, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    assert texture_descriptors(volumes).shape == (3, 2 + len(QUANTILES) + SCALES)
    assert np.isfinite(texture_descriptors([torch.zeros(1, 1, 1), torch.ones(1, 1, 1)])).all()
