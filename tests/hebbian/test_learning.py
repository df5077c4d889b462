"""Learning is real: the rules reach what theory says they reach, with independent referees."""

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from torch import Tensor, nn

from hebbseg import HebbianPCA, Plasticity, SoftWTA


def learn(layer: nn.Module, rule, batches: list[Tensor], epochs: int, rate: float, decay: float = 1.0, **options) -> None:
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    with Plasticity(layer, rule, **options) as plasticity, torch.no_grad():
        for _ in range(epochs):
            for batch in batches:
                layer(batch)
                plasticity.write_gradients()
                optimizer.step()
            schedule.step()


def clusters(n: int, centres: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples around unit vectors, so that the nearest center is the one with the largest product."""
    generator = torch.Generator().manual_seed(seed)
    means = nn.functional.normalize(torch.randn(centres, size, generator=generator), dim=1)
    which = torch.randint(centres, (n,), generator=generator)
    return means[which] + 0.08 * torch.randn(n, size, generator=generator), means


def inertia(samples: np.ndarray, centres: np.ndarray) -> float:
    return float(((samples[:, None] - centres[None]) ** 2).sum(-1).min(1).mean())


def test_swta_reaches_the_centroids_of_k_means() -> None:
    samples, means = clusters(3000, 6, 12, seed=0)
    layer = nn.Linear(12, 6, bias=False)
    # Starts near the clusters but far from the centroids: which basin a competition falls into is not the question here.
    with torch.no_grad():
        layer.weight.copy_(means + 0.25 * torch.randn(6, 12, generator=torch.Generator().manual_seed(1)))
    start = inertia(samples.numpy(), layer.weight.detach().numpy())
    learn(layer, SoftWTA(temperature=0.02), list(samples.split(500)), epochs=30, rate=2.0, decay=0.9)
    referee = KMeans(6, n_init=10, random_state=0).fit(samples.numpy()).inertia_ / len(samples)
    reached = inertia(samples.numpy(), layer.weight.detach().numpy())
    assert start > 1.3 * referee
    assert reached < 1.02 * referee


def test_swta_convolution_reaches_the_centroids_of_the_patches() -> None:
    samples, means = clusters(4 * 400, 4, 2 * 3 * 3, seed=2)
    # 20 × 20 patches side by side: a stride as wide as the window makes every patch a sample
    image = samples.view(4, 20, 20, 2, 3, 3).permute(0, 3, 1, 4, 2, 5).reshape(4, 2, 60, 60)
    layer = nn.Conv2d(2, 4, 3, stride=3, bias=False)
    with torch.no_grad():
        noise = torch.randn(4, 18, generator=torch.Generator().manual_seed(3))
        layer.weight.copy_((means + 0.2 * noise).view(4, 2, 3, 3))
    learn(layer, SoftWTA(temperature=0.02), [image], epochs=60, rate=2.0, decay=0.95)
    referee = KMeans(4, n_init=10, random_state=0).fit(samples.numpy()).inertia_ / len(samples)
    assert inertia(samples.numpy(), layer.weight.detach().flatten(1).numpy()) < 1.02 * referee


def anisotropic(n: int, spread: list[float], seed: int) -> Tensor:
    """Centred samples with the given standard deviations along a random orthonormal basis."""
    size = len(spread)
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    samples = torch.randn(n, size, generator=generator, dtype=torch.float64) * torch.tensor(spread) @ basis.T
    return samples - samples.mean(0)


def degrees(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.rad2deg(subspace_angles(a.T, b.T).max()))


def test_hpca_finds_the_components_in_order() -> None:
    samples = anisotropic(4000, [2.0, 1.6, 1.3, 1.0, 0.5, 0.4, 0.3, 0.2, 0.2, 0.1], seed=0)
    layer = nn.Linear(10, 4, bias=False).double()
    learn(layer, HebbianPCA(), list(samples.split(1000)), epochs=150, rate=0.1, decay=0.98)
    W = layer.weight.detach().numpy()
    components = PCA(4).fit(samples.numpy()).components_
    assert degrees(W, components) < 2
    for ours, theirs in zip(W, components):
        assert degrees(ours[None], theirs[None]) < 2
    np.testing.assert_allclose(np.linalg.norm(W, axis=1), 1, atol=0.01)


def test_hpca_tsa_finds_the_principal_subspace_of_the_small_map() -> None:
    samples = anisotropic(4 * 256, [1.6, 1.5, 1.5, 1.4, 0.9, 0.9, 0.8, 0.8, 0.2, 0.2, 0.1, 0.1], seed=1)
    small = samples.view(4, 16, 16, 12).permute(0, 3, 1, 2)
    layer = nn.ConvTranspose2d(12, 2, 2, stride=2, bias=False).double()
    with torch.no_grad():
        layer.weight.mul_(0.3)
    learn(layer, HebbianPCA(), [small], epochs=800, rate=0.15, transpose="tsa")
    W = layer.weight.detach().flatten(2).permute(1, 2, 0).numpy()  # (o, κ, i)
    components = PCA(8).fit(samples.numpy()).components_
    assert degrees(W.reshape(8, 12), components) < 2
    # the first channel's four offsets hold the first four components, the second channel's the next
    assert degrees(W[0], components[:4]) < 2
    assert degrees(W[1], components[4:]) < 2
    np.testing.assert_allclose(W.reshape(8, 12) @ W.reshape(8, 12).T, np.eye(8), atol=0.02)


def small_maps(seed: int) -> Tensor:
    samples, _ = clusters(2 * 144, 3, 6, seed)
    return samples.view(2, 12, 12, 6).permute(0, 3, 1, 2).double()


def norms_over_time(transpose: str, steps: int) -> list[float]:
    torch.manual_seed(0)
    layer = nn.ConvTranspose2d(6, 3, 2, stride=2, bias=False).double()
    small, norms = small_maps(5), []
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    with Plasticity(layer, SoftWTA(temperature=0.1), transpose=transpose) as plasticity, torch.no_grad():
        for _ in range(steps):
            layer(small)
            plasticity.write_gradients()
            optimizer.step()
            norms.append(float(layer.weight.norm()))
        layer(small)
        norms.append(float(plasticity.updates()[""].norm()))  # the last entry: how far it still is from rest
    return norms


def test_swta_tsa_comes_to_rest_at_the_centroids_it_wins() -> None:
    *norms, rest = norms_over_time("tsa", 1200)
    assert rest < 1e-6
    assert abs(norms[-1] - norms[-100]) < 1e-6


def test_literal_swta_tsa_has_no_fixed_point_and_its_norm_grows() -> None:
    *norms, rest = norms_over_time("tsa-literal", 400)
    growth = np.diff(norms[100::50])
    assert rest > 1e-3
    assert (growth > 0).all()
    # linear growth: the later half of the way is as long as the earlier half
    assert growth[-1] > 0.5 * growth[0]


def test_swta_s_moves_each_input_channels_filter_to_the_patches_it_gates() -> None:
    """With one channel active at each position, ΔW_i = 0 exactly when W_i is the mean of the patches where i is active."""
    layer = nn.ConvTranspose2d(2, 1, 2, stride=2, bias=False).double()
    small = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    small[:, 0, :2], small[:, 1, 2:] = 1, 1
    with Plasticity(layer, SoftWTA(temperature=0.01), transpose="s") as plasticity, torch.no_grad():
        layer(small)
        update = plasticity.updates()[""]
    # the patch under an active channel is that channel's own filter: at rest already
    assert update.abs().max() < 1e-12


@pytest.mark.parametrize("whiten", [None, 0.5])
def test_conditioned_competition_on_images_does_not_collapse(whiten: float | None) -> None:
    """Smooth images: raw competition ends with few winners, the conditioned one keeps nearly all units at work."""
    from hebbseg.hebbian.diagnostics import diagnose

    generator = torch.Generator().manual_seed(0)
    images = nn.functional.avg_pool2d(torch.rand(8, 3, 68, 68, generator=generator), 5, stride=1)
    layer = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)

    def effective(**options) -> float:
        nn.init.normal_(layer.weight, std=0.2, generator=torch.Generator().manual_seed(1))
        with (
            Plasticity(layer, SoftWTA(temperature=0.02 if not options else 0.5), **options) as plasticity,
            torch.no_grad(),
        ):
            for _ in range(60):
                layer(images)
                plasticity.write_gradients()
                optimizer.step()
                if options:
                    plasticity.normalize()
            plasticity.forget_usage()
            layer(images)
            return diagnose(plasticity)[""].effective_units

    assert effective() < 6
    assert effective(unit_norm=True, center=True, standardize=True, whiten=whiten) > 12
