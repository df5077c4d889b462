"""The tables of the paper: all metrics side by side, one table per data set and label regime."""

from hebbseg.reporting.comparison import PROPOSED, Comparison
from hebbseg.reporting.published import DISTANCES, WORKING_SIZE
from hebbseg.reporting.references import References
from hebbseg.reporting.tables.comparisons import MARKS, MEANS, published_cell, regime_heading
from hebbseg.reporting.tables.table import EMPTY, Row, Table, estimate_cell, file_name, marked, number_cell, text_cell

DECIMALS = 2
# Metric → heading, factor, whether higher is better; in the order of the paper, then the pooled forms.
COLUMNS: dict[str, tuple[str, float, bool]] = {
    "dice": ("DC (%) ↑", 100.0, True),
    "jaccard": ("JI (%) ↑", 100.0, True),
    "hd95": ("95HD ({}) ↓", 1.0, False),
    "asd": ("ASD ({}) ↓", 1.0, False),
    "dice_pooled": ("pooled DC (%) ↑", 100.0, True),
    "jaccard_pooled": ("pooled JI (%) ↑", 100.0, True),
}


def regime_tables(comparison: Comparison) -> list[Table]:
    """Return one table per label regime."""
    references = References(comparison, "sota")
    return [regime_table(comparison, regime, references) for regime in comparison.regimes]


def regime_table(comparison: Comparison, regime: str, references: References) -> Table:
    """Return all metrics by arm in one label regime, each arm followed by the published results of its algorithm.

    Distances are in the pixels of the paper where they can be converted.
    """
    converted = references.distance_scale
    rows = []
    for label in comparison.labels:
        runs = comparison.cell(label, regime)
        if not runs:
            continue
        cells = [text_cell(label)]
        for metric, (_, factor, _) in COLUMNS.items():
            scale = (converted or 1.0) if metric in DISTANCES else factor
            estimate = comparison.estimate(label, regime, metric)
            cells.append(estimate_cell(estimate, scale=scale, decimals=DECIMALS, show_n=False))
        cells.append(number_cell(float(len(runs)), 0))
        rows.append(Row(cells=tuple(cells), proposed=comparison.arm(label) == PROPOSED))
        theirs = references.row(label, regime)
        if theirs is not None:
            values = (published_cell(references, theirs, metric, DECIMALS) for metric in COLUMNS)
            rows.append(Row(cells=(text_cell(f"{theirs.method} (published)"), *values, EMPTY), published=True))
    unit, conversion = _unit(comparison, converted)
    for number, (_, _, higher) in enumerate(COLUMNS.values(), start=1):
        rows = list(marked(rows, [number], higher_is_better=higher))
    shown = any(row.published for row in rows)
    notes = [MEANS, MARKS, "DC, JI, 95HD and ASD: mean over test images; pooled: over the voxels of all test images together."]
    return Table(
        name=file_name(comparison.recipe, comparison.dataset, "labelled", regime),
        title=f"{comparison.dataset}, {regime_heading(regime)} labelled",
        note=" ".join(filter(None, (*notes, conversion, references.note(shown=shown, metrics=tuple(COLUMNS))))),
        columns=("method", *(heading.format(unit) for heading, _, _ in COLUMNS.values()), "n"),
        rows=tuple(rows),
    )


def _unit(comparison: Comparison, scale: float | None) -> tuple[str, str]:
    """Return the unit of distances, and a remark if they are converted."""
    if scale is None or scale == 1.0:
        return " or ".join(sorted({run.unit for run in comparison.runs})), ""
    size = f"{WORKING_SIZE} × {WORKING_SIZE}"
    return "px", f"Distances are multiplied by {scale:.4g}, to pixels at {size}, the size of images in the paper."
