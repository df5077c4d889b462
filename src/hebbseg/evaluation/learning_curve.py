"""The learning curve over the number of labelled images: a power law of the error, extrapolated with its uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hebbseg.evaluation.metrics import INTERVAL_FROM

RESAMPLES = 2000
LEAST_ERROR = 1e-4  # of 1 − Dice, whose logarithm is taken


@dataclass(frozen=True, kw_only=True)
class Extrapolation:
    """Dice D expected for ``masks`` labelled images, and the exponent b of the curve, each with its 90 % interval.

    The bounds are None for fewer than `INTERVAL_FROM` test cases.
    """

    masks: int
    dice: float
    dice_low: float | None
    dice_high: float | None
    exponent: float
    exponent_low: float | None
    exponent_high: float | None


def power_law(masks: Sequence[int], dice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log a and b of the power law of the error

        1 − D(n) = a · n⁻ᵇ,

    where D(n) is the Dice with n labelled images: the least-squares line through log(1 − D) over log n. The law has two
    parameters, as a third, the error that is left with any number of masks, cannot be told from three points.

    Shapes: ``dice`` is (points, …), the results (…).
    """
    x = np.log(np.asarray(masks, dtype=float))  # (points,)
    y = np.log(np.maximum(1 - np.asarray(dice, dtype=float), LEAST_ERROR))  # (points, …)
    weights = (x - x.mean()) / np.square(x - x.mean()).sum()
    b = -np.tensordot(weights, y, axes=1)
    return y.mean(axis=0) + b * x.mean(), b


def extrapolate(masks: Sequence[int], dice: np.ndarray, to: int) -> Extrapolation:
    """Return the Dice that the power law predicts for ``to`` labelled images.

    The interval is the 5th to 95th percentile over `RESAMPLES` bootstrap samples of the test cases, the same cases at all
    points. It contains neither the choice of the masks nor the random seed.

    Args:
        masks: numbers of labelled images, at least two different ones.
        dice: (points, cases) Dice of each test case with each number of labelled images.
    """
    points, cases = dice.shape
    if points != len(masks) or len(set(masks)) < 2 or not cases:
        raise ValueError(f"masks={list(masks)}, dice of shape {dice.shape}: two numbers of masks and a test case are required.")
    log_a, b = power_law(masks, dice.mean(axis=1))
    bounds: list[float | None] = [None] * 4
    if cases >= INTERVAL_FROM:
        drawn = np.random.default_rng(0).integers(cases, size=(RESAMPLES, cases))
        log_as, bs = power_law(masks, np.stack([row[drawn].mean(axis=1) for row in dice]))  # (points, RESAMPLES)
        predicted = 1 - np.exp(log_as - bs * np.log(to))
        bounds = [*np.percentile(predicted, (5, 95)).tolist(), *np.percentile(bs, (5, 95)).tolist()]
    return Extrapolation(
        masks=to,
        dice=float(1 - np.exp(log_a - b * np.log(to))),
        dice_low=bounds[0],
        dice_high=bounds[1],
        exponent=float(b),
        exponent_low=bounds[2],
        exponent_high=bounds[3],
    )
