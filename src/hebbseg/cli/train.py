"""hebbseg train and hebbseg pretrain: both stages, or stage 1 only."""

import json
import os
import shlex
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hebbseg.cli.options import DATA_HELP, output_folder, parse_assignments, show_facts
from hebbseg.cli.settings_options import FLAGS, takes_settings
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hebbseg.config import Settings
    from hebbseg.data.progress import Reporter


DataUnlessResumed = Annotated[
    str | None, typer.Argument(metavar="DATA", help=f"{DATA_HELP} Not needed with --resume.", show_default=False)
]
OutOption = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="RUN", help="Run folder; new or empty unless --resume is given.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume the run in RUN from its checkpoint, with its settings.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting of --list-settings; may be repeated."),
]
ListOption = Annotated[
    bool, typer.Option("--list-settings", help="List all settings and their defaults; with --preset, also its values.")
]


@takes_settings(*FLAGS)
def train(
    data: DataUnlessResumed = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    more: SetOption = None,
    list_settings: ListOption = False,
    curve: Annotated[
        bool,
        typer.Option(
            "--curve",
            help="Show how many masks would help: repeat the training with 25 % and 50 % of the labelled images, in RUN/curve. "
            "A time budget is divided equally by the number of runs. With --resume, add the curve to a run.",
        ),
    ] = False,
    help_method: Annotated[bool, typer.Option("--help-method", help="Describe the --method and its options.")] = False,
    **options: Any,
) -> None:
    """Train a segmentation network on DATA and evaluate it on held-out test cases.

    Stage 1 pre-trains the network on all training images, without masks, by Hebbian learning. Stage 2 fine-tunes it on the
    labelled images, and on the unlabelled ones if there are any. Size, patches, depth and batches follow from the images and
    masks; `hebbseg plan DATA` shows them, and how long training takes.

    \b
    Examples:
      hebbseg train my_data/ -o run1
      hebbseg train my_data/ -o run2 --labelled 10% --time-budget 30m --seed 1
      hebbseg train --resume -o run2
      hebbseg train glas:GlaS/ -o run3 --set learning_rate=0.001 --set ema=0.999
      hebbseg train glas:GlaS/ -o run4 --preset paper --labelled 10% --fold 0
      hebbseg train more_data/ -o run5 --from run1
      hebbseg train my_data/ -o run6 --curve --time-budget 1h

    \b
    RUN contains:
      report.html                this run on one page: results, curves, test cases, what to try next
      model.safetensors          weights and configuration, for hebbseg predict
      metrics.csv, summary.json  test results, per case and in total
      history.csv, progress.png  training curves
      figures/                   predictions on test cases
      run.json, split.json       settings, versions, split
    """
    started = time.monotonic()  # importing torch takes seconds
    if list_settings:
        _list_settings(data, options, more)
        return
    if help_method:
        from hebbseg.methods import method_help

        typer.echo(method_help(options["method"] or "auto"))
        return
    folder = output_folder(out, shlex.join(["hebbseg", "train", data or "my_data/", "-o", "run1"]))
    settings = _settings("train", data, folder, resume, options, more)
    from hebbseg.experiments.mask_curve import train as train_run
    from hebbseg.reporting.run_page.page import add_run_page

    with _resumable("train", folder) as reporter:
        train_run(settings, folder, curve=curve, resume=resume, reporter=reporter, started=started)
    if _first_process():
        _show_run(folder, add_run_page(folder))


@takes_settings(
    "preset",
    "seed",
    "init",
    "group",
    "images",
    "masks",
    "level",
    "size",
    "spacing",
    "patch",
    "network",
    "features",
    "accelerator",
    "devices",
    "num_nodes",
)
def pretrain(
    data: DataUnlessResumed = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    more: SetOption = None,
    list_settings: ListOption = False,
    **options: Any,
) -> None:
    """Pre-train a network on the images of DATA, without masks (stage 1 only).

    \b
    Examples:
      hebbseg pretrain my_images/ -o stage1
      hebbseg pretrain my_images/ -o stage1 --set rule=hpca --set whiten=0.1
      hebbseg train my_data/ -o run1 --init stage1/pretrained.safetensors

    RUN contains pretrained.safetensors, the weights for `hebbseg train --init`. If DATA has masks,
    the cases that `hebbseg train` tests on with the same data, seed and --group are excluded. `train --init` warns if a test
    case was among the images.
    """
    if list_settings:
        _list_settings(data, options, more)
        return
    folder = output_folder(out, shlex.join(["hebbseg", "pretrain", data or "my_images/", "-o", "stage1"]))
    settings = _settings("pretrain", data, folder, resume, options, more)
    from hebbseg.runs.train import pretrain_only

    with _resumable("pretrain", folder) as reporter:
        weights = pretrain_only(settings, folder, resume=resume, reporter=reporter)
    if not _first_process():
        return
    _show_diagnostics(folder / "pretrain.json")
    following = ["hebbseg", "train", settings.data.source, "-o", "RUN", "--init", str(weights)]
    following += ["--seed", str(settings.seed)] if settings.seed else []
    show_facts([("weights", str(weights)), ("next", shlex.join(following))])


def _list_settings(data: str | None, options: dict[str, Any], more: list[str] | None) -> None:
    from hebbseg.cli.settings_table import show_settings
    from hebbseg.config import make_settings

    given = _given(options, more)
    make_settings(data or "my_data/", given)  # reports typos
    show_settings(data, given)


def _given(options: dict[str, Any], more: list[str] | None) -> dict[str, Any]:
    """Return the settings given on the command line, by flat name."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in parse_assignments(more or []).items():
        if name in given or name == "data":
            raise HebbsegError(f"--set {name}={value}: {name} is set twice. Remove one of the two values.")
        given[name] = value
    return given


def _settings(
    command: str, data: str | None, folder: Path, resume: bool, options: dict[str, Any], more: list[str] | None
) -> "Settings":
    """Return the settings given on the command line, on top of those of a run to resume."""
    from hebbseg.config import make_settings
    from hebbseg.data.sources import find_place

    given = _given(options, more)
    if resume and (folder / "run.json").is_file():
        from hebbseg.runs.folder import RunFolder

        begun = RunFolder(folder).begun_with()
        assert begun is not None
        stored = begun.flat()
        stored_data = stored.pop("data")
        if "method" in given:
            stored.pop("method_options", None)  # they belong to the stored method
        name = stored["network"]
        if "network" not in given and name != "unet" and not name.startswith("monai.networks.nets."):
            raise HebbsegError(
                f"{folder}: run.json names the network {name!r}, which resuming imports. If you trust this folder, "
                f"repeat --network {shlex.quote(name)}."
            )
        data, given = data or stored_data, stored | given
    if data is None:
        if resume:
            raise HebbsegError(f"{folder}: no run to resume (no run.json). To start a run here, give DATA.")
        raise HebbsegError(f"Argument DATA is missing. Example: hebbseg {command} my_data/ -o {shlex.quote(str(folder))}")
    if given.get("from_run") and not resume:
        from hebbseg.runs.parent import continued_options

        given = continued_options(given)
    settings = make_settings(data, given)
    find_place(settings.data.source)  # a typo is reported before torch is imported
    return settings


def _first_process() -> bool:
    """Whether this is the main process, not one of those that --devices starts."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("NODE_RANK", "0") == "0"


@contextmanager
def _resumable(command: str, folder: Path) -> "Iterator[Reporter]":
    """Report progress; after Ctrl-C, show the command that resumes the run."""
    from hebbseg.cli.progress import make_reporter
    from hebbseg.training.interrupt import Interrupted

    try:
        with make_reporter(quiet=not _first_process()) as reporter:
            yield reporter
    except Interrupted as stop:
        raise Interrupted(f"{stop}\n  hebbseg {command} --resume -o {shlex.quote(str(folder))}") from None


def _show_run(folder: Path, page: str) -> None:
    facts = [("test", "no test cases: the model was not evaluated"), ("model", str(folder / "model.safetensors"))]
    if (folder / "summary.json").is_file():
        from hebbseg.evaluation.evaluate import describe_classes, describe_summary

        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        facts[:1] = [("test", describe_summary(summary)), *describe_classes(summary)]
        facts.append(("metrics", f"{folder / 'metrics.csv'}, {folder / 'summary.json'}"))
    if (ended := _early_end(folder)) is not None:
        facts.insert(0, ("stopped", ended))
    figures = [path for path in (folder / "progress.png", folder / "figures" / "test.png") if path.is_file()]
    facts.append(("figures", ", ".join(map(str, figures))))
    if (folder / "curve.csv").is_file():
        facts.append(("curve", str(folder / "curve.csv")))
    facts.append(("report", page))
    facts.append(("next", shlex.join(["hebbseg", "predict", str(folder), "NEW_IMAGES", "-o", "masks"])))
    show_facts(facts)


def _early_end(folder: Path) -> str | None:
    """Return what ended a run before all its updates, or None."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    reasons = {"time_budget": "by the time budget", "patience": "early, without a better validation Dice"}
    why = reasons.get(run.get("stopped_by"))
    planned = run.get("updates_planned")
    done = "" if planned is None else f"{run['updates_done']} of "
    return f"{why}, after {done}{counted(planned or run['updates_done'], 'update')}" if why else None


def _show_diagnostics(path: Path) -> None:
    layers = json.loads(path.read_text(encoding="utf-8"))
    if layers:
        from rich.console import Console

        from hebbseg.cli.diagnostics_table import table
        from hebbseg.hebbian.diagnostics import LayerDiagnostics

        Console().print(table({name: LayerDiagnostics(**numbers) for name, numbers in layers.items()}))
