"""hebbseg train and hebbseg pretrain: both stages, or the first alone."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from hebbseg.cli.options import (
    AcceleratorOption,
    GroupOption,
    InstancesOption,
    LabelMapOption,
    ThresholdOption,
    TtaOption,
    check_place,
    output_folder,
    parse_assignments,
    seconds,
    show_facts,
)
from hebbseg.cli.train_options import (
    LEARNING,
    MACHINE,
    SPLITTING,
    DataUnlessResumed,
    DevicesOption,
    FeaturesOption,
    HelpMethodOption,
    ListOption,
    NetworkOption,
    NodesOption,
    OutOption,
    PatchOption,
    PrecisionOption,
    ResumeOption,
    SeedOption,
    SetOption,
    SizeOption,
)
from hebbseg.errors import HebbsegError


def train(
    context: typer.Context,
    data: DataUnlessResumed = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    init: Annotated[
        str | None,
        typer.Option(
            "--init",
            metavar="NAME|FILE",
            help="Where the first weights come from: hebbian, random, … or a pretrained.safetensors. [dim]\\[hebbian][/]",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="How masks, and images without, are learned from; a wrong name lists all. [dim]\\[auto][/]",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option("--updates", metavar="N", help="Steps of stage 2. [dim]\\[1000][/]", rich_help_panel=LEARNING),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            "--time-budget",
            metavar="30m",
            help="End stage 2 after this time at the latest, its schedule with it (90s, 30m, 2h).",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    labelled: Annotated[
        str | None,
        typer.Option(
            "--labelled",
            metavar="10%|8",
            help="How many of the training masks are used: a share or a number. [dim]\\[100%][/]",
            rich_help_panel=SPLITTING,
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            metavar="few-label|paper|selection",
            help="few-label: no validation masks, averaged weights at the end. paper: folds, best validation Dice. "
            "selection: folds of the training side, to choose settings. "
            "[dim]\\[few-label][/]",
            rich_help_panel=SPLITTING,
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option("--folds", metavar="N", help="Test on one of N folds.", rich_help_panel=SPLITTING),
    ] = None,
    fold: Annotated[
        int | None, typer.Option("--fold", metavar="K", help="Which fold, from 0.", rich_help_panel=SPLITTING)
    ] = None,
    seed: SeedOption = None,
    size: SizeOption = None,
    patch: PatchOption = None,
    network: NetworkOption = None,
    features: FeaturesOption = None,
    label_map: LabelMapOption = None,
    group: GroupOption = None,
    mask_threshold: ThresholdOption = None,
    instances: InstancesOption = None,
    tta: TtaOption = None,
    accelerator: AcceleratorOption = None,
    devices: DevicesOption = None,
    num_nodes: NodesOption = None,
    precision: PrecisionOption = None,
    tensorboard: Annotated[
        bool | None,
        typer.Option("--tensorboard", help="Also write RUN/tensorboard.", show_default=False, rich_help_panel=MACHINE),
    ] = None,
    more: SetOption = None,
    list_settings: ListOption = False,
    help_method: HelpMethodOption = False,
) -> None:
    """Learn to segment: from all images without a mask, then from the masks; measured on cases never touched.

    \b
    Examples:
      hebbseg train my_data/ -o run1
      hebbseg train my_data/ -o run2 --labelled 10% --time-budget 30m --seed 1
      hebbseg train --resume -o run2                       after Ctrl-C or a power cut
      hebbseg train glas:GlaS/ -o run3 --set learning_rate=0.001 --set ema=0.999

    RUN gets model.safetensors, metrics.csv and summary.json (test cases), history.csv, progress.png and figures/.
    """
    if help_method:
        from hebbseg.methods import method_help

        typer.echo(method_help(method or "auto"))
        return
    folder = output_folder(out, f"hebbseg train {data or 'my_data/'} -o run1")
    settings = _settings(context, data, folder, resume, time_budget, more)
    check_place(settings.data.source)
    from hebbseg.runs.train import run
    from hebbseg.training.interrupt import Interrupted

    try:
        with _reporter() as reporter:
            run(settings, folder, resume=resume, reporter=reporter)
    except Interrupted as stop:
        raise Interrupted(f"{stop}\n  hebbseg train --resume -o {shlex.quote(str(folder))}") from None
    if _first_process():
        _show_run(folder)


def pretrain(
    context: typer.Context,
    data: DataUnlessResumed = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    init: Annotated[
        str | None,
        typer.Option("--init", metavar="NAME", help="How: hebbian, … [dim]\\[hebbian][/]", rich_help_panel=LEARNING),
    ] = None,
    seed: SeedOption = None,
    size: SizeOption = None,
    patch: PatchOption = None,
    network: NetworkOption = None,
    features: FeaturesOption = None,
    group: GroupOption = None,
    accelerator: AcceleratorOption = None,
    devices: DevicesOption = None,
    num_nodes: NodesOption = None,
    more: SetOption = None,
    list_settings: ListOption = False,
) -> None:
    """Learn from images alone: stage 1, no mask is opened. The weights are a start for `hebbseg train --init FILE`.

    \b
    Examples:
      hebbseg pretrain my_images/ -o stage1
      hebbseg pretrain my_images/ -o stage1 --set rule=hpca --set whiten=0.1
      hebbseg train my_data/ -o run1 --init stage1/pretrained.safetensors

    Where DATA has masks, the cases that a training with the same seed tests on are left out here, too.
    """
    folder = output_folder(out, f"hebbseg pretrain {data or 'my_images/'} -o stage1")
    settings = _settings(context, data, folder, resume, None, more)
    check_place(settings.data.source)
    from hebbseg.runs.train import pretrain_only
    from hebbseg.training.interrupt import Interrupted

    try:
        with _reporter() as reporter:
            weights = pretrain_only(settings, folder, resume=resume, reporter=reporter)
    except Interrupted as stop:
        raise Interrupted(f"{stop}\n  hebbseg pretrain --resume -o {shlex.quote(str(folder))}") from None
    if not _first_process():
        return
    _show_diagnostics(folder / "pretrain.json")
    following = ["hebbseg", "train", settings.data.source, "-o", "RUN", "--init", str(weights)]
    following += ["--seed", str(settings.seed)] if settings.seed else []
    show_facts([("weights", str(weights)), ("next", shlex.join(following))])


def _settings(
    context: typer.Context,
    data: str | None,
    folder: Path,
    resume: bool,
    time_budget: str | None,
    more: list[str] | None,
) -> Any:
    """What was given on the command line, over what a run to resume was begun with."""
    from hebbseg.config import FLAT_NAMES, make_settings, settings_of_run

    # Options have the names of the settings they set, so that the context is the list of them.
    given = {n: v for n, v in context.params.items() if v is not None and n in FLAT_NAMES and n != "data"}
    if time_budget is not None:
        given["time_budget_s"] = seconds(time_budget)
    for name, value in parse_assignments(more or []).items():
        if name in given or name == "data":
            raise HebbsegError(f"--set {name}={value}: {name} is given twice. Keep one of them.")
        given[name] = value
    if resume and (folder / "run.json").is_file():
        from hebbseg.runs.folder import RunFolder

        begun = settings_of_run(RunFolder(folder).description()["settings"]).flat()
        begun_with = begun.pop("data")
        if "method" in given:
            begun.pop("method_options", None)  # they are of the method it was begun with
        return make_settings(data or begun_with, begun | given)
    if data is None:
        if resume:
            raise HebbsegError(f"{folder}: there is no run to resume here (no run.json). To begin one, give its DATA.")
        raise HebbsegError(f"Which DATA? As in `hebbseg {context.info_name} my_data/ -o {folder}`.")
    return make_settings(data, given)


def _first_process() -> bool:
    """Whether this is not one of the further processes that --devices starts."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("NODE_RANK", "0") == "0"


def _reporter() -> Any:
    from hebbseg.cli.progress import make_reporter

    return make_reporter(quiet=not _first_process())


def _show_run(folder: Path) -> None:
    facts = [("model", str(folder / "model.safetensors"))]
    if (folder / "summary.json").is_file():
        from hebbseg.evaluation.evaluate import describe_summary

        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        facts.insert(0, ("test", describe_summary(summary)))
        facts.append(("metrics", f"{folder / 'metrics.csv'}, {folder / 'summary.json'}"))
    else:
        facts.insert(0, ("test", "no test cases, so there is no measure of how good the model is"))
    figures = [path for path in (folder / "progress.png", folder / "figures" / "test.png") if path.is_file()]
    facts.append(("figures", ", ".join(map(str, figures))))
    facts.append(("next", shlex.join(["hebbseg", "predict", str(folder), "NEW_IMAGES", "-o", "masks"])))
    show_facts(facts)


def _show_diagnostics(path: Path) -> None:
    layers = json.loads(path.read_text(encoding="utf-8"))
    if not layers:
        return
    from rich import box
    from rich.console import Console

    from hebbseg.cli.diagnostics_table import table
    from hebbseg.hebbian.diagnostics import LayerDiagnostics

    shown = table({name: LayerDiagnostics(**numbers) for name, numbers in layers.items()})
    # So that whole names fit into 80 columns: headings on two lines, no lines between columns.
    shown.box, shown.pad_edge = box.SIMPLE, False
    for column in shown.columns:
        column.header = str(column.header).replace(" ", "\n")
    Console().print(shown)
