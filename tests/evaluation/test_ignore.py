"""Voxels that are not annotated count nowhere: metrics against slow versions, evaluation, linear probe."""

import numpy as np
import pytest
import torch

from hebbseg.data.cases import IGNORE
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.linear_probe import linear_probe
from hebbseg.evaluation.metrics import case_metrics, mean_dice
from tests.evaluation.masks import random_mask
from tests.literal.metrics import annotated_metrics


@pytest.mark.parametrize(("n_axes", "largest"), [(2, 12), (3, 6)])
def test_case_metrics_are_the_literal_ones_without_ignored_voxels(n_axes: int, largest: int) -> None:
    rng = np.random.default_rng(n_axes)
    for _ in range(25):
        shape = tuple(int(n) for n in rng.integers(2, largest + 1, n_axes))
        spacing = tuple(float(s) for s in rng.uniform(0.3, 4, n_axes))
        ignored = random_mask(rng, shape)
        if ignored.all():
            continue
        prediction, target = (random_mask(rng, shape) + random_mask(rng, shape).astype(np.uint8) for _ in range(2))
        given = np.where(ignored, IGNORE, target).astype(np.uint8)
        rows = case_metrics(prediction, given, 3, spacing, case="a")
        dices = []
        for index, row in enumerate(rows, start=1):
            expected = annotated_metrics(prediction == index, target == index, ignored, spacing)
            assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-9)
            dices.append(expected["dice"])
        assert mean_dice(torch.from_numpy(prediction), torch.from_numpy(given), 3) == pytest.approx(np.mean(dices))
        # What is predicted and what is true below the ignored voxels does not matter.
        other = np.where(ignored, rng.integers(0, 3, shape), prediction).astype(np.uint8)
        assert case_metrics(other, given, 3, spacing, case="a") == rows


def test_a_target_without_annotated_voxels_is_refused_with_its_name() -> None:
    target = np.full((4, 4), IGNORE, np.uint8)
    with pytest.raises(HebbsegError, match="case7: every pixel has the value to ignore"):
        case_metrics(np.zeros((4, 4), np.uint8), target, 2, case="case7")
    with pytest.raises(HebbsegError, match=r"prediction has class indices 255 … 255"):
        case_metrics(target, np.eye(4, dtype=np.uint8), 2)


def test_linear_probe_without_ignored_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 16, 16, generator=generator)
    truth = (image[0] > 0.5).to(torch.uint8)
    wrong, partial = truth.clone(), truth.clone()
    wrong[:8] = 1 - wrong[:8]  # the upper half is misleading
    partial[:8] = IGNORE

    def dice(fit: torch.Tensor, held_out: torch.Tensor) -> float:
        scores = linear_probe(
            lambda images: {"pixels": images}, [(image, fit)], [(image, held_out)], n_classes=2,
            generator=torch.Generator().manual_seed(1), penalty=1e-3, multiple_of=1,
        )  # fmt: skip
        return scores["pixels"].dice

    assert dice(partial, truth) > 0.9 and dice(truth, partial) > 0.9
    assert dice(wrong, truth) < 0.8 and dice(truth, wrong) < 0.8
    with pytest.raises(HebbsegError, match="No pixel of the mask is annotated"):
        dice(torch.full_like(truth, IGNORE), truth)
