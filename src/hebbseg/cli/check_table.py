"""The report of ``hebbseg check`` for the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from hebbseg.data.progress import counted

_MOST_SHOWN = 4
_MOST_FILES = 3  # per remedy
_MOST_UNUSED = 12


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a temporary progress bar on stderr."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda: bar.advance(task)


def show(report: dict[str, Any], console: Console | None = None) -> None:
    console = console or Console()
    facts = Table(box=box.SIMPLE, show_header=False, title=f"[bold]{escape(report['data'])}[/]", title_justify="left")
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for label, value in _facts(report):
        facts.add_row(label, escape(value))
    console.print(facts)
    if report["classes"]:
        classes = Table(box=box.SIMPLE, title="classes", title_justify="left")
        share = "share of annotated pixels" if report["partly_annotated"] else "share of pixels"
        for column in ("index", "value in masks", "name", share):
            classes.add_column(column, justify="left" if column == "name" else "right")
        for c in report["classes"]:
            share = "–" if c["share"] is None else f"{100 * c['share']:.2f} %"
            classes.add_row(str(c["index"]), str(c["value"]), escape(c["name"]), share)
        console.print(classes)
    for note in report["notes"]:
        console.print(f"[dim]note:[/] {escape(note)}")
    _show_unused(report["unused"], console)
    for problems in _by_advice(report["problems"]):
        _show_problems(problems, console)
    if n := len(report["problems"]):
        fatal = sum(problem["fatal"] for problem in report["problems"])
        console.print(f"\n{n} problem(s), {fatal} of them must be fixed before training.")
    else:
        console.print("[green]No problems.[/]")
    if "sheet" in report:
        console.print(f"Contact sheet: {escape(report['sheet'])}", soft_wrap=True)


def _show_unused(unused: list[dict[str, Any]], console: Console) -> None:
    if unused:
        console.print("[dim]not used:[/]")
    for each in unused[:_MOST_UNUSED]:
        files = "" if each["files"] == 1 else f" ({each['files']} files)"
        remedy = f"; {each['remedy']}" if each["remedy"] else ""
        console.print(f"  [bold]{escape(each['place'])}[/]{files}: {escape(each['guess'] + remedy)}", soft_wrap=True)
    if (rest := len(unused) - _MOST_UNUSED) > 0:
        console.print(f"  and files in {rest} other places (--json lists all)")


def _by_advice(problems: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the problems with those of the same remedy together, in order of first appearance."""
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for problem in problems:
        groups.setdefault((problem["remedy"], problem["fatal"]), []).append(problem)
    return list(groups.values())


def _show_problems(problems: list[dict[str, Any]], console: Console) -> None:
    """Print problems with the same remedy: a few files, their number, and the remedy once."""
    color = "red" if problems[0]["fatal"] else "yellow"
    for problem in problems[:_MOST_FILES]:
        console.print(f"[{color}]●[/] [bold]{escape(problem['file'])}[/]", soft_wrap=True)
        console.print(f"  {escape(problem['finding'])}", soft_wrap=True)
    if (rest := len(problems) - _MOST_FILES) > 0:
        console.print(f"  and {rest} more with the same advice (--json lists all)")
    if problems[0]["remedy"]:
        console.print(f"  [dim]→ {escape(problems[0]['remedy'])}[/]", soft_wrap=True)


def _facts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    left_out = f", {report['left_out']} left out" if report["left_out"] else ""
    yield "cases", f"{report['cases']}{left_out}"
    yield "with mask", str(report["with_mask"])
    yield "without mask", str(report["without_mask"])
    if report["partly_annotated"]:
        yield "annotated", f"{100 * report['annotated']:.3g} % of the pixels of all masks ({report['partly_annotated']} partly)"
    for name, folders in (("images in", report["image_folders"]), ("masks in", report["mask_folders"])):
        if folders and list(folders) != ["./"]:
            yield name, _some(folders)
    if report["spatial_dims"] is not None:
        yield "kind", f"{report['spatial_dims']}D, {report['channels']} channel(s)"
    yield "sizes", _some(report["sizes"])
    if report["spacings_mm"]:
        yield "spacings (mm)", _some(report["spacings_mm"])
    yield "number types", _some(report["number_types"])
    if report["groups"]:
        sizes = sorted(report["group_sizes"].values())
        yield "groups", f"{report['groups']} (of {sizes[0]} to {counted(sizes[-1], 'case')})"
    else:
        yield "groups", "none known; if a patient has several images, use --group"
    if report["subsets"]:
        yield "published split", ", ".join(f"{name} {n}" for name, n in report["subsets"].items())


def _some(counts: dict[str, int]) -> str:
    """``"256×256 (80), 512×512 (3)"``, most frequent first; the rest is counted."""
    shown = ", ".join(f"{value} ({n})" for value, n in list(counts.items())[:_MOST_SHOWN])
    rest = len(counts) - _MOST_SHOWN
    return shown + (f" and {rest} others" if rest > 0 else "")
