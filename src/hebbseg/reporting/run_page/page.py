"""report.html of one run: what was done, how good the result is, and what to try next."""

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hebbseg import __version__
from hebbseg.atomic_files import write_text
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError, explaining, printable
from hebbseg.reporting.charts import Picture
from hebbseg.reporting.pages import render
from hebbseg.reporting.run_page import mask_curve, pictures, sentences, tables
from hebbseg.reporting.run_page.advice import next_steps
from hebbseg.reporting.run_page.facts import REMEDY, RunFacts, read_run
from hebbseg.reporting.sections import Part, Section
from hebbseg.reporting.tables.ablations import diagnostics_table
from hebbseg.reporting.tables.table import Table

PAGE = "report.html"
CURVES = (pictures.validation_curve, pictures.loss_curve, pictures.stage1_curves)
Item = Table | Picture | Part | str | None


def write_run_page(folder: Path, page: Path | None = None) -> tuple[Path, tuple[Table, ...]]:
    """Write the page of the run in ``folder`` and return its path and its tables.

    It is made from the files of the folder; only the numbers of patients and of hidden masks need the data.

    Args:
        page: the file; default: `PAGE` in the folder.
    """
    facts = read_run(folder)
    with written(folder):
        made = _sections(facts)
        html = render(
            "run.html.jinja",
            version=__version__,
            name=facts.name,
            asked=sentences.asked(facts),
            done=sentences.done(facts),
            warnings=sentences.warnings(facts),
            steps=next_steps(facts),
            sections=made,
        )
    page = folder / PAGE if page is None else page
    write_text(page, html)
    return page, tuple(part.table for section in made for part in section.parts if part.table is not None)


def written(part: str | Path) -> AbstractContextManager[None]:
    """Convert errors of making a part of the page: files of the run are valid JSON and tables, but can have any content."""
    return explaining(part, "a file of the run has unexpected content", REMEDY)


def add_run_page(folder: Path) -> str:
    """Write the page of a run that has just ended; return its path, or why there is none: the run is complete without it."""
    try:
        return str(write_run_page(folder)[0])
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        return f"not written ({type(error).__name__}: {error}). Try again with `hebbseg report {shlex.quote(str(folder))}`"


def _sections(facts: RunFacts) -> list[Section]:
    tested = sentences.dice_text(facts) if facts.summary else "There are no test results."
    found = [
        _section("test", "Test results", tested, lambda: [tables.test_table(facts)]),
        _section("cases", "Test cases: worst, median and best", pictures.contour_legend(facts), lambda: _cases(facts)),
        _curve_section(facts),
        _section(
            "training",
            "Training",
            "Loss and validation of stage 2, and diagnostics of stage 1.",
            lambda: [
                _gallery([pictures.validation_curve(facts), pictures.loss_curve(facts), pictures.stage1_curves(facts)], 2)
            ],
        ),
        _section("filters", "Filters", "What stage 1 has learned without masks.", lambda: _filters(facts)),
        _section("split", "Data and split", _split_text(facts), lambda: _split(facts)),
        _section("plan", "Plan", "What follows from the data, and why.", lambda: [tables.plan_table(facts)]),
        _section("settings", "Settings", _settings_text(facts), lambda: [tables.settings_table(facts)]),
        _section("time", "Size, time and provenance", "", lambda: [tables.time_table(facts)]),
    ]
    return [section for section in found if section is not None]


def _section(anchor: str, title: str, text: str, items: Callable[[], list[Item]]) -> Section | None:
    """Return a section, with a remark instead of its content if a file is damaged; None if it is empty."""
    try:
        with written(title):
            parts = tuple(_part(item) for item in items() if item)
    except HebbsegError as error:
        parts = (Part(remark=f"Not shown: {error}"),)
    if not parts and anchor not in ("settings",):
        return None
    return Section(anchor=f"s-{anchor}", title=title, text=text, parts=parts)


def _part(item: Table | Picture | Part | str) -> Part:
    if isinstance(item, Table):
        return Part(table=item, folded=item.name in ("masks", "diagnostics"))
    if isinstance(item, Picture):
        return Part(picture=item)
    return Part(remark=item) if isinstance(item, str) else item


def _cases(facts: RunFacts) -> list[Item]:
    found = pictures.test_cases(facts)
    if not found and facts.summary:
        return ["This run was trained without drawing test cases for this page; figures/test.png shows some."]
    return [_gallery(found, 3 if tables.spatial_dims(facts) == 2 else 1)]


def _gallery(shown: Sequence[Picture | None], columns: int) -> Part | None:
    found = tuple(each for each in shown if each is not None)
    return Part(gallery=found, columns=columns) if found else None


def _curve_section(facts: RunFacts) -> Section | None:
    try:
        points = mask_curve.read_curve(facts)
    except HebbsegError as error:
        return Section(anchor="s-curve", title="Number of masks", text=f"Not shown: {error}", parts=())
    if sum(point.measured for point in points) < 2:
        return None
    items: list[Item] = [mask_curve.curve_picture(points), mask_curve.curve_table(points)]
    return _section("curve", "How many masks would help", mask_curve.curve_sentences(points), lambda: items)


def _filters(facts: RunFacts) -> list[Item]:
    if not facts.layers:
        return []
    items: list[Item] = []
    try:
        items.append(pictures.filters(facts))
    except HebbsegError as error:
        items.append(f"Filters not shown: {error}")
    try:
        items.append(diagnostics_table(facts.folder, ""))
    except (ValueError, TypeError, AttributeError) as error:
        items.append(f"Diagnostics not shown: pretrain.json is not readable ({error}).")
    return items


def _split(facts: RunFacts) -> list[Item]:
    notes: list[Item] = [printable(note) for note in facts.split.provenance.notes]
    missing = f"Groups (patients) are not known: {facts.no_source}" if facts.no_source else None
    return [tables.split_table(facts), *notes, missing, tables.masks_table(facts)]


def _split_text(facts: RunFacts) -> str:
    drawn = facts.split.provenance
    every = [id for ids in tables.roles(facts).values() for id in ids]
    chosen = "at random" if drawn.select == "random" else f"by {printable(drawn.select)}"
    return (
        f"{counted(len(every), 'case')} by the protocol {printable(drawn.protocol)} with seed {drawn.seed}; test set: "
        f"{printable(drawn.test)}; labelled images: {printable(drawn.labelled)} of the training cases with masks, "
        f"chosen {chosen}."
    )


def _settings_text(facts: RunFacts) -> str:
    if tables.changed_settings(facts):
        return "All other settings have their defaults; run.json lists all."
    return "All settings have their defaults; run.json lists them."
