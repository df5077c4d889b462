"""What repeated runs say: means with intervals, paired differences, ranks. Pure functions of numbers."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats

from hebbseg.evaluation.metrics import mean_and_ci90

EXACT_AT_MOST = 50  # pairs; beyond that the normal approximation is as good and the exact count slow
USABLE_P = 0.1  # with fewer pairs than make this p possible, a Wilcoxon test can show nothing


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over n runs; ``half`` is half the width of its interval, None where one run allows none."""

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
    """Mean of a − b over pairs, its interval, and Wilcoxon's two-sided p. ``note`` says what the numbers cannot."""

    estimate: Estimate
    p: float | None
    note: str

    @property
    def direction(self) -> int:
        """1 or −1 where the interval is clear of 0, else 0."""
        if self.estimate.half is None:
            return 0
        return (self.estimate.low > 0) - (self.estimate.high < 0)


def mean_interval(values: Sequence[float] | np.ndarray) -> Estimate:
    """The mean and its 90 % interval, see `mean_and_ci90`. A run without a value must be left out by the caller.

    >>> mean_interval([2.0, 2.0, 2.0])
    Estimate(mean=2.0, half=0.0, n=3)
    """
    x = np.asarray(values, dtype=float)
    if len(x) == 0 or not np.isfinite(x).all():
        raise ValueError(f"values are {x.tolist()}: a mean needs at least one, all of them finite.")
    mean, half = mean_and_ci90(x)
    return Estimate(mean=mean, half=half, n=len(x))


def wilcoxon_p(differences: Sequence[float] | np.ndarray) -> float | None:
    """Two-sided p of Wilcoxon's signed-rank test; None if no difference is other than 0.

    Zeros are dropped (Wilcoxon 1945) and ties share their rank. Up to `EXACT_AT_MOST` differences the p is exact, ties or
    not: the share of all 2ⁿ assignments of signs whose rank sum is as far from its middle as the one found. Beyond, the
    normal approximation with correction for ties. (`scipy.stats.wilcoxon` is exact with ties only up to 13 differences.)
    """
    d = np.asarray(differences, dtype=float)
    d = d[d != 0]
    n = len(d)
    if n == 0:
        return None
    if n > EXACT_AT_MOST:
        return float(stats.wilcoxon(d, method="approx", correction=True).pvalue)
    # Twice the ranks are whole numbers, as a shared rank is a multiple of ½.
    doubled = np.rint(2 * stats.rankdata(np.abs(d))).astype(int)
    total = int(doubled.sum())
    ways = [0] * (total + 1)  # ways[w]: in how many assignments the positive ranks sum up to w; exact integers
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
    """a − b over the keys (fold, seed) that both have; what only one has is left out and counted in the note.

    Raises if they share no key.
    """
    shared = sorted(set(a) & set(b), key=repr)
    if not shared:
        raise ValueError("nothing to pair: the two arms share no fold and seed.")
    differences = np.array([a[key] - b[key] for key in shared])
    estimate = mean_interval(differences)
    p = wilcoxon_p(differences)
    notes = []
    alone = len(set(a) ^ set(b))
    if alone:
        notes.append(f"{alone} run{'s' if alone > 1 else ''} without a partner left out")
    if p is None:
        notes.append("no difference at all")
    else:
        smallest = 2 / 2 ** int(np.count_nonzero(differences))
        if smallest > USABLE_P:
            notes.append(f"too few pairs for a test: p cannot be below {smallest:.3g}")
    return PairedDifference(estimate=estimate, p=p, note="; ".join(notes))


@dataclass(frozen=True, kw_only=True)
class MeanRanks:
    """Mean rank of each arm (1 is best) over ``blocks`` that have all of them; Friedman's p where it is defined."""

    ranks: dict[str, Estimate]
    blocks: int
    incomplete: int
    p: float | None


def mean_ranks(blocks: Sequence[Mapping[str, float]], *, higher_is_better: bool = True) -> MeanRanks:
    """Ranks the arms within each block and averages; ties share the mean of their ranks.

    A block is one dataset, regime, fold and seed: {arm: value}. Blocks that lack an arm which another block has are left
    out and counted, as a mean over different opponents would compare nothing.
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
