"""hebbseg demo: a small experiment on synthetic images, and its report."""

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
REPORT_S = 10.0  # part of the time budget reserved for the report


def demo(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="New output folder. [dim]\\[demo, demo-2, …][/]")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", min=1, max=MOST_SEEDS, help="Number of random seeds. [dim]\\[as time allows][/]"),
    ] = None,
    time_budget: Annotated[
        str, typer.Option("--time-budget", metavar="90s|2m", help="Approximate time limit; one seed always runs.")
    ] = "2m",
) -> None:
    """Compare Hebbian pre-training with random weights on synthetic images with four masks, in two minutes.

    Downloads nothing. Writes the runs and report.html to the output folder.
    """
    start, budget = time.monotonic(), seconds(time_budget)
    folder = out or free_folder("demo")
    if folder.exists():
        raise HebbsegError(f"-o {folder}: the folder exists already. Choose another one; nothing was overwritten.")
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
    """Return the first of ``demo``, ``demo-2``, ``demo-3``, … that does not exist."""
    path = Path(name)
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(candidate for candidate in chain([path], numbered) if not candidate.exists())


def seeds_within(budget_s: float, elapsed_s: float, done: int) -> int:
    """Return the number of seeds that fit the time budget if ``done`` seeds took ``elapsed_s``: 1 to `MOST_SEEDS`."""
    return min(MOST_SEEDS, int((budget_s - REPORT_S) * done / elapsed_s)) if done else 1


def run_seeds(runs: "Sequence[GridRun]", seeds: range, folder: Path) -> None:
    """Run all runs of these seeds that are not done yet."""
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
        raise Interrupted(f"Stopped. {folder} is incomplete. To start again: hebbseg demo") from None
    for task, outcome in result.failed.values():
        raise HebbsegError(f"{task.id} failed: {outcome.message}\nlog: {task.log}")


def differences(comparison: "Comparison") -> "dict[str, Estimate]":
    """Return {arm: Dice minus Dice of the baseline, paired by seed}."""
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
    """Return what follows from the 90 % interval of the difference."""
    if difference.half is None:
        finding = "Fewer than three seeds have no interval, so the two cannot be compared."
    elif difference.low > 0:
        finding = "The 90 % interval of the difference lies above 0."
    elif difference.high < 0:
        finding = "The 90 % interval of the difference lies below 0: Hebbian pre-training lowers the Dice here."
    else:
        finding = "The 90 % interval of the difference includes 0: no detectable effect in these runs."
    return (
        f"{finding} n = {difference.n} is small, the network is small and the images are synthetic: this demonstrates the "
        "workflow, not the performance of hebbseg."
    )
