"""hebbseg plan: what training would do with a data set, and how long it would take."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hebbseg.cli.check import print_json
from hebbseg.cli.options import Data, parse_assignments
from hebbseg.cli.settings_options import takes_settings
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError

if TYPE_CHECKING:
    from hebbseg.config import Settings
    from hebbseg.runs.estimate import Estimate

BUDGETS_S = (300.0, 600.0, 1800.0)


@takes_settings(
    "preset", "labelled", "protocol", "folds", "fold", "seed", "init", "method", "updates", "time_budget_s", "label_map",
    "group", "mask_threshold", "instances", "ignore", "images", "masks", "level", "size", "spacing", "patch", "network",
    "features",
    "accelerator", "precision",
)  # fmt: skip
def plan(
    data: Data,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Do not measure the time of a few training steps.")] = False,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of hebbseg train; may be repeated."),
    ] = None,
    **options: Any,
) -> None:
    """Show what `hebbseg train` would do with DATA, why, and how long it would take on this machine.

    The working size is the smallest at which the labelled training masks, scaled down and back, keep a Dice of 0.98 in every
    class. Nothing is trained and nothing is written. Options of `hebbseg train` replace planned values.

    \b
    Examples:
      hebbseg plan my_data/
      hebbseg plan my_data/ --labelled 10% --time-budget 15m
      hebbseg plan my_data/ --size 256x256 --json
    """
    from hebbseg.config import make_settings
    from hebbseg.data.sources import find_place
    from hebbseg.runs.estimate import estimate

    given = {name: value for name, value in options.items() if value is not None}
    for name, value in parse_assignments(more or []).items():
        if name in given:
            raise HebbsegError(f"--set {name}={value}: {name} is set twice. Remove one of the two values.")
        given[name] = value
    settings = make_settings(data, given)
    find_place(settings.data.source)
    found = estimate(settings, measure=not no_timing)
    for problem in found.unreadable:
        typer.echo(f"left out: {problem}", err=True)
    if json:
        print_json(as_json(found, settings))
    else:
        _show(found, settings, timed=not no_timing)


def as_json(found: "Estimate", settings: "Settings") -> dict[str, Any]:
    """Return the plan with its fingerprint, the estimated seconds and how many updates fit into time budgets."""
    time = found.time
    times = None
    if time is not None:
        names = ("reading_s", "stage1_s", "update_s", "stage2_s", "test_s", "total_s")
        times = {name: round(getattr(time, name), 4) for name in names} | {"updates": time.updates}
    return {
        "data": settings.data.source,
        **found.plan.model_dump(mode="json"),
        "method": found.method,
        "time": times,
        "time_budgets": [
            {
                "budget_s": budget_s,
                "updates": min(time.updates_within(budget_s), _given_updates(settings)),
                "stage1_s": round(time.stage1_within(budget_s), 2),
            }
            for budget_s in _budgets(settings)
        ]
        if time is not None
        else [],
    }


def _budgets(settings: "Settings") -> tuple[float, ...]:
    given = settings.finetune.time_budget_s
    return BUDGETS_S if given is None else (given,)


def _given_updates(settings: "Settings") -> int:
    """Return the number of updates that was given, also within a time budget; a large one if none was."""
    return settings.finetune.updates if "updates" in settings.finetune.model_fields_set else sys.maxsize


def _show(found: "Estimate", settings: "Settings", *, timed: bool) -> None:
    from hebbseg.data.progress import duration

    facts = found.plan.fingerprint
    sizes = "×".join(map(str, facts.median_size))
    if not facts.one_size:
        ends = ("×".join(map(str, size)) for size in (facts.smallest_size, facts.largest_size))
        sizes = f"median {sizes} ({' to '.join(ends)})"
    classes = "" if facts.classes is None else f", {counted(facts.classes, 'class', 'classes')}"
    rows = [
        ("data", f"{counted(facts.images, 'image')} of {sizes} pixels, {counted(facts.channels, 'channel')}{classes}", ""),
        ("split", f"{facts.labelled} labelled, {facts.unlabelled} unlabelled, {facts.test} test", ""),
        *found.plan.lines(),
        ("method", found.method, "given" if settings.finetune.method != "auto" else "the default for these images"),
    ]
    width = max(len(value) for name, value, reason in rows if reason)
    for name, value, reason in rows:
        typer.echo(f"{name:<10}{value:<{width}}  {reason}".rstrip())
    time = found.time
    if time is None:
        if timed:
            typer.echo(f"{'time':<10}not measured: there is no labelled training image. `hebbseg pretrain` needs none.")
        return
    parts = [f"reading {duration(time.reading_s)}", f"stage 1 {duration(time.stage1_s)}"]
    parts += [f"stage 2 {duration(time.stage2_s)} ({time.update_s:.2f} s per update)", f"test {duration(time.test_s)}"]
    typer.echo(f"{'time':<10}about {duration(time.total_s)} on this machine: {', '.join(parts)}")
    for budget_s in _budgets(settings):
        updates = min(time.updates_within(budget_s), _given_updates(settings))
        minutes = f"{budget_s / 60:g}m" if budget_s >= 60 else f"{budget_s:g}s"
        bought = f"about {counted(updates, 'update')}" if updates else "too short for training"
        typer.echo(f"{'':<10}--time-budget {minutes}: {bought}")
    typer.echo(f"{'next':<10}{_training_command()}")


def _training_command() -> str:
    """Return the command that trains with the data and options of this one."""
    given = sys.argv[sys.argv.index("plan") + 1 :]
    return shlex.join(["hebbseg", "train", *(each for each in given if each not in ("--debug", "--no-timing")), "-o", "run1"])
