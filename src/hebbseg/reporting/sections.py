"""Sections of the report: one per recipe and dataset."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import INTERVAL_FROM
from hebbseg.reporting.budgets import budget_remark
from hebbseg.reporting.charts import (
    Picture,
    efficiency_curves,
    learning_curves,
    temperature_curve,
    variant_bars,
)
from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.gain_figure import gain_figure
from hebbseg.reporting.references import References
from hebbseg.reporting.results import RunResult, Unread
from hebbseg.reporting.splits_used import folds_text
from hebbseg.reporting.tables.ablations import diagnostics_table, probe_difference_table, probe_table, temperature_table
from hebbseg.reporting.tables.comparisons import (
    efficiencies,
    efficiency_table,
    gain_table,
    metric_table,
    paired_table,
    rank_table,
)
from hebbseg.reporting.tables.datasets import datasets_table
from hebbseg.reporting.tables.paper import regime_tables
from hebbseg.reporting.tables.table import Cell, Row, Table, file_name, number_cell, text_cell

Item = Table | Picture | str | None


@dataclass(frozen=True, kw_only=True)
class Part:
    """A table, a picture, a gallery or a remark; if ``folded``, hidden until opened.

    The pictures of a gallery are side by side in up to three ``columns``, as far as the window is wide enough.
    """

    table: Table | None = None
    picture: Picture | None = None
    gallery: tuple[Picture, ...] = ()
    columns: int = 1
    remark: str = ""
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    anchor: str
    title: str
    text: str
    parts: tuple[Part, ...]


def comparison_section(comparison: Comparison, *, pictures: bool) -> Section:
    """Return the section of one recipe on one dataset."""
    name = comparison.title or comparison.recipe or "Runs without a recipe"
    pairs = {run.pair for run in comparison.runs}
    cases = sorted({run.cases for run in comparison.runs})
    tested = f"{cases[0]}" if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    counts = ((len(comparison.runs), "run"), (len(comparison.labels), "arm"), (len(pairs), "repetition"))
    counted = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
    return Section(
        anchor=file_name("s", comparison.recipe, comparison.kind, comparison.dataset),
        title=f"{name} · {comparison.dataset}",
        text=f"{counted} (fold and seed); {tested} test cases per run. {folds_text(comparison.runs)}",
        parts=tuple(_comparison_parts(comparison, pictures=pictures)),
    )


def _comparison_parts(comparison: Comparison, *, pictures: bool) -> list[Part]:
    if comparison.kind == "probe":
        tables = _parts(probe_table(comparison), probe_difference_table(comparison))
        return [*tables, *_stage1_parts(comparison, pictures=False)]
    layout = LAYOUTS.get(comparison.table, _sota_items)
    remark = budget_remark(comparison)
    parts = _parts(remark or None, *layout(comparison))
    parts += _parts(paired_table(comparison), learning_curves(comparison), folded=comparison.table in LAYOUTS)
    if comparison.table in LAYOUTS:
        parts += _parts(*regime_tables(comparison), folded=True)
    if pictures:
        parts += _qualitative_parts(comparison)
    return [*parts, *_stage1_parts(comparison, pictures=pictures)]


def _sota_items(comparison: Comparison) -> list[Item]:
    overview = [metric_table(comparison, "dice")] if len(comparison.regimes) > 1 else []
    gains = [gain_table(comparison)] if comparison.gains() else []
    efficiency = [efficiency_curves(comparison), efficiency_table(comparison)]
    return [*regime_tables(comparison), *overview, *efficiency, *gains]


def _variant_items(comparison: Comparison) -> list[Item]:
    pooled = metric_table(comparison, "dice_pooled", references=References(comparison, "variants"))
    return [metric_table(comparison, "dice"), pooled, variant_bars(comparison)]


# The key `table` of a recipe → the first items of its section; every other name, as "sota": arms by label regime.
LAYOUTS: dict[str, Callable[[Comparison], list[Item]]] = {
    "gain": lambda runs: [gain_table(runs), metric_table(runs, "dice")],
    "temperature": lambda runs: [temperature_table(runs), temperature_curve(runs)],
    "variants": _variant_items,
}


def _parts(*items: Item, folded: bool = False) -> list[Part]:
    """Return the items that are not empty as parts."""
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
    from hebbseg.reporting.qualitative import qualitative  # imports torch

    try:
        return _parts(*qualitative(comparison))
    except (HebbsegError, OSError, ValueError, RuntimeError) as error:  # the report is still useful
        return _parts(f"Predictions not shown: {error}")


def _stage1_parts(comparison: Comparison, *, pictures: bool) -> list[Part]:
    """Return filters and diagnostics of the first run with stage-1 diagnostics."""
    run = next((run for run in comparison.runs if (run.folder / "pretrain.json").is_file()), None)
    if run is None:
        return []
    parts: list[Part] = []
    if pictures:
        from hebbseg.reporting.qualitative import filters_picture

        try:
            parts += _parts(filters_picture(run))
        except HebbsegError as error:
            parts += _parts(f"Filters not shown: {error}")
    try:
        parts += _parts(diagnostics_table(run.folder, f"{comparison.recipe}-{comparison.dataset}"), folded=True)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        parts += _parts(f"Stage-1 diagnostics not shown: {run.folder / 'pretrain.json'} is not readable ({error}).")
    return parts


def dataset_sections(group: Sequence[Comparison], *, pictures: bool) -> list[Section]:
    """Return the table of data sets; ``pictures``: patients and image sizes are read from the data."""
    from hebbseg.reporting.data_facts import patients_and_size  # imports torch

    table = datasets_table(group, patients_and_size if pictures else lambda run: (None, ""))
    text = "Data of the runs in this report, and how they were split."
    return [Section(anchor="s-data", title="Data sets", text=text, parts=tuple(_parts(table)))] if group else []


def gain_sections(group: Sequence[Comparison]) -> list[Section]:
    """Return the gain figure of each recipe with arms that have a ``gain_over``: all its data sets together."""
    by_recipe: dict[str, list[Comparison]] = {}
    for comparison in group:
        if comparison.kind == "train" and comparison.table != "temperature":
            by_recipe.setdefault(comparison.recipe, []).append(comparison)
    sections = []
    for recipe, members in by_recipe.items():
        parts = _parts(gain_figure(members))
        title = f"Gain from weight initialization · {members[0].title or recipe or 'Runs without a recipe'}"
        text = "Each method from random weights, and the change with the weight initialization of the arm."
        anchor = file_name("s", "gain", recipe)
        sections += [Section(anchor=anchor, title=title, text=text, parts=tuple(parts))] if parts else []
    return sections


def rank_sections(group: Sequence[Comparison]) -> list[Section]:
    """Return mean ranks over all datasets, of runs with and without a recipe; none for fewer than two common arms."""
    by_regime = [c for c in group if c.kind == "train" and c.table not in LAYOUTS]
    parts: list[Part] = []
    for chosen in ([c for c in by_regime if c.recipe], [c for c in by_regime if not c.recipe]):
        parts += _parts(rank_table(chosen, "all")) if chosen else []
    text = "Mean rank of each arm; every dataset, label regime, fold and seed has equal weight."
    return [Section(anchor="s-rank", title="Ranks", text=text, parts=tuple(parts))] if parts else []


def headlines(group: Sequence[Comparison]) -> list[str]:
    """Return a sentence on label efficiency for each dataset and arm with enough pairs for an interval.

    The arms are those with a ``gain_over`` in the recipe, fixed before any result is known, or else all arms: none is
    selected by its result.
    """
    sentences = []
    for comparison in group:
        if comparison.kind == "probe" or comparison.table in LAYOUTS:
            continue
        named = [label for label, _ in comparison.gains()]
        for label in named or [label for label, _ in comparison.against_baseline()]:
            worth = [found for name, found in efficiencies(comparison) if name == label and found.n >= INTERVAL_FROM]
            if worth:
                needs = (f"{each.percent_text(each.needed)} {each.interval_text(each.percent_text)}".strip() for each in worth)
                regimes = "; ".join(f"with {each.percent:g} %: {need}" for each, need in zip(worth, needs, strict=True))
                sentences.append(
                    f"{comparison.dataset}: labels {comparison.baseline} needs to reach the Dice of {label} {regimes}. "
                    f"90 % intervals, n = {min(each.n for each in worth)}."
                )
    return sentences


def runs_table(runs: Sequence[RunResult]) -> Table:
    """Return the table of all runs."""
    rows = [
        Row(
            cells=(
                text_cell(str(run.folder)),
                text_cell(run.recipe or "–"),
                text_cell(run.dataset),
                text_cell(run.arm),
                text_cell(run.labelled),
                text_cell(", ".join(f"{name} {value}" for name, value in run.axes.items())),
                _integer(run.fold),
                _integer(run.seed),
                number_cell(100 * run.metrics["dice"] if "dice" in run.metrics else None, 1),
                _integer(run.cases),
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
        note="Runs with the same split hash have the same labelled, unlabelled, validation and test cases.",
        columns=("folder", "recipe", "dataset", "arm", "labelled", "axes", "fold", "seed", "Dice (%)", "test cases",
                 "seconds", "split", "command"),
        rows=tuple(rows),
    )  # fmt: skip


def _integer(value: int | None) -> Cell:
    return number_cell(None if value is None else float(value), 0)


def unread_table(unread: Sequence[Unread]) -> Table:
    rows = tuple(Row(cells=(text_cell(str(each.folder)), text_cell(each.reason))) for each in unread)
    return Table(
        name="not-read",
        title="Excluded folders",
        note="The tables include each finished, readable run once.",
        columns=("folder", "reason"),
        rows=rows,
    )
