"""Ablation tables: temperature, linear probe and stage-1 diagnostics."""

from collections.abc import Callable
from pathlib import Path

from hebbseg.reporting.comparison import PROPOSED, Comparison
from hebbseg.reporting.references import References
from hebbseg.reporting.statistics import mean_interval
from hebbseg.reporting.tables.comparisons import MARKS, MEANS, PAIRED, published_cell, regime_heading
from hebbseg.reporting.tables.table import EMPTY, Cell, Row, Table, estimate_cell, file_name, marked, number_cell, text_cell
from hebbseg.text_files import read_json

PUBLISHED_COLUMN = (
    "Published: Ciampi et al., for the same algorithm and data set, over the voxels of all test images together, so it is "
    "compared with the pooled column. The protocol differs: checkpoint and threshold were selected on the images reported."
)


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
    """Return Dice by temperature, its paired difference to the baseline, and pooled Dice beside the published one."""
    references = References(comparison, "temperature")
    found = temperatures(comparison)
    several = len({comparison.arm(label) for _, label in found}) > 1
    compared = {regime for regime in comparison.regimes if any(references.row(label, regime) for _, label in found)}
    columns: list[str] = ["t", "K = 1/t", *(["arm"] if several else [])]
    ours: list[int] = []  # columns in which the best is marked
    for regime in comparison.regimes:
        heading = regime_heading(regime)
        ours += [len(columns), len(columns) + 2] if regime in compared else [len(columns)]
        columns += [heading, f"{heading}: difference"]
        columns += [f"{heading}: pooled", f"{heading}: published"] if regime in compared else []
    rows = []
    for t, label in found:
        other = comparison.partner(label, comparison.baseline)
        cells = [Cell(text=f"{value:.3g}", sort=value, numbers={"": value}) for value in (t, 1 / t)]
        cells += [text_cell(comparison.arm(label))] if several else []
        for regime in comparison.regimes:
            difference = None if other is None else comparison.difference(label, other, regime)
            cells.append(estimate_cell(comparison.estimate(label, regime, "dice"), scale=100))
            cells.append(estimate_cell(None if difference is None else difference.estimate, scale=100, sign=True))
            if regime in compared:
                cells.append(estimate_cell(comparison.estimate(label, regime, "dice_pooled"), scale=100))
                cells.append(published_cell(references, references.row(label, regime), "dice_pooled", 1))
        rows.append(Row(cells=tuple(cells)))
    note = PUBLISHED_COLUMN if compared else references.other_data
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "temperature"),
        title=f"Dice (%) on {comparison.dataset} by softmax temperature t",
        note=f"{MEANS} {MARKS} Differences to {comparison.baseline} are paired by fold and seed. {note}".strip(),
        columns=tuple(columns),
        rows=marked(rows, ours, higher_is_better=True),
    )


def probe_table(comparison: Comparison) -> Table:
    """Return the Dice of a linear layer on the frozen features of each level, and pooled Dice beside the published one."""
    references = References(comparison, "probe")
    levels = _levels(comparison)
    several = len(comparison.regimes) > 1
    last = levels[-1] if levels else ""
    pooled = [last] if any(last in run.pooled_levels for run in comparison.runs) else []
    rows = []
    for label in comparison.labels:
        for regime in comparison.regimes:
            runs = comparison.cell(label, regime)
            if not runs:
                continue
            words = [text_cell(regime_heading(regime))] if several else []
            values = [[run.levels[level] for run in runs if level in run.levels] for level in levels]
            values += [[run.pooled_levels[level] for run in runs if level in run.pooled_levels] for level in pooled]
            cells = (estimate_cell(mean_interval(each) if each else None, scale=100) for each in values)
            rows.append(Row(cells=(text_cell(label), *words, *cells), proposed=comparison.arm(label) == PROPOSED))
            theirs = references.row(label, regime) if pooled else None
            if theirs is not None:
                cell = published_cell(references, theirs, "dice_pooled", 1)
                name = text_cell(f"{theirs.method} (published)")
                rows.append(Row(cells=(name, *words, *[EMPTY] * len(levels), cell), published=True))
    shown = any(row.published for row in rows)
    notes = [MEANS, MARKS, references.note(shown=shown, metrics=("dice_pooled",))]
    notes += ["The paper does not name the layer of its probe; it is compared with the last one."] if shown else []
    first = 2 if several else 1
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "probe"),
        title=f"Linear probe on {comparison.dataset}: Dice (%) by level",
        note=" ".join(filter(None, notes)),
        columns=("arm", *(["labelled"] if several else []), *levels, *(f"{level}, pooled" for level in pooled)),
        rows=marked(rows, range(first, first + len(levels) + len(pooled)), higher_is_better=True),
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
    layers = read_json(folder / "pretrain.json", "Restore it from a backup.")
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
