"""Tables of the ablations: temperature, variants of the rule, linear probe, and what stage 1 did to each layer."""

import json
from collections.abc import Callable
from pathlib import Path

from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.published import CAUTION, published
from hebbseg.reporting.statistics import mean_interval
from hebbseg.reporting.tables.comparisons import MEANS, metric_table, published_cell, regime_heading
from hebbseg.reporting.tables.table import (
    EMPTY,
    Cell,
    Row,
    Table,
    estimate_cell,
    file_name,
    marked,
    number_cell,
    text_cell,
)


def temperatures(comparison: Comparison) -> list[tuple[float, str]]:
    """(t, label) of the arms that have one, small to large; an arm without a softmax has none."""
    found = [
        (float(comparison.setting(label, "temperature")), label)
        for label in comparison.labels
        if label not in comparison.labels_of(comparison.baseline)
        and comparison.setting(label, "init") == "hebbian"
        and comparison.setting(label, "rule") == "swta"
    ]
    return sorted(found)


def temperature_table(comparison: Comparison) -> Table:
    """Dice by temperature, its paired difference to the baseline, and the paper's column."""
    theirs = {round(1 / float(row.method), 4): row for row in published("temperature", comparison.dataset)}
    percent = next(iter(theirs.values())).percent if theirs else 0
    several = len({comparison.arm(label) for _, label in temperatures(comparison)}) > 1
    rows = []
    for t, label in temperatures(comparison):
        other = comparison.partner(label, comparison.baseline)
        cells = [
            Cell(text=f"{t:.3g}", sort=t, numbers={"": t}),
            Cell(text=f"{1 / t:.3g}", sort=1 / t, numbers={"": 1 / t}),
        ]
        cells += [text_cell(comparison.arm(label))] if several else []
        for regime in comparison.regimes:
            difference = None if other is None else comparison.difference(label, other, regime)
            cells.append(estimate_cell(comparison.estimate(label, regime, "dice"), scale=100))
            cells.append(estimate_cell(None if difference is None else difference.estimate, scale=100, sign=True))
        if theirs:
            row = theirs.get(round(t, 4))
            cells.append(EMPTY if row is None else published_cell(row, "dice"))
        rows.append(Row(cells=tuple(cells)))
    first = 3 if several else 2
    headings = [
        text for regime in comparison.regimes for text in (regime_heading(regime), f"{regime_heading(regime)}: difference")
    ]
    headings += [f"published, {percent:g} %"] if theirs else []
    ours = range(first, first + 2 * len(comparison.regimes), 2)
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "temperature"),
        title=f"Dice (%) on {comparison.dataset}, by temperature t of the softmax",
        note=f"{MEANS} Differences to {comparison.baseline} are paired by fold and seed."
        + (" The last column is published (Ciampi et al.), measured under another protocol: context only." if theirs else ""),
        columns=("t", "K = 1/t", *(["arm"] if several else []), *headings),
        rows=marked(rows, ours, higher_is_better=True),
    )


def variants_table(comparison: Comparison) -> Table:
    """Rules and their forms for transposed convolutions, by regime."""
    return metric_table(comparison, "dice", published_as="variants")


def probe_table(comparison: Comparison) -> Table:
    """Dice that one linear layer reads from the frozen features of each level."""
    levels = _levels(comparison)
    several = len(comparison.regimes) > 1
    rows = []
    for label in comparison.labels:
        for regime in comparison.regimes:
            runs = comparison.cell(label, regime)
            if not runs:
                continue
            cells = [text_cell(label)] + ([text_cell(regime_heading(regime))] if several else [])
            for level in levels:
                values = [run.levels[level] for run in runs if level in run.levels]
                cells.append(estimate_cell(mean_interval(values) if values else None, scale=100))
            rows.append(Row(cells=tuple(cells)))
    theirs = [
        Row(
            cells=(
                text_cell(f"{row.method}, published"),
                *([text_cell(f"{row.percent:g} %")] if several else []),
                *[EMPTY] * (len(levels) - 1),
                published_cell(row, "dice"),
            ),
            published=True,
        )
        for row in (published("probe", comparison.dataset) if levels else [])
    ]
    first = 2 if several else 1
    said = " The published probe reads one layer, shown in the last column." if theirs else ""
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "probe"),
        title=f"Linear probe on {comparison.dataset}: Dice (%) by feature map",
        note=f"{MEANS} Best in bold, second underlined.{' ' + CAUTION if theirs else ''}{said}",
        columns=("arm", *(["labelled"] if several else []), *levels),
        rows=marked([*rows, *theirs], range(first, first + len(levels)), higher_is_better=True),
    )


def probe_difference_table(comparison: Comparison) -> Table:
    """The same Dice less that of the baseline, paired by fold and seed."""
    levels = _levels(comparison)
    several = len(comparison.regimes) > 1
    rows = []
    for label, other in comparison.against_baseline():
        for regime in comparison.regimes:
            found = [comparison.level_difference(label, other, regime, level) for level in levels]
            if any(found):
                cells = [text_cell(label)] + ([text_cell(regime_heading(regime))] if several else [])
                cells += [estimate_cell(None if each is None else each.estimate, scale=100, sign=True) for each in found]
                rows.append(Row(cells=tuple(cells)))
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "probe-paired"),
        title=f"Linear probe on {comparison.dataset}: difference to {comparison.baseline}, paired by fold and seed",
        note="Percentage points of Dice, mean of the paired differences with its 90 % t-interval.",
        columns=("arm", *(["labelled"] if several else []), *levels),
        rows=tuple(rows),
    )


def _levels(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(level for run in comparison.runs for level in run.levels))


def diagnostics_table(folder: Path, name: str) -> Table:
    """pretrain.json of one run: how far each layer moved, who wins, how alike its filters are."""
    layers = json.loads((folder / "pretrain.json").read_text(encoding="utf-8"))
    columns: dict[str, tuple[str, Callable[[float], Cell]]] = {
        "units": ("units", lambda value: number_cell(value, 0)),
        "moved": ("moved (%)", lambda value: number_cell(100 * value, 0)),
        "effective_units": ("effective units", lambda value: number_cell(value, 1)),
        "cosine": ("mean |cos|", lambda value: number_cell(value, 2)),
        "rank": ("effective rank", lambda value: number_cell(value, 1)),
        "norm": ("norm", lambda value: number_cell(value, 2)),
    }
    rows = [
        Row(
            cells=(
                text_cell(layer),
                *(EMPTY if facts.get(key) is None else make(float(facts[key])) for key, (_, make) in columns.items()),
            )
        )
        for layer, facts in layers.items()
    ]
    return Table(
        name=file_name(name, "diagnostics"),
        title="Stage 1, layer by layer",
        note="One run. moved: how far the weights went, relative to their length. effective units: how many take part in "
        "learning; 1 would mean that one unit wins everything. mean |cos|: how alike filters are, 0 to 1. effective rank: "
        "how many directions they span.",
        columns=("layer", *(heading for heading, _ in columns.values())),
        rows=tuple(rows),
    )
