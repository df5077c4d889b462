"""hebbseg demo: built-in images, both stages, a page to look at."""

from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import seconds, show_facts


def demo(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="A new folder. [dim]\\[demo, demo-2, …][/]")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", help="How many; default: as many as the time allows.")
    ] = None,
    time_budget: Annotated[
        str, typer.Option("--time-budget", metavar="2m", help="About how long it may take; at least one seed is run.")
    ] = "2m",
) -> None:
    """See it work in two minutes: built-in images, four masks, Hebbian against random weights, and a page of pictures.

    Nothing is downloaded. The numbers are printed as they come out; few seeds prove little, and the table says how many.
    """
    budget = seconds(time_budget)
    from hebbseg.cli.progress import make_reporter
    from hebbseg.experiments.demo import conclusion, free_folder, run_demo, table_rows
    from hebbseg.reporting.demo_page import write_report
    from hebbseg.training.interrupt import Interrupted

    folder = out or free_folder("demo")
    try:
        with make_reporter() as reporter:
            result = run_demo(folder, seeds=seeds, time_budget_s=budget, reporter=reporter)
    except Interrupted:
        raise Interrupted(f"Stopped. {folder} is incomplete; `hebbseg demo` begins another one.") from None
    report = write_report(result)
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=f"Dice (%) on {result.test_cases} test images", title_justify="left")
    for heading in ("first weights", "mean", "difference, 90 % interval", "each seed"):
        table.add_column(heading, justify="left" if heading == "first weights" else "right")
    for row in table_rows(result):
        table.add_row(*row)
    Console().print(table)
    typer.echo(conclusion(result) + "\n")
    show_facts([("page", str(report)), ("next", "hebbseg check my_data/, then hebbseg train my_data/ -o run1")])
