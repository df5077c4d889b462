"""hebbseg report: run folders as one page."""

from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import show_facts


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS…", help="Run folders, or folders that hold some at any depth.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page.")] = Path("report.html"),
    tables: Annotated[
        Path | None,
        typer.Option("--tables", metavar="FOLDER", help="Also write every table as CSV and LaTeX here, and runs.csv."),
    ] = None,
    pictures: Annotated[
        bool,
        typer.Option("--pictures/--no-pictures", help="Predictions and filters; they need the runs' models and the data."),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace a page and tables that are there already.")] = False,
) -> None:
    """Turn RUNS into tables and figures: one page that needs nothing else.

    \b
    Examples:
      hebbseg report runs/benchmark-small -o benchmark.html
      hebbseg report runs/ -o all.html --tables tables/

    Means have 90 % intervals, comparisons are paired by fold and seed, and a folder that is unfinished or cannot be read
    is listed, not counted.
    """
    from hebbseg.atomic_files import refuse_unwritable
    from hebbseg.reporting.html import write_report

    for folder in (out.parent, *([tables] if tables else [])):
        refuse_unwritable(folder)
    done = write_report(runs, out, tables=tables, pictures=pictures, force=force)
    facts = [("page", str(done.page)), ("runs", str(len(done.results.runs)))]
    if done.tables:
        facts.append(("tables", f"{len(done.tables)} files in {tables}"))
    if done.results.strangers:
        facts.append(("other runs", f"{done.results.strangers} left out: not of the recipe beside them as it is now"))
    if done.results.unread:
        first = done.results.unread[0]
        facts.append(("left out", f"{len(done.results.unread)} folders, first {first.folder}: {first.reason}"))
    show_facts(facts)
