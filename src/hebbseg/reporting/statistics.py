"""Statistics over repeated runs: means with intervals, paired differences, ranks."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats

from hebbseg.evaluation.metrics import mean_and_ci90

EXACT_AT_MOST = 50  # pairs; beyond, the exact test is slow and the normal approximation accurate
USABLE_P = 0.1  # fewer pairs than this p requires are reported as too few

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over n runs; ``half`` is the half-width of its interval, None for fewer than `INTERVAL_FROM` runs."""

    mean: float
    half: float | None
    n: int

    @property
    def low(self) -> float:
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half or 0.0)


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Mean of a − b over pairs with its interval, the two-sided p of the Wilcoxon test, and a note on their limits."""

    estimate: Estimate
    p: float | None
    note: str

    @property
    def direction(self) -> int:
        """Sign of the difference if the interval excludes zero, else 0."""
        if self.estimate.half is None:
            return 0
        return (self.estimate.low > 0) - (self.estimate.high < 0)


def mean_interval(values: Sequence[float] | np.ndarray) -> Estimate:
    """Return the mean and its 90 % interval, see `mean_and_ci90`; all values must be finite.

    >>> mean_interval([2.0, 2.0, 2.0])
    Estimate(mean=2.0, half=0.0, n=3)
    """
    x = np.asarray(values, dtype=float)
    if len(x) == 0 or not np.isfinite(x).all():
        raise ValueError(f"values={x.tolist()}: at least one value is required, and all must be finite.")
    mean, half = mean_and_ci90(x)
    return Estimate(mean=mean, half=half, n=len(x))


def wilcoxon_p(differences: Sequence[float] | np.ndarray) -> float | None:
    """Return the two-sided p of the Wilcoxon signed-rank test; None if all differences are zero.

    Zeros are dropped (Wilcoxon 1945) and ties share their rank. Up to `EXACT_AT_MOST` differences, p is exact: the fraction
    of all 2ⁿ sign assignments with a rank sum at least as far from its mean. Beyond, it is the normal approximation,
    corrected for ties. (`scipy.stats.wilcoxon` is exact with ties only up to 13 differences.)
    """
    d = np.asarray(differences, dtype=float)
    d = d[d != 0]
    n = len(d)
    if n == 0:
        return None
    if n > EXACT_AT_MOST:
        return float(stats.wilcoxon(d, method="approx", correction=True).pvalue)
    # Twice the ranks are integers, as shared ranks are multiples of ½.
    doubled = np.rint(2 * stats.rankdata(np.abs(d))).astype(int)
    total = int(doubled.sum())
    ways = [0] * (total + 1)  # ways[w]: number of assignments with positive rank sum w; exact integers
    ways[0] = 1
    reached = 0
    for rank in doubled.tolist():
        reached += rank
        for w in range(reached, rank - 1, -1):
            ways[w] += ways[w - rank]
    found = abs(2 * int(doubled[d > 0].sum()) - total)
    extreme = sum(count for w, count in enumerate(ways) if abs(2 * w - total) >= found)
    return extreme / 2**n


def paired_difference(a: Mapping[Key, float], b: Mapping[Key, float]) -> PairedDifference:
    """Return a − b over the common keys (fold, seed), at least one; the note counts the other runs."""
    shared = sorted(set(a) & set(b), key=repr)
    if not shared:
        raise ValueError("The two arms have no fold and seed in common.")
    differences = np.array([a[key] - b[key] for key in shared])
    estimate = mean_interval(differences)
    p = wilcoxon_p(differences)
    notes = []
    if unpaired := len(set(a) ^ set(b)):
        notes.append(f"{unpaired} unpaired run{'s' if unpaired > 1 else ''} excluded")
    if p is None:
        notes.append("all differences are zero")
    elif (smallest := 2 / 2 ** int(np.count_nonzero(differences))) > USABLE_P:
        notes.append(f"too few pairs for a test: the smallest possible p is {smallest:.3g}")
    return PairedDifference(estimate=estimate, p=p, note="; ".join(notes))


@dataclass(frozen=True, kw_only=True)
class MeanRanks:
    """Mean rank of each arm (1 is best) over the complete ``blocks``; p of the Friedman test if defined."""

    ranks: dict[str, Estimate]
    blocks: int
    incomplete: int
    p: float | None


def mean_ranks(blocks: Sequence[Mapping[str, float]], *, higher_is_better: bool = True) -> MeanRanks:
    """Rank the arms within each block and average over blocks; ties share the mean of their ranks.

    A block is {arm: value} of one dataset, regime, fold and seed. Blocks that lack an arm are excluded and counted.
    """
    arms = sorted({arm for block in blocks for arm in block})
    complete = [block for block in blocks if len(block) == len(arms)]
    if not complete or len(arms) < 2:
        return MeanRanks(ranks={}, blocks=0, incomplete=len(blocks) - len(complete), p=None)
    values = np.array([[block[arm] for arm in arms] for block in complete])  # (blocks, arms)
    ranks = stats.rankdata(-values if higher_is_better else values, axis=1)
    differ = bool((values != values[:, :1]).any())
    p = float(stats.friedmanchisquare(*values.T).pvalue) if len(arms) > 2 and len(complete) > 1 and differ else None
    return MeanRanks(
        ranks={arm: mean_interval(ranks[:, number]) for number, arm in enumerate(arms)},
        blocks=len(complete),
        incomplete=len(blocks) - len(complete),
        p=p,
    )
