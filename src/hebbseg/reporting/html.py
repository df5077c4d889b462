"""Self-contained HTML report of run folders, with tables as CSV and LaTeX."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hebbseg import __version__
from hebbseg.atomic_files import refuse_unwritable, write_text
from hebbseg.errors import HebbsegError
from hebbseg.reporting.comparison import comparisons
from hebbseg.reporting.pages import render
from hebbseg.reporting.published import CITATION
from hebbseg.reporting.results import Results, RunResult, read_results
from hebbseg.reporting.sections import (
    Section,
    comparison_section,
    dataset_sections,
    gain_sections,
    headlines,
    rank_sections,
    runs_table,
    unread_table,
)
from hebbseg.reporting.tables.table import Table, as_csv, as_latex
from hebbseg.reporting.tables.tidy import tidy_csv

PREVIEW = "all.tex"
RUNS = "runs.csv"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results read and the files written."""

    page: Path
    tables: tuple[Path, ...]
    results: Results


def write_report(
    roots: Sequence[str | Path],
    page: str | Path,
    *,
    tables: str | Path | None = None,
    pictures: bool = True,
    force: bool = False,
) -> Report:
    """Read every run at or below ``roots`` and write ``page``.

    Args:
        roots: run folders, or folders that contain them.
        page: self-contained HTML file.
        tables: folder for each table as CSV and LaTeX, `PREVIEW` (a LaTeX document with all of them) and `RUNS` (one row
            per run).
        pictures: whether to show predictions and filters, which needs the models and the data.
        force: overwrite existing files.
    """
    page, folder = Path(page), None if tables is None else Path(tables)
    _check_outputs(page, folder, force=force)
    results = read_results(roots)
    group = comparisons(results.runs)
    compared = [comparison_section(comparison, pictures=pictures) for comparison in group]
    across = [*dataset_sections(group, pictures=pictures), *rank_sections(group), *gain_sections(group)]
    sections = _with_unique_names([*across, *compared])
    all_tables = [part.table for section in sections for part in section.parts if part.table is not None]
    written = () if folder is None else _write_tables(all_tables, results.runs, folder)
    html = render(
        "report.html.jinja",
        version=__version__,
        roots=[str(root) for root in roots],
        results=results,
        sections=sections,
        headlines=headlines(group),
        runs=runs_table(results.runs),
        unread=unread_table(results.unread),
        versions=_versions(results.runs),
        citation=CITATION,
    )
    write_text(page, html)
    return Report(page=page, tables=written, results=results)


def write_report_of_run(
    run: Path, page: Path | None = None, *, tables: Path | None = None, force: bool = False
) -> tuple[Path, tuple[Path, ...]]:
    """Write the page of a single run and return its path and those of the tables; see `write_run_page`.

    Args:
        page: default: the page in the folder of the run, which is replaced.
        tables, force: as in `write_report`.
    """
    from hebbseg.reporting.run_page.page import PAGE, write_run_page  # imports torch

    for folder in filter(None, (run if page is None else page.parent, tables)):
        refuse_unwritable(folder)
    _check_outputs(page or run / PAGE, tables, force=force or page is None)
    written, shown = write_run_page(run, page)
    return written, () if tables is None else _write_tables(shown, (), tables)


def _check_outputs(page: Path, folder: Path | None, *, force: bool) -> None:
    if page.is_dir():
        raise HebbsegError(f"-o {page} is a folder. Give a file name, as in -o {page / 'report.html'}.")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise HebbsegError(f"--tables {folder} is a file. Give a folder; it is created if it does not exist.")
    if force:
        return
    if page.exists():
        raise HebbsegError(f"{page} already exists. Choose another name with -o, or overwrite it with --force.")
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise HebbsegError(f"--tables {folder} is not empty. Choose another folder, or overwrite its tables with --force.")


def _with_unique_names(sections: Sequence[Section]) -> list[Section]:
    """Make the file names of tables and the anchors of sections unique."""
    taken: Counter[str] = Counter({"runs": 1})

    def unique(name: str) -> str:
        taken[name] += 1
        return name if taken[name] == 1 else unique(f"{name}-{taken[name]}")

    result = []
    for section in sections:
        parts = tuple(
            part if part.table is None else replace(part, table=replace(part.table, name=unique(part.table.name)))
            for part in section.parts
        )
        result.append(replace(section, anchor=unique(section.anchor), parts=parts))
    return result


def _write_tables(tables: Sequence[Table], runs: Sequence[RunResult], folder: Path) -> tuple[Path, ...]:
    written = []
    if runs:
        write_text(folder / RUNS, tidy_csv(runs))
        written.append(folder / RUNS)
    for table in tables:
        for suffix, text in ((".csv", as_csv(table)), (".tex", as_latex(table))):
            written.append(folder / f"{table.name}{suffix}")
            write_text(written[-1], text)
    inputs = "".join(rf"\input{{{table.name}.tex}}" + "\n\\clearpage\n" for table in tables)
    preamble = (
        "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs,xcolor}\n"
    )
    margins = "\\usepackage[landscape,margin=1cm]{geometry}\n"
    write_text(folder / PREVIEW, f"{preamble}{margins}\\begin{{document}}\n{inputs}\\end{{document}}\n")
    return (*written, folder / PREVIEW)


def _versions(runs: Sequence[RunResult]) -> list[tuple[str, int]]:
    """Return each combination of versions and its number of runs."""
    counted = Counter(", ".join(f"{name} {version}" for name, version in run.versions.items()) for run in runs)
    return counted.most_common()
