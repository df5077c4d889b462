"""Uncertainty of a prediction against a loop over pixels."""

import math

import pytest
import torch

from hebbseg.planning.uncertainty import BAND, boundary_band, uncertainty_of


@pytest.mark.parametrize("shape", [(12, 15), (100, 60), (7, 8, 9)])
def test_the_band_has_every_pixel_near_another_class(shape: tuple[int, ...]) -> None:
    classes = torch.zeros(shape, dtype=torch.long)
    classes[tuple(slice(2, n // 2) for n in shape)] = 2
    radius = max(1, round(BAND * min(shape)))
    found = boundary_band(classes)
    for position in torch.cartesian_prod(*(torch.arange(n) for n in shape)).tolist():
        near = tuple(slice(max(0, p - radius), p + radius + 1) for p in position)
        assert found[tuple(position)] == (classes[near].unique().numel() > 1)


def test_uncertainty_is_the_mean_entropy_of_the_band() -> None:
    logits = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(0))
    logits[0, :, 3:] += 5
    probabilities = logits.softmax(0)
    band = boundary_band(probabilities.argmax(0))
    assert 0 < band.sum() < 36
    values = [
        -sum(p * math.log(p) for p in probabilities[:, i, j].tolist()) / math.log(3)
        for i in range(6)
        for j in range(6)
        if band[i, j]
    ]
    assert uncertainty_of(probabilities) == pytest.approx(sum(values) / len(values), rel=1e-5)


def test_a_prediction_of_one_class_counts_whole_and_certainty_is_0() -> None:
    assert uncertainty_of(torch.tensor([0.7, 0.3])[:, None, None].expand(2, 4, 4)) == pytest.approx(0.8813, abs=1e-4)
    certain = torch.zeros(2, 4, 4)
    certain[0] = 1
    assert uncertainty_of(certain) == 0
