"""Statistics against formulas written out, enumeration and scipy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.isotonic import IsotonicRegression

from hebbseg.reporting.label_efficiency import label_efficiency, monotone, percent_needed
from hebbseg.reporting.statistics import mean_interval, mean_ranks, paired_difference, wilcoxon_p


def test_interval_is_the_formula() -> None:
    values = [0.81, 0.78, 0.9, 0.75]
    mean = sum(values) / 4
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / 3)
    # 2.353363 is the 95 % point of Student's t with 3 degrees of freedom in any printed table.
    found = mean_interval(values)
    assert (found.mean, found.n) == (pytest.approx(mean), 4)
    assert found.half == pytest.approx(2.353363 * sd / 2, rel=1e-6)
    assert mean_interval([0.5]).half is None


def test_interval_covers_nine_times_in_ten() -> None:
    rng = np.random.default_rng(1)
    inside = [abs((e := mean_interval(rng.normal(3, 2, 5))).mean - 3) <= e.half for _ in range(2000)]
    assert 0.88 < np.mean(inside) < 0.92


def test_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])
    with pytest.raises(ValueError, match="finite"):
        mean_interval([1.0, float("nan")])


def enumerated_p(differences: list[float]) -> float:
    """All 2ⁿ assignments of signs, one after the other."""
    d = [x for x in differences if x != 0]
    ranks = stats.rankdata([abs(x) for x in d])
    middle = sum(ranks) / 2
    found = abs(sum(r for r, x in zip(ranks, d) if x > 0) - middle)
    sums = [sum(r for r, s in zip(ranks, signs) if s) for signs in itertools.product((0, 1), repeat=len(d))]
    return sum(abs(w - middle) >= found - 1e-9 for w in sums) / len(sums)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8).filter(any))
def test_wilcoxon_is_the_enumeration_ties_and_zeros_included(differences: list[int]) -> None:
    assert wilcoxon_p(differences) == pytest.approx(enumerated_p([float(d) for d in differences]))


def test_wilcoxon_agrees_with_scipy() -> None:
    rng = np.random.default_rng(2)
    for n in (5, 12, 30):
        d = rng.normal(0.4, 1, n)
        assert wilcoxon_p(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    many = rng.normal(0.1, 1, 200)
    assert wilcoxon_p(many) == pytest.approx(stats.wilcoxon(many, method="approx", correction=True).pvalue)
    assert wilcoxon_p([0.0, 0.0]) is None


def test_difference_is_paired_by_key_and_says_what_it_left_out() -> None:
    a = {(0, seed): value for seed, value in enumerate([0.8, 0.7, 0.9])} | {(1, 0): 0.1}
    b = {(0, seed): value for seed, value in enumerate([0.7, 0.65, 0.7])}
    found = paired_difference(a, b)
    assert found.estimate.mean == pytest.approx((0.1 + 0.05 + 0.2) / 3)
    assert found.estimate.n == 3
    assert found.p == 0.25
    assert "1 unpaired run excluded" in found.note
    assert "the smallest possible p is 0.25" in found.note
    with pytest.raises(ValueError, match="no fold and seed in common"):
        paired_difference(a, {(9, 9): 1.0})


def test_direction_needs_an_interval_clear_of_zero() -> None:
    zeros = dict.fromkeys(range(4), 0.0)
    assert paired_difference({0: 0.1, 1: 0.11, 2: 0.09, 3: 0.1}, zeros).direction == 1
    assert paired_difference({0: -0.1, 1: -0.11, 2: -0.09, 3: -0.1}, zeros).direction == -1
    assert paired_difference({0: 0.1, 1: -0.1, 2: 0.2, 3: -0.1}, zeros).direction == 0
    assert paired_difference({0: 0.1}, zeros).direction == 0


def test_ranks_share_ties_and_leave_incomplete_blocks_out() -> None:
    blocks = [{"a": 3.0, "b": 2.0, "c": 1.0}, {"a": 2.0, "b": 2.0, "c": 1.0}, {"a": 1.0, "b": 2.0}]
    found = mean_ranks(blocks)
    assert {arm: e.mean for arm, e in found.ranks.items()} == {"a": 1.25, "b": 1.75, "c": 3.0}
    assert (found.blocks, found.incomplete) == (2, 1)
    assert mean_ranks(blocks, higher_is_better=False).ranks["c"].mean == 1.0
    assert mean_ranks([]).ranks == {}


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=7))
def test_monotone_is_isotonic_regression(values: list[float]) -> None:
    ours = monotone(np.array([values]))[0]
    assert ours == pytest.approx(IsotonicRegression().fit_transform(range(len(values)), values), abs=1e-9)


def test_curve_read_backwards_where_the_answer_is_known() -> None:
    percents = np.array([1.0, 10.0, 100.0])
    curve = np.array([[0.2, 0.4, 0.6]])  # 0.2 + 0.2 · log10(percent)
    for value, answer in ((0.2, 1), (0.3, math.sqrt(10)), (0.4, 10), (0.5, 10 * math.sqrt(10)), (0.6, 100)):
        assert percent_needed(np.array([value]), percents, curve)[0] == pytest.approx(answer)
    assert percent_needed(np.array([0.19]), percents, curve)[0] == -np.inf
    assert percent_needed(np.array([0.61]), percents, curve)[0] == np.inf
    flat = np.array([[0.2, 0.2, 0.6]])
    assert percent_needed(np.array([0.2]), percents, flat)[0] == 1.0  # the smallest that reaches it
    assert percent_needed(np.array([0.4]), percents, flat)[0] == pytest.approx(10 * math.sqrt(10))
    assert percent_needed(np.array([0.2]), percents[:1], curve[:, :1])[0] == 1.0


def log_curve(percents: tuple[float, ...], offsets: list[float]) -> dict[float, dict[int, float]]:
    return {p: {s: 0.5 + 0.1 * math.log10(p) + offset for s, offset in enumerate(offsets)} for p in percents}


def test_efficiency_of_an_arm_worth_twice_its_labels() -> None:
    offsets = [0.01, -0.02, 0.015, 0.0]
    baseline = log_curve((1, 2, 5, 10, 20), offsets)
    arm = {s: 0.5 + 0.1 * math.log10(2 * 5) + offset for s, offset in enumerate(offsets)}
    found = label_efficiency(arm, 5, baseline)
    assert found is not None
    # The seeds' offsets are common to both sides: paired resampling sees no doubt at all.
    assert (found.needed, found.low, found.high) == (pytest.approx(10), pytest.approx(10), pytest.approx(10))
    assert found.factor == pytest.approx(2)
    assert (found.percent_text(found.needed), found.factor_text(found.needed)) == ("10 %", "2 ×")
    assert found.n == 4


def test_efficiency_says_more_than_and_less_than() -> None:
    baseline = log_curve((1, 20), [0.0, 0.01])
    above, below = (label_efficiency(dict.fromkeys((0, 1), value), 10, baseline) for value in (0.9, 0.1))
    assert above is not None and below is not None
    assert (above.percent_text(above.needed), above.factor_text(above.needed)) == ("> 20 %", "> 2 ×")
    assert (below.percent_text(below.needed), below.factor_text(below.needed)) == ("< 1 %", "< 0.1 ×")
    itself = label_efficiency(baseline[20], 20, baseline)
    assert itself is not None and itself.percent_text(itself.needed) == "20 %"
    alone = label_efficiency({0: 0.55}, 10, baseline)
    assert alone is not None and alone.percent_text(alone.low) == "–"
    assert label_efficiency({7: 0.55}, 10, baseline) is None


def test_bootstrap_interval_covers_about_nine_times_in_ten() -> None:
    rng = np.random.default_rng(5)
    percents, n, covered = (1.0, 2.0, 5.0, 10.0, 20.0), 8, []
    for _ in range(300):
        own = rng.normal(0, 0.03, n)  # what a seed does to all its runs

        def runs(percent: float, own: np.ndarray = own) -> dict[int, float]:
            noise = rng.normal(0, 0.02, n)
            return {s: 0.5 + 0.15 * math.log10(percent) + own[s] + noise[s] for s in range(n)}

        arm = {s: value + 0.15 * math.log10(1.6) for s, value in runs(5.0).items()}  # worth 8 %
        found = label_efficiency(arm, 5.0, {p: runs(p) for p in percents}, resamples=400)
        assert found is not None and found.low is not None and found.high is not None
        covered.append(found.low <= 8.0 <= found.high)
    assert 0.85 < np.mean(covered) < 0.96
