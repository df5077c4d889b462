"""What the report shows of each recipe and dataset, in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hebbseg.errors import HebbsegError
from hebbseg.reporting.charts import (
    Picture,
    efficiency_curves,
    gain_arrows,
    learning_curves,
    temperature_curve,
    variant_bars,
)
from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.label_efficiency import LabelEfficiency
from hebbseg.reporting.results import RunResult, Unread
from hebbseg.reporting.tables.ablations import (
    diagnostics_table,
    probe_difference_table,
    probe_table,
    temperature_table,
    variants_table,
)
from hebbseg.reporting.tables.comparisons import (
    SHOWN,
    efficiencies,
    efficiency_table,
    gain_table,
    metric_table,
    paired_table,
    rank_table,
)
from hebbseg.reporting.tables.table import Cell, Row, Table, file_name, number_cell, text_cell

Item = Table | Picture | str | None


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing on the page: a table, a picture or a remark; ``folded`` ones open at a click."""

    table: Table | None = None
    picture: Picture | None = None
    remark: str = ""
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    anchor: str
    title: str
    text: str
    parts: tuple[Part, ...]


def comparison_section(comparison: Comparison, *, pictures: bool) -> Section:
    """Everything about one recipe on one dataset."""
    name = comparison.title or comparison.recipe or "Runs without a recipe"
    pairs = {run.pair for run in comparison.runs}
    cases = sorted({run.cases for run in comparison.runs})
    measured = f"{cases[0]}" if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    counts = ((len(comparison.runs), "run"), (len(comparison.labels), "arm"), (len(pairs), "repetition"))
    said = ", ".join(f"{count} {thing}{'' if count == 1 else 's'}" for count, thing in counts)
    return Section(
        anchor=file_name("s", comparison.recipe, comparison.kind, comparison.dataset),
        title=f"{name} · {comparison.dataset}",
        text=f"{said} (fold and seed); {measured} test cases each.",
        parts=tuple(_comparison_parts(comparison, pictures=pictures)),
    )


def _comparison_parts(comparison: Comparison, *, pictures: bool) -> list[Part]:
    if comparison.kind == "probe":
        tables = _parts(probe_table(comparison), probe_difference_table(comparison))
        return [*tables, *_stage1_parts(comparison, pictures=False)]
    layout = LAYOUTS.get(comparison.table, _sota_items)
    parts = _parts(*layout(comparison))
    parts += _parts(paired_table(comparison), learning_curves(comparison), folded=comparison.table in LAYOUTS)
    beside = None if comparison.table in LAYOUTS else "sota"
    others = (metric_table(comparison, metric, published_as=beside) for metric in SHOWN if metric != "dice")
    parts += _parts(*others, folded=True)
    if pictures:
        parts += _qualitative_parts(comparison)
    return [*parts, *_stage1_parts(comparison, pictures=pictures)]


def _sota_items(comparison: Comparison) -> list[Item]:
    gains: list[Item] = [gain_table(comparison), gain_arrows(comparison)] if comparison.gains() else []
    return [metric_table(comparison, "dice"), efficiency_curves(comparison), efficiency_table(comparison), *gains]


def _gain_items(comparison: Comparison) -> list[Item]:
    return [gain_table(comparison), gain_arrows(comparison), metric_table(comparison, "dice")]


def _temperature_items(comparison: Comparison) -> list[Item]:
    return [temperature_table(comparison), temperature_curve(comparison)]


def _variants_items(comparison: Comparison) -> list[Item]:
    return [variants_table(comparison), variant_bars(comparison)]


# The table that a recipe asks for → what is shown first; "sota" and every other name: arms by regimes.
LAYOUTS: dict[str, Callable[[Comparison], list[Item]]] = {
    "gain": _gain_items,
    "temperature": _temperature_items,
    "variants": _variants_items,
}


def _parts(*items: Item, folded: bool = False) -> list[Part]:
    """What there is something to show of."""
    parts = []
    for item in items:
        if isinstance(item, Table) and item.measured:
            parts.append(Part(table=item, folded=folded))
        elif isinstance(item, Picture):
            parts.append(Part(picture=item, folded=folded))
        elif isinstance(item, str):
            parts.append(Part(remark=item))
    return parts


def _qualitative_parts(comparison: Comparison) -> list[Part]:
    from hebbseg.reporting.qualitative import qualitative  # brings torch along

    try:
        return _parts(*qualitative(comparison))
    except (HebbsegError, OSError, ValueError, RuntimeError) as error:  # a picture less, not a report less
        return _parts(f"No pictures of predictions: {error}")


def _stage1_parts(comparison: Comparison, *, pictures: bool) -> list[Part]:
    """Filters and diagnostics of the first run that learned without masks and says how."""
    run = next((run for run in comparison.runs if (run.folder / "pretrain.json").is_file()), None)
    if run is None:
        return []
    parts: list[Part] = []
    if pictures:
        from hebbseg.reporting.qualitative import filters_picture

        try:
            parts += _parts(filters_picture(run))
        except HebbsegError as error:
            parts += _parts(f"No picture of the filters: {error}")
    try:
        table = diagnostics_table(run.folder, f"{comparison.recipe}-{comparison.dataset}")
        parts += _parts(table, folded=True)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        parts += _parts(f"No diagnostics of stage 1: {run.folder / 'pretrain.json'} is not readable ({error}).")
    return parts


def rank_sections(group: Sequence[Comparison]) -> list[Section]:
    """Mean ranks over all datasets of the recipes, and of the runs without one; none for fewer than two arms in common."""
    by_regime = [c for c in group if c.kind == "train" and c.table not in LAYOUTS]
    parts: list[Part] = []
    for chosen in ([c for c in by_regime if c.recipe], [c for c in by_regime if not c.recipe]):
        parts += _parts(rank_table(chosen, "all")) if chosen else []
    text = "Which arm is best when every dataset, regime, fold and seed counts alike."
    return [Section(anchor="s-rank", title="Ranks", text=text, parts=tuple(parts))] if parts else []


def headlines(group: Sequence[Comparison]) -> list[str]:
    """What labels are worth on each dataset, a sentence for each arm that the recipe names; one pair says nothing.

    A recipe names its arms of interest (those with a ``gain_over``) before anything is measured. Where it names none, all
    arms have their sentence: none is picked because of how it did.
    """
    said = []
    for comparison in group:
        if comparison.kind == "probe" or comparison.table in LAYOUTS:
            continue
        named = [label for label, _ in comparison.gains()]
        for label in named or [label for label, _ in comparison.against_baseline()]:
            worth = [found for name, found in efficiencies(comparison) if name == label and found.n > 1]
            if worth:
                each = (f"with {found.percent:g} %: {found.percent_text(found.needed)}{_in_brackets(found)}" for found in worth)
                said.append(
                    f"{comparison.dataset}: labels that {comparison.baseline} needs for the Dice that {label} reaches "
                    f"{'; '.join(each)}. 90 % intervals, n {min(found.n for found in worth)}."
                )
    return said


def _in_brackets(found: LabelEfficiency) -> str:
    interval = found.interval_text(found.percent_text)
    return f" {interval}" if interval else ""


def runs_table(runs: Sequence[RunResult]) -> Table:
    """Where every number comes from."""
    rows = [
        Row(
            cells=(
                text_cell(str(run.folder)),
                text_cell(run.recipe or "–"),
                text_cell(run.dataset),
                text_cell(run.arm),
                text_cell(run.labelled),
                text_cell(", ".join(f"{name} {value}" for name, value in run.axes.items())),
                _whole(run.fold),
                _whole(run.seed),
                number_cell(100 * run.metrics["dice"] if "dice" in run.metrics else None, 1),
                _whole(run.cases),
                number_cell(run.seconds, 0),
                text_cell(run.split_hash[:12]),
                text_cell(run.command),
            )
        )
        for run in runs
    ]
    return Table(
        name="runs",
        title="Runs",
        note="The same split hash means the same cases in the same roles.",
        columns=("folder", "recipe", "dataset", "arm", "labelled", "axes", "fold", "seed", "Dice (%)", "test cases",
                 "seconds", "split", "command"),
        rows=tuple(rows),
    )  # fmt: skip


def _whole(value: int | None) -> Cell:
    return number_cell(None if value is None else float(value), 0)


def unread_table(unread: Sequence[Unread]) -> Table:
    rows = tuple(Row(cells=(text_cell(str(each.folder)), text_cell(each.reason))) for each in unread)
    return Table(
        name="not-read",
        title="Folders that no table counts",
        note="Finished and readable folders are counted once each.",
        columns=("folder", "reason"),
        rows=rows,
    )
