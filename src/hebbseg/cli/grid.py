"""hebbseg grid: the runs of a recipe."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hebbseg.cli.options import output_folder, parse_assignments, show_facts
from hebbseg.cli.settings_options import HARDWARE
from hebbseg.data.progress import counted
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
        Path | None,
        typer.Option(
            "-o", "--out", metavar="OUT", help="Output folder. [dim]\\[runs/NAME of the recipe; --small: runs/NAME-small][/]"
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME", help="Only this data set of the recipe; may be repeated. [dim]\\[all][/]"),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="REGEX", help="Only arms whose name matches, such as 'Hebb|Sup'."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where", metavar="AXIS=VALUE,…", help="Only these values of an axis, such as fold=0,1,2; may be repeated."
        ),
    ] = None,
    done: Annotated[
        list[Path] | None,
        typer.Option("--done", metavar="ROWS.csv", help="Skip the runs listed in a runs.csv of hebbseg report --tables."),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="Reduced scale: apply the table \\[small] of the recipe.")] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting of all runs, such as precision=bf16-mixed; may be repeated. Not for settings that the arms "
            "or axes of the recipe vary.",
        ),
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
      hebbseg grid recipes/phantom.toml --jobs 2
      hebbseg grid recipes/paper/benchmark.toml --small --jobs 2
      hebbseg grid recipes/paper/benchmark.toml --data glas --dry-run
      hebbseg grid recipes/paper/benchmark.toml --where labelled=1%,2%
      hebbseg grid recipes/paper/variants.toml --set precision=bf16-mixed
      hebbseg grid recipes/paper/benchmark.toml --executor ray --gpus-per-run 1
      hebbseg report runs/benchmark -o report.html

    Repeat the command to resume an experiment: finished runs are skipped, interrupted runs resume from their checkpoint, and
    failed runs are retried. Runs with the same stage 1 share it. The exit code is 1 if a run failed.
    """
    from hebbseg.atomic_files import write_text
    from hebbseg.cli.grid_board import Board
    from hebbseg.experiments.data_root import data_roots
    from hebbseg.experiments.executors.executor import EXECUTORS, make_executor
    from hebbseg.experiments.grid import plan
    from hebbseg.experiments.recipe import load_recipe, recipe_text
    from hebbseg.experiments.recipe_parts import Applied
    from hebbseg.experiments.scheduler import run_tasks, tasks_of
    from hebbseg.experiments.selection import finished_runs, of_arms, parse_where
    from hebbseg.experiments.selection import where as with_values
    from hebbseg.training.interrupt import Interrupted

    if executor not in EXECUTORS:
        raise HebbsegError(f"--executor {executor!r} is unknown. {did_you_mean(executor, EXECUTORS)}")
    described = load_recipe(recipe, Applied(small=small, set=parse_assignments(assignments or ())))
    text = recipe_text(recipe, described.applied)
    runs = plan(described.with_data(data or ()), data_roots(data_root, recipe))
    folder = output_folder(out or Path("runs") / described.name, "").absolute()
    chosen = with_values(of_arms(runs, only), parse_where(where or ()))
    if done:
        chosen = _without_finished(chosen, finished_runs(done))
    tasks = tasks_of(chosen, folder)
    if dry_run:
        from hebbseg.experiments.cost import describe_plan

        show_facts(describe_plan(tasks, jobs or 1))
        return
    workers = make_executor(executor, jobs=jobs, address=address, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run)
    write_text(folder / "recipe.toml", text)  # reports read it
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


def _without_finished(runs: "list[GridRun]", finished: set[str]) -> "list[GridRun]":
    left = [run for run in runs if run.id not in finished]
    typer.echo(f"note: {len(runs) - len(left)} of {counted(len(runs), 'run')} are listed by --done and skipped.", err=True)
    return left


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
