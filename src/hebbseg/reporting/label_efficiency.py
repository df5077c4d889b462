"""Label efficiency: the percentage of labels the baseline needs to reach the value of an arm."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import isotonic_regression

from hebbseg.evaluation.metrics import INTERVAL_FROM
from hebbseg.reporting.statistics import Key

RESAMPLES = 2000
LEVEL = 0.9
ROUNDING = 1e-12  # tolerance for means summed in another order


@dataclass(frozen=True, kw_only=True)
class LabelEfficiency:
    """With ``percent`` labels the arm reaches ``value``, for which the baseline needs ``needed`` percent.

    ``needed`` and the bounds of its interval are −∞ if the baseline's smallest regime (``smallest``) exceeds the value, and
    ∞ if its largest (``largest``) does not reach it. ``low`` and ``high`` are None for fewer than `INTERVAL_FROM` pairs.
    """

    percent: float
    value: float
    needed: float
    low: float | None
    high: float | None
    smallest: float
    largest: float
    n: int

    @property
    def factor(self) -> float:
        """needed / percent: 2 means that half the labels suffice. −∞ and ∞ as for ``needed``."""
        return self.needed / self.percent

    def percent_text(self, needed: float | None) -> str:
        """``"12 %"``, ``"< 1 %"``, ``"> 20 %"`` or, for None, a dash."""
        return self._text(needed, 1.0, " %")

    def factor_text(self, needed: float | None) -> str:
        """``"1.2 ×"``, ``"< 0.1 ×"``, ``"> 2 ×"`` or, for None, a dash."""
        return self._text(needed, self.percent, " ×")

    def interval_text(self, shown: Callable[[float | None], str]) -> str:
        """Return ``"(9 % to 13 %)"``, with ``shown`` one of the two above; empty if unknown or of zero width."""
        if self.low is None or self.low == self.needed == self.high:
            return ""
        return f"({shown(self.low)} to {shown(self.high)})"

    def _text(self, needed: float | None, unit: float, suffix: str) -> str:
        if needed is None:
            return "–"
        if math.isinf(needed):
            sign, bound = ("<", self.smallest) if needed < 0 else (">", self.largest)
            return f"{sign} {bound / unit:.3g}{suffix}"
        return f"{needed / unit:.3g}{suffix}"


def monotone(values: np.ndarray) -> np.ndarray:
    """Return the isotonic (non-decreasing) least-squares fit to ``values`` (…, points).

    It assumes that more labels do not lower the true mean.
    """
    return np.apply_along_axis(lambda curve: isotonic_regression(curve).x, -1, values)


def percent_needed(value: np.ndarray, percents: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Return the smallest percentage at which a curve, linear in log(percent) between its points, reaches a value.

    Args:
        value: (n) values to reach.
        percents: (points) ascending.
        curve: (n, points) non-decreasing.

    Returns:
        (n) percentages; −∞ if the first point is above the value, ∞ if the last is below.
    """
    first = (curve < value[:, None] - ROUNDING).sum(axis=1)  # index of the first point that reaches the value
    inside = np.clip(first, 1, len(percents) - 1) if len(percents) > 1 else np.zeros_like(first)
    rows = np.arange(len(value))
    below, above = np.maximum(inside - 1, 0), inside
    rise = curve[rows, above] - curve[rows, below]
    share = np.divide(value - curve[rows, below], rise, out=np.zeros_like(value), where=rise > 0).clip(0, 1)
    logs = np.log(percents)
    needed = np.exp(logs[below] + share * (logs[above] - logs[below]))
    needed = np.where(first == 0, np.where(value < curve[:, 0] - ROUNDING, -np.inf, percents[0]), needed)
    return np.where(first == len(percents), np.inf, needed)


def label_efficiency(
    arm: Mapping[Key, float],
    percent: float,
    baseline: Mapping[float, Mapping[Key, float]],
    *,
    resamples: int = RESAMPLES,
) -> LabelEfficiency | None:
    """Return the percentage of labels the baseline needs to match an arm with ``percent``; None without common pairs.

    The baseline's mean curve is made monotone and inverted at the arm's mean. The interval is a bootstrap over pairs (fold,
    seed); the arm and all points of the curve are resampled together, as they share test images and weights. Percentiles
    are expanded for small n (Hesterberg 2015): α/2 becomes Φ(√(n/(n − 1)) t_{α/2, n − 1}).

    Args:
        arm: {(fold, seed): value} at ``percent``.
        baseline: {percent: {(fold, seed): value}}; only pairs common to the arm and all points are used.
    """
    percents = np.array(sorted(baseline), dtype=float)
    if not len(percents):
        return None
    pairs = sorted(set(arm).intersection(*(set(baseline[p]) for p in percents.tolist())), key=repr)
    n = len(pairs)
    if n == 0:
        return None
    reached = np.array([arm[pair] for pair in pairs])  # (n)
    points = np.array([[baseline[p][pair] for p in percents.tolist()] for pair in pairs])  # (n, points)

    def needed(draws: np.ndarray) -> np.ndarray:
        """(draws, n) indices of pairs → (draws)."""
        return percent_needed(reached[draws].mean(axis=1), percents, monotone(points[draws].mean(axis=1)))

    low = high = None
    if n >= INTERVAL_FROM:
        # A fixed seed makes the report reproducible.
        draws = np.random.default_rng(0).integers(n, size=(resamples, n))
        tail = float(stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf((1 - LEVEL) / 2, n - 1)))
        # Order statistics, as infinite values cannot be interpolated.
        low, high = (float(q) for q in np.quantile(needed(draws), (tail, 1 - tail), method="inverted_cdf"))
    return LabelEfficiency(
        percent=percent,
        value=float(reached.mean()),
        needed=float(needed(np.arange(n)[None])[0]),
        low=low,
        high=high,
        smallest=float(percents[0]),
        largest=float(percents[-1]),
        n=n,
    )
