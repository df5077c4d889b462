"""Tables that compare arms: by regime, against the baseline, by rank, by what labels are worth."""

import math
from collections.abc import Sequence
from itertools import combinations

from hebbseg.reporting.comparison import Comparison, blocks, curve
from hebbseg.reporting.label_efficiency import LabelEfficiency, label_efficiency
from hebbseg.reporting.published import CAUTION, Published, published
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

# Metric → name, factor, decimals, whether more is better.
SHOWN: dict[str, tuple[str, float, int, bool]] = {
    "dice": ("Dice (%)", 100.0, 1, True),
    "jaccard": ("Jaccard (%)", 100.0, 1, True),
    "hd95": ("95HD", 1.0, 1, False),
    "asd": ("ASD", 1.0, 2, False),
    "dice_pooled": ("pooled Dice (%)", 100.0, 1, True),
}
MEANS = "Mean over folds and seeds ± half of the 90 % t-interval, n runs."
ARROWS = {1: "↑ ", 0: "→ ", -1: "↓ "}


def metric_name(comparison: Comparison, metric: str) -> str:
    unit = f" ({comparison.runs[0].unit})" if metric in ("hd95", "asd") else ""
    return SHOWN[metric][0] + unit


def regime_heading(regime: str) -> str:
    """``"10%"`` → ``"10 %"``; a number of masks says so."""
    if regime.isdigit():
        return f"{regime} masks"
    return f"{regime[:-1]} %" if regime.endswith("%") else regime


def metric_table(comparison: Comparison, metric: str, published_as: str | None = "sota") -> Table:
    """Arms by regimes, best bold and second underlined, then the rows of a published table for the same regimes."""
    _, scale, decimals, higher = SHOWN[metric]
    rows = [
        Row(
            cells=(
                text_cell(label),
                *(
                    estimate_cell(comparison.estimate(label, regime, metric), scale=scale, decimals=decimals)
                    for regime in comparison.regimes
                ),
            )
        )
        for label in comparison.labels
    ]
    theirs = [] if published_as is None else _published_rows(comparison, metric, published_as)
    columns = range(1, 1 + len(comparison.regimes))
    direction = "higher" if higher else "lower"
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, metric),
        title=f"{metric_name(comparison, metric)} on {comparison.dataset}, by share of labelled training images",
        note=f"{MEANS} Best in bold, second underlined ({direction} is better).{' ' + CAUTION if theirs else ''}",
        columns=("arm", *map(regime_heading, comparison.regimes)),
        rows=marked([*rows, *theirs], columns, higher_is_better=higher),
    )


def _published_rows(comparison: Comparison, metric: str, table: str) -> list[Row]:
    by_method: dict[str, dict[float, Published]] = {}
    for row in published(table, comparison.dataset):
        by_method.setdefault(row.method, {})[row.percent] = row
    rows = []
    for method, by_percent in by_method.items():
        found = [by_percent.get(comparison.percents.get(regime, math.nan)) for regime in comparison.regimes]
        cells = [EMPTY if row is None else published_cell(row, metric) for row in found]
        if any(cell is not EMPTY for cell in cells):
            rows.append(Row(cells=(text_cell(f"{method}, published"), *cells), published=True))
    return rows


def published_cell(row: Published, metric: str) -> Cell:
    if metric not in row.values:
        return EMPTY
    mean, half = row.values[metric]
    decimals = SHOWN[metric][2]
    interval = "" if half is None else f"± {half:.{decimals}f}"
    return Cell(text=f"{mean:.{decimals}f}", detail=interval, sort=mean, numbers={"": mean, "ci90": half})


def paired_table(comparison: Comparison) -> Table:
    """Every arm less the baseline, paired by fold and seed, one row for each regime."""
    rows = [
        _difference_row(label, regime, difference)
        for label, other in comparison.against_baseline()
        for regime in comparison.regimes
        if (difference := comparison.difference(label, other, regime)) is not None
    ]
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "paired"),
        title=f"Dice on {comparison.dataset}: difference to {comparison.baseline}, paired by fold and seed",
        note="Percentage points, mean of the paired differences with its 90 % t-interval; p of Wilcoxon's signed-rank test, "
        "two-sided, exact up to 50 pairs and not corrected for the number of comparisons.",
        columns=("arm", "labelled", "difference", "from", "to", "Wilcoxon p", "n", "note"),
        rows=tuple(rows),
    )


def _difference_row(label: str, regime: str, difference: PairedDifference) -> Row:
    estimate = difference.estimate
    mean, n = 100 * estimate.mean, estimate.n
    ends = (None, None) if estimate.half is None else (100 * estimate.low, 100 * estimate.high)
    percent = regime.removesuffix("%")
    return Row(
        cells=(
            text_cell(label),
            Cell(text=regime_heading(regime), sort=_as_number(percent), numbers={"": regime}),
            number_cell(mean, 1, sign=True),
            number_cell(ends[0], 1, sign=True),
            number_cell(ends[1], 1, sign=True),
            EMPTY if difference.p is None else number_cell(difference.p, 3),
            number_cell(float(n), 0),
            text_cell(difference.note),
        )
    )


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def gain_table(comparison: Comparison) -> Table:
    """X + first stage less X, paired, with an arrow where the interval is clear of 0."""
    rows = []
    for label, other in comparison.gains():
        cells = []
        for regime in comparison.regimes:
            difference = comparison.difference(label, other, regime)
            before = "" if difference is None else ARROWS[difference.direction]
            estimate = None if difference is None else difference.estimate
            cells.append(estimate_cell(estimate, scale=100, sign=True, before=before))
        rows.append(Row(cells=(text_cell(f"{label} over {other}"), *cells)))
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "gain"),
        title=f"Gain in Dice by the first stage on {comparison.dataset}, in percentage points",
        note="Paired by fold and seed, mean ± half of the 90 % t-interval, n pairs. ↑ better, ↓ worse, → the interval holds 0.",
        columns=("arm", *map(regime_heading, comparison.regimes)),
        rows=tuple(rows),
    )


def rank_table(group: Sequence[Comparison], name: str) -> Table:
    """Mean rank of arms that all of ``group`` have, over dataset × regime × fold × seed, where all of them were run."""
    labels, cells = _ranked(group)
    counted = [(comparison, [r for r in comparison.regimes if (n, r) in cells]) for n, comparison in enumerate(group)]
    found = mean_ranks([block for c, regimes in counted for block in blocks(c, labels, regimes, "dice")])
    arms = sorted(set().union(*(comparison.labels for comparison in group)) - set(labels))
    regimes = [f"{c.dataset} {regime_heading(r)}" for c, regimes in counted for r in c.regimes if r not in regimes]
    said = [f"Rank 1 is best; mean ± half of the 90 % t-interval over {found.blocks} blocks (dataset, regime, fold and seed)."]
    said += [f"{found.incomplete} incomplete blocks left out."] if found.incomplete else []
    said += [f"Friedman p {found.p:.2g}."] if found.p is not None else []
    said += [f"Not in all blocks, so not ranked: {', '.join(arms)}."] if arms else []
    said += [f"Not run by all of the ranked, so not counted: {', '.join(regimes)}."] if regimes else []
    ordered = sorted(found.ranks, key=lambda arm: found.ranks[arm].mean)
    rows = [Row(cells=(text_cell(arm), estimate_cell(found.ranks[arm], decimals=2))) for arm in ordered]
    return Table(
        name=file_name(name, "rank"),
        title=f"Mean rank by Dice over {', '.join(comparison.dataset for comparison, regimes in counted if regimes)}",
        note=" ".join(said),
        columns=("arm", "mean rank"),
        rows=marked(rows, [1], higher_is_better=False),
    )


def _ranked(group: Sequence[Comparison]) -> tuple[list[str], frozenset[tuple[int, str]]]:
    """The arms to rank, and the cells (number of the comparison, regime) that all of them share; none of fewer than two.

    An arm that is run in one regime only (all labels) would leave hardly a cell to the others, and a regime that only the
    baseline is run in (all labels, again) hardly an arm: of all choices, the one with the most runs to rank is taken.
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
    """What each arm's labels are worth in labels of the baseline, where the baseline has a curve."""
    answer = []
    for label, other in comparison.against_baseline():
        baseline = curve(comparison, other)
        for percent, values in curve(comparison, label).items():
            found = label_efficiency(values, percent, baseline) if len(baseline) > 1 else None
            if found is not None:
                answer.append((label, found))
    return answer


def efficiency_table(comparison: Comparison) -> Table:
    """With r % an arm reaches what the baseline needs s % for."""
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
        title=f"What labels are worth on {comparison.dataset}: labels that {comparison.baseline} needs for the same Dice",
        note=f"{comparison.baseline}'s mean curve, made monotone, is read backwards, linearly in log(%). Interval: 90 % "
        "bootstrap over paired folds and seeds, percentiles widened for few pairs. “<” and “>”: the answer lies "
        f"outside the regimes that {comparison.baseline} was run with, and only that is known. Factor: needed / used."
        + _flatness(comparison),
        columns=("arm", "labelled", "Dice (%)", f"{comparison.baseline} needs", "factor", "n"),
        rows=tuple(rows),
    )


def _flatness(comparison: Comparison) -> str:
    """A warning where more masks do not clearly help the baseline: then a little Dice is worth any number of them."""
    for label in comparison.labels_of(comparison.baseline)[:1]:
        points = curve(comparison, label)
        fewest, most = min(points), max(points)
        if len(points) > 1 and points[fewest].keys() & points[most].keys():
            gain = paired_difference(points[most], points[fewest]).estimate
            if gain.half is not None and gain.mean <= gain.half:
                shown = f"{shown_number(100 * gain.mean, 1, sign=True)} ± {100 * gain.half:.1f} points (n {gain.n})"
                return (
                    f" {label} gains {shown} from {fewest:g} % to {most:g} % of the labels, which is not clear of 0: factors "
                    "mean little here."
                )
    return ""
