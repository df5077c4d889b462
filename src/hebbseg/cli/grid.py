"""hebbseg grid: the runs of a recipe."""

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hebbseg.cli.options import output_folder, show_facts
from hebbseg.cli.settings_options import HARDWARE
from hebbseg.errors import HebbsegError, did_you_mean

if TYPE_CHECKING:
    from hebbseg.experiments.grid import GridRun
    from hebbseg.experiments.recipe import Recipe


def _hardware(flag: str, metavar: str, text: str, **more: Any) -> Any:
    return typer.Option(flag, metavar=metavar, help=text, rich_help_panel=HARDWARE, **more)


def grid(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE.toml", help="Recipe of the experiment; see recipes/.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="OUT", help="Output folder. [dim]\\[runs/NAME of the recipe][/]")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME", help="Only this data set of the recipe; may be repeated. [dim]\\[all][/]"),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="REGEX", help="Only arms whose name matches, such as 'Hebb|Sup'."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the runs, finished and remaining, and estimate the time; start nothing.")
    ] = False,
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root",
            metavar="FOLDER",
            help="Folder of the data sets. [dim]\\[HEBBSEG_DATA, else the recipe's folder, else the current folder][/]",
        ),
    ] = None,
    jobs: Annotated[int | None, _hardware("--jobs", "N", "Parallel runs. [dim]\\[1; Ray: as many as fit][/]", min=1)] = None,
    executor: Annotated[str, _hardware("--executor", "local|ray", "Processes on this machine, or a Ray cluster.")] = "local",
    address: Annotated[
        str | None,
        _hardware("--address", "HOST:PORT|auto", "Ray: address of a running cluster. [dim]\\[a new one on this machine][/]"),
    ] = None,
    cpus_per_run: Annotated[float, _hardware("--cpus-per-run", "N", "Ray: cores per run.")] = 1,
    gpus_per_run: Annotated[float, _hardware("--gpus-per-run", "N", "Ray: GPUs per run; may be a fraction.")] = 0,
) -> None:
    """Run an experiment: all data sets, label regimes, seeds or folds, and methods of a recipe.

    \b
    Examples:
      hebbseg grid recipes/phantom-small.toml --jobs 2
      hebbseg grid recipes/benchmark-small.toml --data glas --dry-run
      hebbseg grid recipes/benchmark-paper.toml --executor ray --gpus-per-run 1
      hebbseg report runs/benchmark-small -o report.html

    Repeat the command to resume an experiment: finished runs are skipped, interrupted runs resume from their checkpoint, and
    failed runs are retried. Runs with the same stage 1 share it. The exit code is 1 if a run failed.
    """
    from hebbseg.atomic_files import replacing
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
    with replacing(folder / "recipe.toml") as temporary:  # reports read it
        shutil.copyfile(recipe, temporary)
    _warn_of_other_runs(described, folder)
    this_command = shlex.join(["hebbseg", *sys.argv[1:]])
    try:
        result = run_tasks(tasks, workers, Board)
    except Interrupted as stop:
        raise Interrupted(f"{stop} To resume:\n  {this_command}") from None
    facts = [
        ("done", f"{result.before + result.now} tasks, {result.before} of them in earlier starts"),
        ("runs", str(folder / "runs")),
    ]
    for task, outcome in result.failed.values():
        facts.append(("failed", f"{task.id}: {outcome.message}\n        log: {task.log}"))
    facts.append(("next", shlex.join(["hebbseg", "report", str(out or Path("runs") / described.name)])))
    if result.failed:
        facts.append(("retry", this_command))
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
        raise HebbsegError(f"--only {only!r} matches no arm. {did_you_mean(only, names)}")
    return chosen


def _warn_of_other_runs(recipe: "Recipe", folder: Path) -> None:
    """Warn about run folders that do not belong to this recipe: it was changed, or another one was run here."""
    from hebbseg.experiments.grid import notes_of

    known = notes_of(recipe) if (folder / "runs").is_dir() else {}
    others = sorted(path.name for path in (folder / "runs").glob("*") if path.name not in known)
    if others:
        typer.echo(
            f"note: {len(others)} runs in {folder / 'runs'} do not belong to the current recipe (first: {others[0]}). They are "
            f"kept, but not included in reports of {folder}.",
            err=True,
        )
