import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from hebbseg.errors import HebbsegError
from hebbseg.evaluation.linear_probe import _at, _balanced_positions, fit_linear, linear_probe
from hebbseg.evaluation.metrics import dice
from hebbseg.networks.unet import UNet


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shapes(n: int, size: tuple[int, ...], seed: int, n_classes: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Images of two channels: class-dependent brightness under noise, and noise alone."""
    generator = seeded(seed)
    examples = []
    for _ in range(n):
        coarse = torch.randn(1, n_classes, *[4] * len(size), generator=generator)
        mask = F.interpolate(coarse, size=size, mode="nearest")[0].argmax(dim=0)
        noise = torch.randn(2, *size, generator=generator)
        examples.append((torch.stack([mask + 0.3 * noise[0], noise[1]]), mask))
    return examples


def pyramid(x: Tensor) -> dict[str, Tensor]:
    """Full-sized informative features, the same at half size, and noise with nothing in it."""
    pool = F.avg_pool2d if x.ndim == 4 else F.avg_pool3d
    return {"full": x.clone(), "half": pool(x, 2), "noise": x[:, 1:]}


@pytest.mark.parametrize("size", [(32, 32), (37, 26), (16, 12, 9)])
def test_finds_the_level_that_carries_the_answer(size: tuple[int, ...]) -> None:
    found = linear_probe(pyramid, shapes(4, size, 1), shapes(4, size, 2), n_classes=2, generator=seeded())
    assert list(found) == ["full", "half", "noise"]
    assert found["full"].dice > 0.93
    assert found["noise"].dice < min(found["half"].dice, found["full"].dice) - 0.1


def test_several_classes() -> None:
    # Three brightness levels are not linearly separable one against the rest, but are for a softmax.
    found = linear_probe(pyramid, shapes(4, (32, 32), 1, 3), shapes(4, (32, 32), 2, 3), n_classes=3, generator=seeded())
    assert found["full"].dice > 0.85


def test_dice_is_that_of_the_layer_fitted_and_applied_by_hand() -> None:
    fit, held_out = shapes(3, (32, 32), 1), shapes(3, (32, 32), 2)
    found = linear_probe(pyramid, fit, held_out, n_classes=2, generator=seeded(), pixels_per_image=10**6, multiple_of=2)
    generator = seeded()
    x, y = [], []
    for image, mask in fit:  # every pixel of the less frequent class, and by chance all of both if balanced
        place = tuple(_balanced_positions(mask, 2, 10**6, generator).T)
        enlarged = F.interpolate(F.avg_pool2d(image[None], 2), size=(32, 32), mode="bilinear")[0]
        x.append(enlarged[(slice(None), *place)].T)
        y.append(mask[place])
    weight, bias = fit_linear(torch.cat(x), torch.cat(y), n_classes=2, penalty=1e-3)
    scores = []
    for image, mask in held_out:
        enlarged = F.interpolate(F.avg_pool2d(image[None], 2), size=(32, 32), mode="bilinear")[0]
        scores.append(dice((torch.einsum("kc,chw->khw", weight, enlarged) + bias[:, None, None]).argmax(0), mask))
    assert found["half"].dice == pytest.approx(np.mean(scores), abs=1e-3)


@pytest.mark.parametrize(("small", "size"), [((5, 4), (20, 16)), ((6, 6), (6, 6)), ((3, 4, 2), (6, 16, 8))])
def test_sampling_is_linear_enlargement_at_those_pixels(small: tuple[int, ...], size: tuple[int, ...]) -> None:
    feature_map = torch.randn(1, 3, *small, generator=seeded())
    positions = torch.ones(size).nonzero()
    enlarged = F.interpolate(feature_map, size=size, mode="bilinear" if len(size) == 2 else "trilinear")[0]
    expected = enlarged.flatten(1).T
    torch.testing.assert_close(_at(feature_map, positions, size), expected, rtol=1e-5, atol=1e-5)


def test_fit_is_logistic_regression() -> None:
    x = torch.randn(400, 5, generator=seeded(), dtype=torch.float64) * torch.tensor([1, 10, 0.1, 1, 0]) + 3
    y = (x[:, 0] + 0.1 * x[:, 1] + torch.randn(400, generator=seeded(1)) > 3.3).long() + (x[:, 2] > 3.1)
    weight, bias = fit_linear(x, y, n_classes=3, penalty=0.01)
    assert torch.isfinite(weight).all() and (weight[:, 4] == 0).all()
    scale = x.std(dim=0, correction=0)
    scale[4] = 1
    standardised = ((x - x.mean(dim=0)) / scale).numpy()
    # scikit-learn minimises Σ loss + ‖W‖² / (2C)
    reference = LogisticRegression(C=1 / (2 * 0.01 * 400), tol=1e-8, max_iter=1000).fit(standardised, y.numpy())
    ours = (x.float() @ weight.T + bias).softmax(dim=1)
    np.testing.assert_allclose(ours, reference.predict_proba(standardised), atol=1e-4)


def test_pixels_are_balanced_and_of_their_class() -> None:
    mask = torch.zeros(30, 30, dtype=torch.uint8)
    mask[:4, :5] = 1
    mask[20:, 20:] = 2
    positions = _balanced_positions(mask, 3, 90, seeded())
    assert torch.bincount(mask[tuple(positions.T)].long()).tolist() == [30, 20, 30]
    assert len(torch.unique(positions, dim=0)) == len(positions)


def test_same_seed_same_answer_and_features_are_left_alone() -> None:
    network = UNet(in_channels=2, features=(4, 8, 16), seed=0).eval()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    fit, held_out = shapes(2, (21, 30), 1), shapes(2, (21, 30), 2)
    first, second = (linear_probe(network.features, fit, held_out, n_classes=2, generator=seeded(5)) for _ in range(2))
    assert first == second
    assert list(first) == ["enc0", "enc1", "enc2", "dec1", "dec0"]
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_errors_say_what_to_do() -> None:
    examples = shapes(1, (16, 16), 1)
    with pytest.raises(HebbsegError, match="fit is empty"):
        linear_probe(pyramid, [], examples, n_classes=2, generator=seeded())
    with pytest.raises(HebbsegError, match="held_out is empty"):
        linear_probe(pyramid, examples, [], n_classes=2, generator=seeded())
    with pytest.raises(HebbsegError, match=r"image has shape \(2, 16, 16\) and mask \(16, 15\)"):
        linear_probe(pyramid, [(examples[0][0], examples[0][1][:, 1:])], examples, n_classes=2, generator=seeded())
    with pytest.raises(HebbsegError, match=r"mask has classes 0 … 9; allowed are 0 … 1"):
        linear_probe(pyramid, [(examples[0][0], 9 * examples[0][1])], examples, n_classes=2, generator=seeded())
