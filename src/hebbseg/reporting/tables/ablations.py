"""Ablation tables: temperature, linear probe and stage-1 diagnostics."""

import json
from collections.abc import Callable
from pathlib import Path

from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.published import CAUTION, published
from hebbseg.reporting.statistics import mean_interval
from hebbseg.reporting.tables.comparisons import MEANS, PAIRED, published_cell, regime_heading
from hebbseg.reporting.tables.table import EMPTY, Cell, Row, Table, estimate_cell, file_name, marked, number_cell, text_cell


def temperatures(comparison: Comparison) -> list[tuple[float, str]]:
    """Return (t, label) of the arms with a softmax temperature, in ascending order."""
    found = [
        (float(comparison.setting(label, "temperature")), label)
        for label in comparison.labels
        if label not in comparison.labels_of(comparison.baseline)
        and comparison.setting(label, "init") == "hebbian"
        and comparison.setting(label, "rule") == "swta"
    ]
    return sorted(found)


def temperature_table(comparison: Comparison) -> Table:
    """Return Dice by temperature, its paired difference to the baseline, and the published Dice."""
    published_by_t = {round(1 / float(row.method), 4): row for row in published("temperature", comparison.dataset)}
    percent = next(iter(published_by_t.values())).percent if published_by_t else 0
    several = len({comparison.arm(label) for _, label in temperatures(comparison)}) > 1
    rows = []
    for t, label in temperatures(comparison):
        other = comparison.partner(label, comparison.baseline)
        cells = [Cell(text=f"{value:.3g}", sort=value, numbers={"": value}) for value in (t, 1 / t)]
        cells += [text_cell(comparison.arm(label))] if several else []
        for regime in comparison.regimes:
            difference = None if other is None else comparison.difference(label, other, regime)
            cells.append(estimate_cell(comparison.estimate(label, regime, "dice"), scale=100))
            cells.append(estimate_cell(None if difference is None else difference.estimate, scale=100, sign=True))
        if published_by_t:
            row = published_by_t.get(round(t, 4))
            cells.append(EMPTY if row is None else published_cell(row, "dice"))
        rows.append(Row(cells=tuple(cells)))
    first = 3 if several else 2
    headings = [
        text for regime in comparison.regimes for text in (regime_heading(regime), f"{regime_heading(regime)}: difference")
    ]
    headings += [f"published, {percent:g} %"] if published_by_t else []
    ours = range(first, first + 2 * len(comparison.regimes), 2)
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "temperature"),
        title=f"Dice (%) on {comparison.dataset} by softmax temperature t",
        note=f"{MEANS} Differences to {comparison.baseline} are paired by fold and seed."
        + (" Last column: published (Ciampi et al.) under a different protocol, for reference." if published_by_t else ""),
        columns=("t", "K = 1/t", *(["arm"] if several else []), *headings),
        rows=marked(rows, ours, higher_is_better=True),
    )


def probe_table(comparison: Comparison) -> Table:
    """Return the Dice of a linear layer on the frozen features of each level."""
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
    published_rows = [
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
    published_note = f" {CAUTION} The published probe uses a single layer, shown in the last column." if published_rows else ""
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "probe"),
        title=f"Linear probe on {comparison.dataset}: Dice (%) by level",
        note=f"{MEANS} Best in bold, second underlined.{published_note}",
        columns=("arm", *(["labelled"] if several else []), *levels),
        rows=marked([*rows, *published_rows], range(first, first + len(levels)), higher_is_better=True),
    )


def probe_difference_table(comparison: Comparison) -> Table:
    """Return the paired difference in linear-probe Dice to the baseline."""
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
        title=f"Linear probe on {comparison.dataset}: paired difference to {comparison.baseline} (Dice points)",
        note=PAIRED,
        columns=("arm", *(["labelled"] if several else []), *levels),
        rows=tuple(rows),
    )


def _levels(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(level for run in comparison.runs for level in run.levels))


def diagnostics_table(folder: Path, name: str) -> Table:
    """Return the stage-1 diagnostics of one run by layer, from pretrain.json."""
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
        title="Stage-1 diagnostics by layer",
        note="One run. moved: norm of the weight change relative to the norm of the initial weights. effective units: number "
        "of units that take part in learning (1: a single unit always wins). mean |cos|: mean absolute cosine similarity of "
        "filters (0: orthogonal, 1: identical). effective rank: of the filter matrix. norm: mean norm of a filter.",
        columns=("layer", *(heading for heading, _ in columns.values())),
        rows=tuple(rows),
    )
