"""Centring, standardising and whitening against their definitions, patch by patch."""

import numpy as np
import pytest
import torch
from torch import nn

from hebbseg import HebbianPCA, Plasticity, SoftWTA
from hebbseg.hebbian import whitening
from tests.hebbian.test_equations import TOLERANCE, double, images
from tests.literal import hebbian as literal

T = 0.4


def patches(x: np.ndarray, kernel: int, padding: int) -> np.ndarray:
    """(N, C·K) windows of a stride-1 convolution."""
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    b, _, h, w = padded.shape
    windows = [
        padded[i, :, p : p + kernel, q : q + kernel].ravel()
        for i in range(b)
        for p in range(h - kernel + 1)
        for q in range(w - kernel + 1)
    ]
    return np.array(windows)


def update(layer: nn.Module, rule, *batches: torch.Tensor, **options) -> np.ndarray:
    with Plasticity(layer, rule, **options) as plasticity, torch.no_grad():
        for x in batches:
            layer(x)
        return plasticity.updates()[""].numpy()


def channel_means(x: torch.Tensor, repeat: int) -> np.ndarray:
    return np.repeat(x.mean((0, 2, 3)).numpy(), repeat)


@pytest.mark.parametrize("rule", ["swta", "hpca"])
@pytest.mark.parametrize(
    "geometry",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (4, 3), "padding": "same"},
        {"kernel_size": 3, "padding": 2, "dilation": 2, "stride": 2},
        {"kernel_size": 3, "padding": 1, "groups": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": 2, "padding_mode": "circular"},
    ],
)
def test_centred_convolution_is_the_layer_on_a_centred_map(rule: str, geometry: dict) -> None:
    """The mean goes before the zeros come: padding is then the mean colour, and no border stands out."""
    layer, x = double(nn.Conv2d(2, 4, **geometry), 0), images((2, 2, 6, 5), 0) + 2
    expected = literal.convolution(rule, layer, (x - x.mean((0, 2, 3), keepdim=True)).numpy(), T)
    ours = update(layer, SoftWTA(temperature=T) if rule == "swta" else HebbianPCA(), x, center=True)
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE)


def test_centred_linear_layer_sees_its_inputs_less_their_means() -> None:
    layer, x = double(nn.Linear(3, 4), 0), images((6, 3), 0) + 2
    S, W = (x - x.mean(0)).numpy(), layer.weight.detach().numpy()
    expected = literal.rule_on_samples("swta", S, S @ W.T, W, T)
    np.testing.assert_allclose(update(layer, SoftWTA(temperature=T), x, center=True), expected, atol=TOLERANCE)


@pytest.mark.parametrize("layer", [nn.Conv2d(2, 4, 3, padding=1), nn.ConvTranspose2d(2, 4, 2, stride=2)])
def test_a_centred_layer_does_not_care_what_is_added_to_its_input(layer: nn.Module) -> None:
    layer, x = double(layer, 0), images((2, 2, 6, 5), 0)
    brighter = x + torch.tensor([3.0, -7.0], dtype=x.dtype).view(1, 2, 1, 1)
    ours = [update(layer, SoftWTA(temperature=T), each, center=True) for each in (x, brighter)]
    np.testing.assert_allclose(*ours, atol=TOLERANCE)


@pytest.mark.parametrize("rule", ["swta", "hpca"])
@pytest.mark.parametrize("geometry", [{"kernel_size": 2, "stride": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}])
def test_centred_tsa_is_the_layer_on_a_centred_small_map(rule: str, geometry: dict) -> None:
    layer, x = double(nn.ConvTranspose2d(3, 2, **geometry), 0), images((2, 3, 3, 4), 0) + 1
    centered = x - x.mean((0, 2, 3), keepdim=True)
    large = tuple(layer(x).shape[2:])
    expected = literal.transposed(rule, layer, centered.numpy(), large, "tsa", T)
    ours = update(layer, SoftWTA(temperature=T) if rule == "swta" else HebbianPCA(), x, transpose="tsa", center=True)
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE)


def test_centred_s_with_windows_beyond_the_map_takes_the_mean_before_the_zeros() -> None:
    layer, x = double(nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, bias=False), 0), images((2, 3, 3, 4), 0) + 1
    y = layer(x).detach()
    y = (y - y.mean((0, 2, 3), keepdim=True)).numpy()
    padded = np.pad(y, [(0, 0), (0, 0), (1, 1), (1, 1)])
    S = np.array(
        [padded[b, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].ravel() for b in range(2) for i in range(3) for j in range(4)]
    )
    X = x.permute(0, 2, 3, 1).reshape(-1, 3).numpy()
    expected = literal.rule_on_samples("swta", S, X, layer.weight.detach().flatten(1).numpy(), T)
    ours = update(layer, SoftWTA(temperature=T), x, transpose="s", center=True)
    np.testing.assert_allclose(ours, expected.reshape(layer.weight.shape), atol=TOLERANCE)


def test_centred_s_takes_the_mean_from_the_large_map_only() -> None:
    layer, x = double(nn.ConvTranspose2d(3, 2, 2, stride=2, bias=False), 0), images((2, 3, 3, 4), 0)
    y = layer(x).detach()
    S = np.array(
        [y[b, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].numpy().ravel() for b in range(2) for i in range(3) for j in range(4)]
    )
    S -= channel_means(y, 4)
    X = x.permute(0, 2, 3, 1).reshape(-1, 3).numpy()
    W = layer.weight.detach().flatten(1).numpy()
    expected = literal.rule_on_samples("swta", S, X, W, T).reshape(layer.weight.shape)
    np.testing.assert_allclose(update(layer, SoftWTA(temperature=T), x, transpose="s", center=True), expected, atol=TOLERANCE)


def test_standardised_competition_divides_by_each_units_spread() -> None:
    layer, x = double(nn.Conv2d(2, 3, 3), 0), images((2, 2, 6, 5), 0)
    S = patches(x.numpy(), 3, 0)
    W = layer.weight.detach().flatten(1).numpy()
    Y = S @ W.T
    expected = literal.rule_on_samples("swta", S, (Y - Y.mean(0)) / Y.std(0), W, T).reshape(layer.weight.shape)
    np.testing.assert_allclose(update(layer, SoftWTA(temperature=T), x, standardize=True), expected, atol=TOLERANCE)


def test_running_estimates_average_the_first_forwards_evenly() -> None:
    layer, a, b = double(nn.Conv2d(2, 3, 3), 0), images((2, 2, 6, 5), 0), images((2, 2, 6, 5), 7) + 1
    with Plasticity(layer, SoftWTA(temperature=T), center=True) as plasticity, torch.no_grad():
        layer(a)
        layer(b)
        mean = plasticity.plastic_layers[""].signal_mean.value
    torch.testing.assert_close(mean, (a.mean((0, 2, 3)) + b.mean((0, 2, 3))) / 2)


@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("groups", [1, 2])
def test_whitened_competition_is_plain_competition_between_whitened_patches(strength: float, groups: int) -> None:
    """Transform the patches by P, compete there with V = W P⁻¹, and map ΔV back by P: the same update."""
    layer, x = double(nn.Conv2d(2 * groups, 3 * groups, 3, groups=groups), 0), images((2, 2 * groups, 6, 5), 0)
    ours = update(layer, SoftWTA(temperature=T), x, whiten=strength)
    mean = x.mean((0, 2, 3), keepdim=True)
    C = literal.patch_covariance((x - mean).numpy(), (3, 3), (1, 1), groups)
    for g in range(groups):
        inputs, units = slice(2 * g, 2 * g + 2), slice(3 * g, 3 * g + 3)
        eigenvalues, basis = np.linalg.eigh(C[g])
        scaled = eigenvalues / eigenvalues.mean()
        P = basis @ np.diag(np.sqrt((1 + strength) / (scaled + strength))) @ basis.T
        S = (patches(x[:, inputs].numpy(), 3, 0) - channel_means(x[:, inputs], 9)) @ P
        V = layer.weight.detach()[units].flatten(1).numpy() @ np.linalg.inv(P)
        dV = literal.rule_on_samples("swta", S, S @ V.T, V, T)
        np.testing.assert_allclose(ours[units].reshape(3, -1), dV @ P, atol=1e-8)


def test_weak_whitening_is_centring() -> None:
    layer, x = double(nn.Conv2d(2, 3, 3), 0), images((2, 2, 6, 5), 0)
    weak = update(layer, SoftWTA(temperature=T), x, whiten=1e9)
    np.testing.assert_allclose(weak, update(layer, SoftWTA(temperature=T), x, center=True), atol=1e-7)


def test_unit_norm_is_measured_in_the_whitened_space() -> None:
    layer, x = double(nn.Conv2d(2, 3, 3), 0), images((2, 2, 6, 5), 0)
    with Plasticity(layer, SoftWTA(), whiten=0.5, unit_norm=True) as plasticity, torch.no_grad():
        layer(x)
        plasticity.normalize()
        plastic = plasticity.plastic_layers[""]
        C = literal.patch_covariance((x - x.mean((0, 2, 3), keepdim=True)).numpy(), (3, 3), (1, 1), 1)[0]
    metric = (C / np.linalg.eigvalsh(C).mean() + 0.5 * np.eye(18)) / 1.5
    for w in plastic.rows(layer.weight.detach())[0].numpy():
        assert w @ metric @ w == pytest.approx(1)


def test_constant_images_are_survived() -> None:
    layer = nn.Conv2d(2, 3, 3)
    with Plasticity(layer, SoftWTA(), whiten=0.5, standardize=True) as plasticity, torch.no_grad():
        layer(torch.full((2, 2, 6, 6), 0.7))
        plasticity.write_gradients()
        plasticity.normalize()
    assert layer.weight.isfinite().all() and layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("groups", [1, 2])
def test_separable_whitening_is_full_whitening_with_the_product_covariance(groups: int, monkeypatch) -> None:
    """What `SeparableWhitening` does, with matrices: C = A ⊗ B, P² = (1 + ε)(C/λ + ε)⁻¹."""
    monkeypatch.setattr(whitening, "LARGEST", 0)
    layer, x = double(nn.Conv2d(2 * groups, 3 * groups, 3, groups=groups), 0), images((2, 2 * groups, 6, 5), 0)
    with Plasticity(layer, SoftWTA(temperature=T), whiten=0.5) as plasticity, torch.no_grad():
        layer(x)
        ours, plastic = plasticity.updates()[""].numpy(), plasticity.plastic_layers[""]
        norms = plastic.norms(plastic.rows(layer.weight.detach())).numpy()
    assert isinstance(plastic.whitening, whitening.SeparableWhitening)
    centered = (x - x.mean((0, 2, 3), keepdim=True)).numpy()
    A = literal.patch_covariance(centered, (1, 1), (1, 1), groups)
    B = literal.patch_covariance(centered, (3, 3), (1, 1), 2 * groups).reshape(groups, 2, 9, 9).mean(1)
    plain = update(layer, SoftWTA(temperature=T), x, center=True)
    for g in range(groups):
        C = np.kron(A[g], B[g])
        metric = (C / np.linalg.eigvalsh(C).mean() + 0.5 * np.eye(18)) / 1.5
        units = slice(3 * g, 3 * g + 3)
        W = layer.weight.detach().numpy()[units].reshape(3, -1)
        # ΔW = corr P² − M W, and plain competition on the same activations gives corr − M W
        gate = np.array(mean_gate(layer, x, g, groups))[:, None]
        expected = (plain[units].reshape(3, -1) + gate * W) @ np.linalg.inv(metric) - gate * W
        np.testing.assert_allclose(ours[units].reshape(3, -1), expected, atol=1e-8)
        np.testing.assert_allclose(norms[g, :, 0], np.sqrt(np.einsum("ui,ij,uj->u", W, metric, W)), atol=1e-8)


def mean_gate(layer: nn.Module, x: torch.Tensor, group: int, groups: int) -> list[float]:
    """E[g] of a group's units when they compete on centered patches."""
    inputs, units = slice(2 * group, 2 * group + 2), slice(3 * group, 3 * group + 3)
    S = patches(x[:, inputs].numpy(), 3, 0) - channel_means(x[:, inputs], 9)
    Y = S @ layer.weight.detach().numpy()[units].reshape(3, -1).T
    return list(np.mean([literal.gate("swta", y, T) for y in Y], axis=0))
