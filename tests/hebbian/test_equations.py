"""Every rule × layer × geometry against the loop-by-loop versions, in float64."""

import copy
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from hebbseg import Hebb, HebbianPCA, Plasticity, SoftWTA, UNet
from tests.literal import hebbian as literal

TEMPERATURE = 0.4
RULES = {"hebb": Hebb(), "swta": SoftWTA(temperature=TEMPERATURE), "hpca": HebbianPCA()}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
UPS = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
TOLERANCE = 1e-9

slow_inputs = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def update_of(layer: nn.Module, x: torch.Tensor, rule: str, **options) -> np.ndarray:
    with Plasticity(layer, RULES[rule], **options) as plasticity:
        layer(x)
        return plasticity.updates()[""].numpy()


def double(layer: nn.Module, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    layer = layer.double()
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return layer


def images(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)


@st.composite
def geometries(draw, dims: int, largest: int = 3) -> dict:
    per_axis = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(dims))  # noqa: E731
    return {
        "kernel_size": per_axis(1, largest),
        "stride": per_axis(1, 3),
        "dilation": per_axis(1, 2),
        "groups": draw(st.sampled_from([1, 1, 2, 3])),
        "bias": draw(st.booleans()),
    }


@st.composite
def convolutions(draw) -> tuple[nn.Module, torch.Tensor]:
    dims = draw(st.sampled_from([1, 2, 2, 3]))
    geometry = draw(geometries(dims, largest=2 if dims == 3 else 3))
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    padding = draw(st.sampled_from(["number", "same"]))
    if padding == "same":
        geometry["stride"] = (1,) * dims
    else:
        padding = tuple(draw(st.integers(0, 2)) for _ in range(dims))
    groups = geometry["groups"]
    layer = CONVS[dims](
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 3)),
        padding=padding,
        padding_mode=mode,
        **geometry,
    )
    # at least as large as the dilated window, and more than any padding so that reflection is defined
    smallest = [max(3, d * (k - 1) + 1) for d, k in zip(geometry["dilation"], geometry["kernel_size"])]
    size = [n + draw(st.integers(0, 2)) for n in smallest]
    seed = draw(st.integers(0, 999))
    return double(layer, seed), images((draw(st.integers(1, 2)), layer.in_channels, *size), seed)


@st.composite
def transposed_convolutions(draw) -> tuple[nn.Module, torch.Tensor]:
    dims = draw(st.sampled_from([1, 2, 2, 3]))
    geometry = draw(geometries(dims, largest=2 if dims == 3 else 3))
    limits = [max(s, d) - 1 for s, d in zip(geometry["stride"], geometry["dilation"])]
    groups = geometry["groups"]
    reach = [d * (k - 1) for d, k in zip(geometry["dilation"], geometry["kernel_size"])]
    layer = UPS[dims](
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 3)),
        padding=tuple(draw(st.integers(0, min(1, r))) for r in reach),
        output_padding=tuple(draw(st.integers(0, limit)) for limit in limits),
        **geometry,
    )
    seed = draw(st.integers(0, 999))
    size = [draw(st.integers(2, 3)) for _ in range(dims)]
    return double(layer, seed), images((draw(st.integers(1, 2)), layer.in_channels, *size), seed)


@pytest.mark.parametrize("rule", RULES)
@given(case=convolutions())
@slow_inputs
def test_convolution(rule: str, case: tuple[nn.Module, torch.Tensor]) -> None:
    layer, x = case
    expected = literal.convolution(rule, layer, x.numpy(), TEMPERATURE)
    np.testing.assert_allclose(update_of(layer, x, rule), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("variant", ["s", "tsa", "tsa-literal"])
@pytest.mark.parametrize("rule", RULES)
@given(case=transposed_convolutions())
@slow_inputs
def test_transposed_convolution(rule: str, variant: str, case: tuple[nn.Module, torch.Tensor]) -> None:
    layer, x = case
    large = tuple(layer(x).shape[2:])
    expected = literal.transposed(rule, layer, x.numpy(), large, variant, TEMPERATURE)
    np.testing.assert_allclose(update_of(layer, x, rule, transpose=variant), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("rule", RULES)
def test_the_layers_of_an_anisotropic_unet(rule: str) -> None:
    """Kernels 3 × 3 × 1 and strides 2 × 2 × 1, as planned for thick slices."""
    options = {"features": (2, 3), "strides": ((2, 2, 1),), "kernels": ((3, 3, 1), (3, 3, 3)), "norm": "none"}
    network = UNet(spatial_dims=3, in_channels=1, **options, seed=0)
    for layer, channels in ((network.encoder.level0.conv1, 1), (network.encoder.level1.conv1, 2)):
        x = images((2, channels, 4, 3, 2), seed=1)
        layer = double(copy.deepcopy(layer), seed=2)
        expected = literal.convolution(rule, layer, x.numpy(), TEMPERATURE)
        np.testing.assert_allclose(update_of(layer, x, rule), expected, rtol=TOLERANCE, atol=TOLERANCE)
    up, x = double(network.decoder.level0.up, seed=3), images((2, 3, 2, 3, 2), seed=4)
    assert up.kernel_size == up.stride == (2, 2, 1)
    for variant in ("s", "tsa"):
        expected = literal.transposed(rule, up, x.numpy(), (4, 6, 2), variant, TEMPERATURE)
        np.testing.assert_allclose(update_of(up, x, rule, transpose=variant), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("rule", RULES)
@given(units=st.integers(1, 4), size=st.integers(1, 4), lead=st.lists(st.integers(1, 3), max_size=3))
def test_linear(rule: str, units: int, size: int, lead: list[int]) -> None:
    layer = double(nn.Linear(size, units), seed=units)
    x = images((*lead, size), seed=size)
    S = x.reshape(-1, size).numpy()
    W = layer.weight.detach().numpy()
    expected = literal.rule_on_samples(rule, S, S @ W.T, W, TEMPERATURE)
    np.testing.assert_allclose(update_of(layer, x, rule), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("variant", ["s", "tsa"])
def test_output_size_given_at_the_call(variant: str) -> None:
    layer = double(nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1), seed=0)
    x = images((2, 3, 4, 5), seed=0)
    for large in ((7, 9), (8, 10), (7, 10)):
        with Plasticity(layer, RULES["swta"], transpose=variant) as plasticity:
            layer(x, output_size=large)
            update = plasticity.updates()[""].numpy()
        expected = literal.transposed("swta", layer, x.numpy(), large, variant, TEMPERATURE)
        np.testing.assert_allclose(update, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_input_without_batch_and_as_keyword() -> None:
    layer = double(nn.Conv2d(2, 3, 3), seed=0)
    x = images((2, 6, 6), seed=0)
    with Plasticity(layer, RULES["swta"]) as plasticity:
        layer(input=x)
        update = plasticity.updates()[""].numpy()
    np.testing.assert_allclose(update, literal.convolution("swta", layer, x[None].numpy(), TEMPERATURE), atol=TOLERANCE)


@given(seed=st.integers(0, 50), dims=st.integers(1, 2), groups=st.integers(1, 2), dilation=st.integers(1, 2))
@slow_inputs
def test_patch_covariance(seed: int, dims: int, groups: int, dilation: int) -> None:
    from hebbseg.hebbian.conv_geometry import patch_covariance

    kernel = (3, 2)[:dims]
    x = images((2, 2 * groups, *(4, 3)[:dims]), seed)
    ours = patch_covariance(x, kernel, (dilation,) * dims, groups)
    expected = literal.patch_covariance(x.numpy(), kernel, (dilation,) * dims, groups)
    np.testing.assert_allclose(ours.numpy(), expected, atol=TOLERANCE)
    assert torch.linalg.eigvalsh(ours).min() > -1e-12
    assert ours.shape[-1] == 2 * prod(kernel)
