"""Tables that compare arms: metrics by label regime, paired differences, ranks and label efficiency."""

from collections.abc import Sequence
from itertools import combinations

from hebbseg.evaluation.metrics import INTERVAL_FROM
from hebbseg.reporting.comparison import PROPOSED, Comparison, blocks, curve
from hebbseg.reporting.label_efficiency import LabelEfficiency, label_efficiency
from hebbseg.reporting.published import Published
from hebbseg.reporting.references import References
from hebbseg.reporting.statistics import PairedDifference, mean_ranks, paired_difference
from hebbseg.reporting.tables.table import (
    EMPTY,
    Cell,
    Row,
    Table,
    estimate_cell,
    file_name,
    marked,
    number_cell,
    shown_number,
    text_cell,
)

# Metric → name, factor, decimals, whether higher is better.
SHOWN: dict[str, tuple[str, float, int, bool]] = {
    "dice": ("Dice (%)", 100.0, 1, True),
    "jaccard": ("Jaccard (%)", 100.0, 1, True),
    "hd95": ("95HD", 1.0, 1, False),
    "asd": ("ASD", 1.0, 2, False),
    "dice_pooled": ("Pooled Dice (%)", 100.0, 1, True),
    "jaccard_pooled": ("Pooled Jaccard (%)", 100.0, 1, True),
}
FEW = f"No interval for n < {INTERVAL_FROM}."
MEANS = f"Mean over folds and seeds ± half-width of the 90 % t-interval, n runs. {FEW}"
MARKS = "Best in red and bold, second in blue and underlined."
PAIRED = f"Mean difference in percentage points, paired by fold and seed, ± half-width of the 90 % t-interval, n pairs. {FEW}"
ARROWS = {1: "↑ ", 0: "→ ", -1: "↓ "}


def metric_name(comparison: Comparison, metric: str) -> str:
    unit = f" ({comparison.runs[0].unit})" if metric in ("hd95", "asd") else ""
    return SHOWN[metric][0] + unit


def regime_heading(regime: str) -> str:
    """``"10%"`` → ``"10 %"``, ``"8"`` → ``"8 masks"``."""
    if regime.isdigit():
        return f"{regime} masks"
    return f"{regime[:-1]} %" if regime.endswith("%") else regime


def metric_table(comparison: Comparison, metric: str, *, references: References | None = None) -> Table:
    """Return a metric by arm and label regime, each arm followed by the published results of its algorithm."""
    _, scale, decimals, higher = SHOWN[metric]
    rows = []
    for label in comparison.labels:
        found = [comparison.estimate(label, regime, metric) for regime in comparison.regimes]
        cells = (estimate_cell(estimate, scale=scale, decimals=decimals) for estimate in found)
        rows.append(Row(cells=(text_cell(label), *cells), proposed=comparison.arm(label) == PROPOSED))
        by_regime = [None if references is None else references.row(label, regime) for regime in comparison.regimes]
        named = next((row for row in by_regime if row is not None), None)
        if references is not None and named is not None:
            theirs = (published_cell(references, row, metric, decimals) for row in by_regime)
            rows.append(Row(cells=(text_cell(f"{named.method} (published)"), *theirs), published=True))
    note = "" if references is None else references.note(shown=any(row.published for row in rows), metrics=(metric,))
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, metric),
        title=f"{metric_name(comparison, metric)} on {comparison.dataset} by label regime",
        note=" ".join(filter(None, (MEANS, MARKS, "Higher is better." if higher else "Lower is better.", note))),
        columns=("arm", *map(regime_heading, comparison.regimes)),
        rows=marked(rows, range(1, 1 + len(comparison.regimes)), higher_is_better=higher),
    )


def published_cell(references: References, row: Published | None, metric: str, decimals: int = 2) -> Cell:
    value = None if row is None else references.value(row, metric)
    if value is None:
        return EMPTY
    mean, half = value
    interval = "" if half is None else f"± {half:.{decimals}f}"
    return Cell(text=f"{mean:.{decimals}f}", detail=interval, sort=mean, numbers={"": mean, "ci90": half})


def paired_table(comparison: Comparison) -> Table:
    """Return the paired difference of every arm to the baseline, one row per label regime."""
    rows = [
        _difference_row(label, regime, difference)
        for label, other in comparison.against_baseline()
        for regime in comparison.regimes
        if (difference := comparison.difference(label, other, regime)) is not None
    ]
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "paired"),
        title=f"Paired difference to {comparison.baseline} on {comparison.dataset} (Dice points)",
        note=f"Mean difference in percentage points, paired by fold and seed, with its 90 % t-interval (from, to). {FEW} "
        "Wilcoxon signed-rank test: two-sided, exact up to 50 pairs, not corrected for multiple comparisons.",
        columns=("arm", "labelled", "difference", "from", "to", "Wilcoxon p", "n", "note"),
        rows=tuple(rows),
    )


def _difference_row(label: str, regime: str, difference: PairedDifference) -> Row:
    estimate = difference.estimate
    bounds = (None, None) if estimate.half is None else (100 * estimate.low, 100 * estimate.high)
    return Row(
        cells=(
            text_cell(label),
            Cell(text=regime_heading(regime), sort=_as_number(regime.removesuffix("%")), numbers={"": regime}),
            *(number_cell(value, 1, sign=True) for value in (100 * estimate.mean, *bounds)),
            number_cell(difference.p, 3),
            number_cell(float(estimate.n), 0),
            text_cell(difference.note),
        )
    )


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def gain_table(comparison: Comparison) -> Table:
    """Return the paired gain of stage 1, with an arrow where the interval excludes zero."""
    rows = []
    for label, other in comparison.gains():
        cells = []
        for regime in comparison.regimes:
            difference = comparison.difference(label, other, regime)
            known = difference is not None and difference.estimate.half is not None
            before = ARROWS[difference.direction] if difference is not None and known else ""
            estimate = None if difference is None else difference.estimate
            cells.append(estimate_cell(estimate, scale=100, sign=True, before=before))
        rows.append(Row(cells=(text_cell(f"{label} over {other}"), *cells)))
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "gain"),
        title=f"Gain from stage 1 on {comparison.dataset} (Dice points)",
        note=f"{PAIRED} ↑ higher, ↓ lower, → the 90 % interval includes zero.",
        columns=("arm", *map(regime_heading, comparison.regimes)),
        rows=tuple(rows),
    )


def rank_table(group: Sequence[Comparison], name: str) -> Table:
    """Return the mean rank of the arms common to ``group`` over the blocks (dataset, regime, fold, seed) with all of them."""
    labels, cells = _ranked(group)
    counted = [(comparison, [r for r in comparison.regimes if (n, r) in cells]) for n, comparison in enumerate(group)]
    found = mean_ranks([block for c, regimes in counted for block in blocks(c, labels, regimes, "dice")])
    arms = sorted(set().union(*(comparison.labels for comparison in group)) - set(labels))
    regimes = [f"{c.dataset} {regime_heading(r)}" for c, regimes in counted for r in c.regimes if r not in regimes]
    notes = ["Rank 1 is best. Mean ± half-width of the 90 % t-interval over"]
    notes += [f"{found.blocks} blocks (dataset, label regime, fold and seed)."]
    notes += [f"Incomplete blocks excluded: {found.incomplete}."] if found.incomplete else []
    notes += [f"Friedman test: p = {found.p:.2g}."] if found.p is not None else []
    notes += [f"Arms not ranked, as they lack runs: {', '.join(arms)}."] if arms else []
    notes += [f"Label regimes excluded, as ranked arms lack runs: {', '.join(regimes)}."] if regimes else []
    ordered = sorted(found.ranks, key=lambda arm: found.ranks[arm].mean)
    rows = [Row(cells=(text_cell(arm), estimate_cell(found.ranks[arm], decimals=2))) for arm in ordered]
    return Table(
        name=file_name(name, "rank"),
        title=f"Mean rank by Dice over {', '.join(comparison.dataset for comparison, regimes in counted if regimes)}",
        note=" ".join(notes),
        columns=("arm", "mean rank"),
        rows=marked(rows, [1], higher_is_better=False),
    )


def _ranked(group: Sequence[Comparison]) -> tuple[list[str], frozenset[tuple[int, str]]]:
    """Return at least two arms to rank and the cells (number of the comparison, regime) common to them, or none.

    Requiring all arms, or all regimes, could leave almost nothing to rank, as some arms or regimes (all labels) have few
    runs. Of all choices, the one with the most runs is taken.
    """
    cells = {
        label: frozenset((n, r) for n, comparison in enumerate(group) for r in comparison.regimes if comparison.cell(label, r))
        for label in sorted(set.intersection(*(set(comparison.labels) for comparison in group)))
    }
    choices = [
        ([label for label, has in cells.items() if shared <= has], shared)
        for shared in dict.fromkeys(cells[a] & cells[b] for a, b in combinations(cells, 2))
    ]
    return max(choices, key=lambda choice: (len(choice[0]) * len(choice[1]), len(choice[0])), default=([], frozenset()))


def efficiencies(comparison: Comparison) -> list[tuple[str, LabelEfficiency]]:
    """Return the label efficiency of each arm, if the baseline has more than one label regime."""
    found = []
    for label, other in comparison.against_baseline():
        baseline = curve(comparison, other)
        for percent, values in curve(comparison, label).items() if len(baseline) > 1 else ():
            efficiency = label_efficiency(values, percent, baseline)
            found += [] if efficiency is None else [(label, efficiency)]
    return found


def efficiency_table(comparison: Comparison) -> Table:
    """Return the labels the baseline needs to match each arm."""
    rows = []
    for label, found in efficiencies(comparison):
        ends = {"": found.needed, "low": found.low, "high": found.high}
        rows.append(
            Row(
                cells=(
                    text_cell(label),
                    number_cell(found.percent, 0 if found.percent >= 1 else 2, " %"),
                    number_cell(100 * found.value, 1),
                    Cell(
                        text=found.percent_text(found.needed),
                        detail=found.interval_text(found.percent_text),
                        sort=found.needed,
                        numbers=ends,
                    ),
                    Cell(
                        text=found.factor_text(found.needed),
                        detail=found.interval_text(found.factor_text),
                        sort=found.factor,
                        numbers={key: None if end is None else end / found.percent for key, end in ends.items()},
                    ),
                    number_cell(float(found.n), 0),
                )
            )
        )
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "label-efficiency"),
        title=f"Label efficiency on {comparison.dataset}: labels {comparison.baseline} needs to reach the same Dice",
        note=f"The mean curve of {comparison.baseline}, made monotone, is inverted (linear interpolation in log(%)). Interval: "
        f"90 % bootstrap over paired folds and seeds, expanded percentiles. {FEW} “<” and “>”: outside the label regimes of "
        f"{comparison.baseline}. Factor: labels needed / labels used.{_flatness_warning(comparison)}",
        columns=("arm", "labelled", "Dice (%)", f"{comparison.baseline} needs", "factor", "n"),
        rows=tuple(rows),
    )


def _flatness_warning(comparison: Comparison) -> str:
    """Return a warning if labels do not clearly help the baseline: small differences in Dice then give any factor."""
    for label in comparison.labels_of(comparison.baseline)[:1]:
        points = curve(comparison, label)
        fewest, most = min(points), max(points)
        if len(points) > 1 and points[fewest].keys() & points[most].keys():
            gain = paired_difference(points[most], points[fewest]).estimate
            if gain.half is not None and gain.mean <= gain.half:
                shown = f"{shown_number(100 * gain.mean, 1, sign=True)} ± {100 * gain.half:.1f} points (n = {gain.n})"
                return (
                    f" From {fewest:g} % to {most:g} % of the labels, {label} gains {shown}: the 90 % interval includes zero. "
                    "Factors are not reliable here."
                )
    return ""
