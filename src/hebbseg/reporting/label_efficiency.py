"""How many labels a better start is worth: with r % an arm reaches what the baseline needs s % for."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import isotonic_regression

from hebbseg.reporting.statistics import Key

RESAMPLES = 2000
LEVEL = 0.9
ROUNDING = 1e-12  # two means of the same numbers, summed in another order, are the same


@dataclass(frozen=True, kw_only=True)
class LabelEfficiency:
    """At ``percent`` labels the arm reaches ``value``, for which the baseline needs ``needed`` percent.

    ``needed`` and the ends of its interval are −∞ where the baseline's smallest regime (``smallest``) is already better,
    and ∞ where its largest (``largest``) never gets there: all that is known then is "less than" or "more than".
    ``low`` and ``high`` are None for a single pair.
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
        """s / r: 2 means that half the labels do. −∞ and ∞ as for ``needed``."""
        return self.needed / self.percent

    def percent_text(self, needed: float | None) -> str:
        """``"12 %"``, ``"< 1 %"``, ``"> 20 %"`` or, if unknown, a dash."""
        return self._text(needed, 1.0, " %")

    def factor_text(self, needed: float | None) -> str:
        """``"1.2 ×"``, ``"< 0.1 ×"``, ``"> 2 ×"`` or, if unknown, a dash."""
        return self._text(needed, self.percent, " ×")

    def interval_text(self, shown: Callable[[float | None], str]) -> str:
        """``"(9 % … 13 %)"`` with ``shown`` one of the two above; empty if unknown, or if it says no more than the number."""
        if self.low is None or self.low == self.needed == self.high:
            return ""
        return f"({shown(self.low)} … {shown(self.high)})"

    def _text(self, needed: float | None, unit: float, suffix: str) -> str:
        if needed is None:
            return "–"
        if math.isinf(needed):
            sign, bound = ("<", self.smallest) if needed < 0 else (">", self.largest)
            return f"{sign} {bound / unit:.3g}{suffix}"
        return f"{needed / unit:.3g}{suffix}"


def monotone(values: np.ndarray) -> np.ndarray:
    """The non-decreasing sequence nearest to ``values`` (…, points) in least squares.

    More labels do not make a method worse; where a mean over few seeds says so, that is noise, and it is pooled.
    """
    return np.apply_along_axis(lambda curve: isotonic_regression(curve).x, -1, values)


def percent_needed(value: np.ndarray, percents: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """The smallest percentage at which a curve, linear in log(percent) between its points, reaches a value.

    Args:
        value: (n) values to reach.
        percents: (points) ascending.
        curve: (n, points) non-decreasing.

    Returns:
        (n) percentages; −∞ where the first point is already above, ∞ where the last is below.
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
    """What the arm's ``percent`` labels are worth in labels of the baseline; None if nothing can be paired.

    The baseline's mean curve is made monotone and read backwards at the arm's mean. The interval is a bootstrap over pairs
    (fold, seed), arm and all points of the baseline's curve resampled together, as they share test images and weights.
    Its percentiles are widened for few pairs (Hesterberg 2015, "expanded percentile"): α/2 becomes
    Φ(√(n/(n − 1)) t_{α/2, n − 1}), which for very few pairs is the whole range of the resamples.

    Args:
        arm: {(fold, seed): value} at ``percent``.
        baseline: {percent: {(fold, seed): value}}; only pairs that every point and the arm have are used.
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
    if n > 1:
        # The same numbers on every machine; the draws need no other source of chance.
        draws = np.random.default_rng(0).integers(n, size=(resamples, n))
        tail = float(stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf((1 - LEVEL) / 2, n - 1)))
        # Order statistics: between a number and "more than 20 %" nothing can be interpolated.
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
