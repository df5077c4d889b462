"""hebbseg grid: all runs of a recipe."""

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hebbseg.cli.options import output_folder, show_facts
from hebbseg.errors import HebbsegError, did_you_mean

if TYPE_CHECKING:
    from hebbseg.experiments.grid import GridRun
    from hebbseg.experiments.recipe import Recipe

WHERE = "Where it is computed"


def grid(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="Which runs: see recipes/.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="OUT", help="Folder of all runs. [dim]\\[runs/<recipe's name>][/]"),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME", help="Only this data set of the recipe; may be repeated. [dim]\\[all][/]"),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="REGEX", help="Only arms whose name has this in it, as in 'Hebb|Sup'."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Start nothing: how many runs, how many are done, about how long it takes."),
    ] = False,
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root",
            metavar="FOLDER",
            help="Where the data sets are. [dim]\\[HEBBSEG_DATA, else the recipe's folder, else here][/]",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="Runs at a time. [dim]\\[1; Ray: what fits][/]", rich_help_panel=WHERE),
    ] = None,
    executor: Annotated[
        str,
        typer.Option("--executor", metavar="local|ray", help="Processes on this machine, or Ray.", rich_help_panel=WHERE),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT|auto",
            help="Ray: a running cluster; else a new one, here.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    cpus_per_run: Annotated[
        float, typer.Option("--cpus-per-run", metavar="N", help="Ray: cores kept for a run.", rich_help_panel=WHERE)
    ] = 1,
    gpus_per_run: Annotated[
        float, typer.Option("--gpus-per-run", metavar="N", help="Ray: GPUs (or a share of one).", rich_help_panel=WHERE)
    ] = 0,
) -> None:
    """Run an experiment: data sets × label regimes × seeds or folds × methods, as a recipe lists them.

    \b
    Examples:
      hebbseg grid recipes/phantom-small.toml --jobs 2
      hebbseg grid recipes/benchmark-small.toml --data glas --dry-run
      hebbseg grid recipes/benchmark-paper.toml --data glas --data ph2 --executor ray --address auto --gpus-per-run 1
      hebbseg report runs/benchmark-small -o report.html

    The same command again goes on where it was stopped: what is done is skipped, what was cut is resumed, what failed is
    tried again. Stage 1 is done once for all runs that share it. Exit code 1 if some run failed.
    """
    from hebbseg.cli.grid_board import Board
    from hebbseg.experiments.data_root import data_roots
    from hebbseg.experiments.executors.executor import EXECUTORS, make_executor
    from hebbseg.experiments.grid import plan
    from hebbseg.experiments.recipe import load_recipe
    from hebbseg.experiments.scheduler import run_tasks, tasks_of
    from hebbseg.training.interrupt import Interrupted

    if executor not in EXECUTORS:
        raise HebbsegError(f"--executor {executor!r} is unknown. {did_you_mean(executor, EXECUTORS)}")
    described = load_recipe(recipe)
    runs = plan(described.with_data(data or ()), data_roots(data_root, recipe))
    folder = output_folder(out or Path("runs") / described.name, "").absolute()
    chosen = _chosen(runs, only)
    tasks = tasks_of(chosen, folder)
    if dry_run:
        from hebbseg.experiments.cost import describe_plan

        show_facts(describe_plan(tasks, jobs or 1))
        return
    workers = make_executor(executor, jobs=jobs, address=address, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run)
    _copy_recipe(recipe, folder)  # now that nothing can be wrong any more: reports go by it
    _warn_of_strangers(described, folder)
    try:
        result = run_tasks(tasks, workers, Board)
    except Interrupted as stop:
        raise Interrupted(f"{stop} The same command goes on from here:\n  {_command()}") from None
    facts = [
        ("done", f"{result.before + result.now} tasks, {result.before} of them before"),
        ("runs", str(folder / "runs")),
    ]
    for task, outcome in result.failed.values():
        facts.append(("failed", f"{task.id}: {outcome.message}\n        log: {task.log}"))
    facts.append(("next", shlex.join(["hebbseg", "report", str(out or Path("runs") / described.name)])))
    if result.failed:
        facts.append(("again", f"{_command()}   tries the {len(result.failed)} that failed once more"))
    show_facts(facts)
    if result.failed:
        raise typer.Exit(1)


def _chosen(runs: "list[GridRun]", only: str | None) -> "list[GridRun]":
    if only is None:
        return runs
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise HebbsegError(f"--only {only!r} is not a regular expression ({error}).") from None
    chosen = [run for run in runs if pattern.search(run.note["arm"])]
    if not chosen:
        names = sorted({run.note["arm"] for run in runs})
        raise HebbsegError(f"--only {only!r} is in no arm's name. {did_you_mean(only, names)}")
    return chosen


def _copy_recipe(recipe: Path, folder: Path) -> None:
    from hebbseg.atomic_files import replacing

    with replacing(folder / "recipe.toml") as temporary:
        shutil.copyfile(recipe, temporary)


def _warn_of_strangers(recipe: "Recipe", folder: Path) -> None:
    """Says which run folders are not of this recipe: it was changed, or another one was run here."""
    from hebbseg.experiments.grid import notes_of

    known = notes_of(recipe) if (folder / "runs").is_dir() else {}
    strangers = sorted(path.name for path in (folder / "runs").glob("*") if path.name not in known)
    if strangers:
        typer.echo(
            f"note: {folder / 'runs'} holds {len(strangers)} runs that are not of this recipe as it is now (first: "
            f"{strangers[0]}). They are kept, and a report of {folder} leaves them out.",
            err=True,
        )


def _command() -> str:
    return shlex.join(["hebbseg", *sys.argv[1:]])
