"""hebbseg demo: the recipe demo.toml on generated images, and its report."""

import shutil
import time
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hebbseg.cli.options import seconds, show_facts
from hebbseg.errors import HebbsegError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hebbseg.experiments.grid import GridRun
    from hebbseg.reporting.comparison import Comparison
    from hebbseg.reporting.statistics import Estimate

RECIPE = Path(__file__).parents[1] / "experiments" / "demo.toml"
OURS = "Hebbian pre-training"
MOST_SEEDS = 8  # as many as the recipe has
MOST_JOBS = 4
REPORT_S = 10.0  # of the time budget, kept for the report


def demo(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="A new folder. [dim]\\[demo, demo-2, …][/]")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", min=1, max=MOST_SEEDS, help="Random seeds; default: as many as the time allows."),
    ] = None,
    time_budget: Annotated[
        str, typer.Option("--time-budget", metavar="2m", help="Approximate time limit; at least one seed is run.")
    ] = "2m",
) -> None:
    """See it work in two minutes: generated images, four masks, Hebbian pre-training against random weights, a report.

    Nothing is downloaded. The runs are those of a small recipe; the table says how many seeds were run.
    """
    start, budget = time.monotonic(), seconds(time_budget)
    folder = out or free_folder("demo")
    if folder.exists():
        raise HebbsegError(f"{folder} exists already. Choose another folder; nothing was overwritten.")
    from hebbseg.experiments.grid import plan
    from hebbseg.experiments.recipe import load_recipe

    runs = plan(load_recipe(RECIPE), [])
    folder.mkdir(parents=True)
    shutil.copyfile(RECIPE, folder / "recipe.toml")
    done = 0
    while (wanted := seeds or seeds_within(budget, time.monotonic() - start, done)) > done:
        run_seeds(runs, range(wanted), folder)
        done = wanted

    from hebbseg.reporting.comparison import comparisons
    from hebbseg.reporting.html import write_report

    report = write_report([folder], folder / "report.html")
    comparison = comparisons(report.results.runs)[0]
    show_table(comparison)
    typer.echo(conclusion(differences(comparison)[OURS]) + "\n")
    show_facts([("report", str(report.page)), ("next", "hebbseg check my_data/, then hebbseg train my_data/ -o run1")])


def free_folder(name: str | Path) -> Path:
    """``demo``, or ``demo-2``, ``demo-3`` … if there is one already."""
    path = Path(name)
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(candidate for candidate in chain([path], numbered) if not candidate.exists())


def seeds_within(budget_s: float, elapsed_s: float, done: int) -> int:
    """How many seeds fit into the time budget if those ``done`` took ``elapsed_s``: at least 1, at most `MOST_SEEDS`."""
    return min(MOST_SEEDS, int((budget_s - REPORT_S) * done / elapsed_s)) if done else 1


def run_seeds(runs: "Sequence[GridRun]", seeds: range, folder: Path) -> None:
    """Does all runs of these seeds that are not done yet."""
    from hebbseg.cli.grid_board import Board
    from hebbseg.experiments.executors.executor import cores, threads_per_job
    from hebbseg.experiments.executors.local import LocalExecutor
    from hebbseg.experiments.scheduler import run_tasks, tasks_of
    from hebbseg.training.interrupt import Interrupted

    tasks = tasks_of([run for run in runs if run.settings.seed in seeds], folder.absolute())
    jobs = min(cores(), MOST_JOBS)
    try:
        result = run_tasks(tasks, LocalExecutor(jobs=jobs, threads=threads_per_job(jobs)), Board)
    except Interrupted:
        raise Interrupted(f"Stopped. {folder} is incomplete; `hebbseg demo` starts a new one.") from None
    for task, outcome in result.failed.values():
        raise HebbsegError(f"{task.id} failed: {outcome.message}\nlog: {task.log}")


def differences(comparison: "Comparison") -> "dict[str, Estimate]":
    """{arm: its Dice minus that of the baseline, paired by seed}."""
    found = {
        label: comparison.difference(label, baseline, comparison.regimes[0])
        for label, baseline in comparison.against_baseline()
    }
    return {label: difference.estimate for label, difference in found.items() if difference is not None}


def show_table(comparison: "Comparison") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from hebbseg.reporting.tables.table import EMPTY, estimate_cell

    cases = comparison.runs[0].cases
    table = Table(box=box.SIMPLE, title=f"Dice (%) on {cases} test images, mean ± 90 % interval", title_justify="left")
    table.add_column("weight initialization")
    table.add_column("Dice", justify="right")
    table.add_column(f"minus {comparison.baseline}", justify="right")
    difference = differences(comparison)
    for label in comparison.labels:
        dice = estimate_cell(comparison.estimate(label, comparison.regimes[0], "dice"), scale=100)
        gain = estimate_cell(difference[label], scale=100, sign=True) if label in difference else EMPTY
        table.add_row(label, *(f"{cell.text} {cell.detail}" for cell in (dice, gain)))
    Console().print(table)


def conclusion(difference: "Estimate") -> str:
    """What the numbers allow to say, and what not."""
    if difference.half is None:
        said = "One seed gives no interval, so this says nothing about which is better."
    elif difference.low > 0:
        said = "The 90 % interval of the difference lies above 0."
    elif difference.high < 0:
        said = "The 90 % interval of the difference lies below 0: Hebbian pre-training lowers the Dice here."
    else:
        said = "The 90 % interval of the difference includes 0: no detectable effect in these runs."
    return (
        f"{said} n = {difference.n} is small, the network is small and the images are generated: this shows how hebbseg "
        "works, not how well it performs."
    )
