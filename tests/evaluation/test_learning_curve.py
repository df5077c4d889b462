"""The power law against a general solver, and its interval against a loop."""

import math

import numpy as np
import pytest

from hebbseg.evaluation.learning_curve import RESAMPLES, extrapolate, power_law

MASKS = (3, 5, 10)


def test_a_power_law_is_found_again() -> None:
    dice = [1 - 0.9 * n**-0.4 for n in MASKS]
    log_a, b = power_law(MASKS, np.array(dice))
    assert (math.exp(log_a), b) == pytest.approx((0.9, 0.4))
    far = extrapolate(MASKS, np.repeat(np.array(dice)[:, None], 4, axis=1), 20)
    assert far.dice == pytest.approx(1 - 0.9 * 20**-0.4)
    assert (far.dice_low, far.dice_high) == pytest.approx((far.dice, far.dice)), "equal cases have no spread"


def test_the_line_is_that_of_polyfit_for_every_sample() -> None:
    dice = np.random.default_rng(0).uniform(0.2, 0.95, (3, 7))
    log_a, b = power_law(MASKS, dice)
    for k in range(7):
        slope, intercept = np.polyfit(np.log(MASKS), np.log(1 - dice[:, k]), 1)
        assert (log_a[k], b[k]) == pytest.approx((intercept, -slope))


def test_the_interval_is_that_of_resampled_cases() -> None:
    dice = np.random.default_rng(1).uniform(0.3, 0.9, (3, 12)) + np.array([[0.0], [0.03], [0.06]])
    far = extrapolate(MASKS, dice, 20)
    drawn = np.random.default_rng(0).integers(12, size=(RESAMPLES, 12))
    predicted = []
    for sample in drawn:
        means = [np.mean([row[case] for case in sample]) for row in dice]
        slope, intercept = np.polyfit(np.log(MASKS), np.log(1 - np.array(means)), 1)
        predicted.append(1 - math.exp(intercept + slope * math.log(20)))
    assert (far.dice_low, far.dice_high) == pytest.approx(np.percentile(predicted, (5, 95)).tolist())
    assert far.dice_low is not None and far.dice_high is not None
    assert far.dice_low < far.dice < far.dice_high


def test_few_cases_have_no_interval_and_a_dice_of_one_no_infinity() -> None:
    far = extrapolate((1, 2), np.array([[0.5, 1.0], [1.0, 1.0]]), 4)
    assert far.dice_low is None and far.exponent_high is None and 0 < far.dice <= 1
    with pytest.raises(ValueError, match="two numbers of masks"):
        extrapolate((2, 2), np.ones((2, 3)), 4)
