"""hebbseg report: an HTML page of tables and figures from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import show_facts
from hebbseg.data.progress import counted


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Run folders, or folders that contain them at any depth.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="HTML file to write. [dim]\\[report.html; for a single run RUN/report.html][/]"
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option("--tables", metavar="FOLDER", help="Also write the tables as CSV and LaTeX, and runs.csv."),
    ] = None,
    pictures: Annotated[
        bool,
        typer.Option("--pictures/--no-pictures", help="Show predictions and filters; needs the models and the data."),
    ] = True,
    force: Annotated[bool, typer.Option("--overwrite", "--force", help="Replace existing files.")] = False,
) -> None:
    """Write a self-contained HTML page with the tables and figures of RUNS.

    \b
    Examples:
      hebbseg report run1
      hebbseg report runs/benchmark -o benchmark.html
      hebbseg report runs/ -o all.html --tables tables/

    Means have 90 % confidence intervals, and comparisons are paired by fold and seed. Unfinished and unreadable runs are
    listed, but not included. A single run folder has a page of its own, the one that `hebbseg train` writes: it is refreshed.
    """
    from hebbseg.atomic_files import refuse_unwritable
    from hebbseg.reporting.html import write_report, write_report_of_run
    from hebbseg.reporting.run_page.facts import is_training_run

    if len(runs) == 1 and is_training_run(runs[0]):
        page, written = write_report_of_run(runs[0], out, tables=tables, force=force)
        show_facts([("page", str(page)), *([("tables", f"{counted(len(written), 'file')} in {tables}")] if written else [])])
        return
    out = out or Path("report.html")
    for folder in (out.parent, *([tables] if tables else [])):
        refuse_unwritable(folder)
    done = write_report(runs, out, tables=tables, pictures=pictures, force=force)
    facts = [("page", str(done.page)), ("runs", str(len(done.results.runs)))]
    if done.tables:
        facts.append(("tables", f"{counted(len(done.tables), 'file')} in {tables}"))
    if done.results.strangers:
        facts.append(("other runs", f"{done.results.strangers} not included: they do not belong to the current recipe"))
    if done.results.unread:
        first = done.results.unread[0]
        facts.append(("not included", f"{counted(len(done.results.unread), 'folder')}, first {first.folder}: {first.reason}"))
    show_facts(facts)
