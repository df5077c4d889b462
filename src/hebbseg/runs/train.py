"""From a folder of images to a measured segmenter: both stages, in order, resumable at any moment."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from hebbseg.runs.context import Run
from hebbseg.runs.preflight import check_listed, check_start, refuse_without_masks
from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.evaluation.evaluate import evaluate
from hebbseg.evaluation.metrics import case_metrics
from hebbseg.reporting.plots.overlay import overlay
from hebbseg.reporting.plots.figures import draw_grid, draw_history
from hebbseg.atomic_files import write_json
from hebbseg.hebbian.diagnostics import as_dict
from hebbseg.methods import AUTO, auto_method, check_method, make_method, options_text
from hebbseg.networks.unet import UNet
from hebbseg.runs.dataset import draw_split, open_cases
from hebbseg.data.progress import Quiet, Reporter
from hebbseg.training.tensorboard import WithTensorBoard
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.provenance import start_has_seen
from hebbseg.inference.predictor import Predictor
from hebbseg.training.ema import recalibrate_norms
from hebbseg.networks.model_file import save_model
from hebbseg.training.loop import fit
from hebbseg.pretraining.initializers import INITIALIZERS, Initialised, is_initializer
from hebbseg.training.interrupt import Interrupted, Request, interrupt_requests
from hebbseg.training.distributed import launched, make_fabric

PICTURES = 6  # test cases shown in figures/test.png
SEEDS_APART = 1_000_003  # between the networks of a method that has several

Starts = Callable[[Run, int], tuple[UNet, Initialised]]
"""Gives network number 0 (or 1, 2, … for methods that have several) of a run with its first weights."""


def run(
    settings: Settings,
    out: Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    source: Source | None = None,
    starts: Starts | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Predictor:
    """Both stages and the evaluation; leaves everything in ``out`` (see `RunFolder`).

    Arguments:
        source: the cases of ``settings.data`` from `open_cases`, where somebody has them open already.
        starts: gives the first weights, where stage 1 was done before; must be what stage 1 would give here.
        notes: written into run.json.
    """
    reporter = reporter or Quiet()
    check_method(settings.method, settings.method_options)
    check_start(settings)
    fabric = make_fabric(settings)
    folder = RunFolder(out, writes=fabric.global_rank == 0)
    folder.check(resume=resume)

    def check(listed: Source) -> None:
        refuse_without_masks(settings, check_listed(settings, listed))

    source = source or open_cases(settings, reporter, check=check)
    split = draw_split(settings, source, reporter)
    refuse_without_masks(settings, split)
    if len(source.classes) < 2:
        raise HebbsegError(
            f"{settings.data}: the masks hold only one class ({source.classes[0].name or source.classes[0].value}), so there "
            "is nothing to tell apart. Are they the right masks? `hebbseg check` shows what was read."
        )
    settings = _with_method(settings, len(split.training.unlabelled), folder.begun_with(), reporter)
    state = folder.begin(settings, split, resume=resume)
    notes = _note_of_start(settings, split, reporter) | dict(notes or {})
    if notes:
        folder.note(**notes)
    if resume and folder.description()["status"] == "done":
        reporter.say(f"{out}: this run is done already.")
        return Predictor.load(out)
    with launched(fabric), _with_tensorboard(reporter, settings, folder) as reporter:
        this = Run(settings, source, split.training, fabric)
        with _stoppable(folder) as request:
            segmenter, history = _train(this, folder, state, reporter, request, starts)
        if fabric.global_rank == 0:
            segmenter.save(folder / "model.safetensors")
            folder.save_rows("history.csv", history)
            draw_history(history, folder / "progress.png")
            if split.test:
                _test(segmenter, source, split, folder, reporter)
            folder.note(status="done", seconds=round(folder.seconds, 1))
            (folder / "checkpoint.pt").unlink(missing_ok=True)
        fabric.barrier()
    return segmenter


def _note_of_start(settings: Settings, split: Split, reporter: Reporter) -> dict[str, Any]:
    """For run.json: the file of weights that a run begins with, and a warning if its test cases are not new to them."""
    if is_initializer(settings.init):
        return {}
    weights = Path(settings.init).absolute()
    warning = start_has_seen(weights, split.test)
    if warning is None:
        return {"init_file": str(weights)}
    reporter.say(f"warning: {warning}")
    return {"init_file": str(weights), "warning": warning}


def _with_method(settings: Settings, unlabelled: int, begun_with: Mapping[str, Any], reporter: Reporter) -> Settings:
    """The settings with what ``auto`` stands for, or stood for when the run was begun."""
    if settings.method != AUTO:
        return settings
    method, options = auto_method(unlabelled=unlabelled)
    if begun_with:
        method, options = begun_with["method"], begun_with["method_options"]
    how = f" with {options_text(options)}" if options else ""
    reporter.say(f"method: {method}{how}, as {unlabelled or 'no'} training images are without a mask.")
    return settings.model_copy(update={"method": method, "method_options": options})


def _with_tensorboard(reporter: Reporter, settings: Settings, folder: RunFolder) -> AbstractContextManager[Reporter]:
    wanted = settings.tensorboard and folder.writes
    return WithTensorBoard(reporter, folder / "tensorboard") if wanted else nullcontext(reporter)


@contextmanager
def _stoppable(folder: RunFolder) -> Iterator[Request | None]:
    """A request to stop that the first process alone follows, so that all of them stop after the same update."""
    try:
        with interrupt_requests() as request:
            yield request if folder.writes else None
    except Interrupted as stop:
        raise Interrupted(f"{stop} Everything up to the last checkpoint is saved; go on with --resume.") from None


def _test(segmenter: Predictor, source: Source, split: Split, folder: RunFolder, reporter: Reporter) -> None:
    """The only place of a run that reads test cases."""
    pictures: list[np.ndarray] = []

    def look(image: np.ndarray, prediction: np.ndarray, target: np.ndarray) -> None:
        if len(pictures) < PICTURES:
            pictures.append(overlay(image, prediction, target=target))

    rows, summary = evaluate(
        segmenter, source, split.test, look=look, report=lambda done, n: reporter.step("test", done, n, {})
    )
    folder.save_rows("metrics.csv", rows)
    draw_grid(pictures, folder / "figures" / "test.png", "Test cases: prediction in yellow, target in blue")
    warning = {name: said for name, said in folder.description().items() if name == "warning"}
    write_json(folder / "summary.json", summary | {"split_notes": list(split.provenance.notes)} | warning)


def pretrain_only(settings: Settings, out: Path, *, resume: bool = False, reporter: Reporter | None = None) -> Path:
    """Stage 1 alone, with or without masks on disk; gives the file of weights that ``--init FILE`` takes."""
    reporter = reporter or Quiet()
    check_start(settings)
    if not is_initializer(settings.init):
        raise HebbsegError(
            f"init={settings.init}: stage 1 does not go on from weights of a file. {did_you_mean('', INITIALIZERS)}"
        )
    fabric = make_fabric(settings)
    folder = RunFolder(out, writes=fabric.global_rank == 0)
    folder.check(resume=resume)
    unlabelled = settings.model_copy(update={"labelled": "0"})

    def check(listed: Source) -> None:
        check_listed(unlabelled, listed)

    source = open_cases(settings, reporter, masks=False, check=check)
    split = draw_split(unlabelled, source, reporter)
    state = folder.begin(settings, split, resume=resume)
    path = folder / "pretrained.safetensors"
    if resume and folder.description()["status"] == "done":
        reporter.say(f"{out}: this run is done already.")
        return path
    with launched(fabric), _with_tensorboard(reporter, settings, folder) as reporter:
        this = Run(settings, source, split.training, fabric)
        with _stoppable(folder) as request:
            network, first = this.initialise(
                2, settings.seed, **stage1_handlers(this, folder, state, reporter, request)
            )
        if fabric.global_rank == 0:
            save_model(path, network.state_dict(), {"network": this.network_options(2), "init": settings.init})
            folder.save_rows("history.csv", first.history)
            write_json(folder / "pretrain.json", as_dict(first.diagnostics))
            folder.note(status="done")
            (folder / "checkpoint.pt").unlink(missing_ok=True)
    return path


def stage1_handlers(
    this: Run, folder: RunFolder, state: dict[str, Any] | None, reporter: Reporter, request: Request | None
) -> dict[str, Any]:
    every_s = this.settings.checkpoint_every_s

    def save(current: dict[str, Any]) -> None:
        folder.checkpoint(lambda: {"stage": "pretrain", "state": current}, every_s=every_s, now=False)

    def report(done: int, total: int, row: dict[str, Any]) -> None:
        reporter.step("stage 1", done, total, row)

    resumed = state["state"] if state is not None and state["stage"] == "pretrain" else None
    return {"state": resumed, "save": save, "report": report, "request": request}


def _train(
    this: Run,
    folder: RunFolder,
    state: dict[str, Any] | None,
    reporter: Reporter,
    request: Request | None,
    starts: Starts | None,
) -> tuple[Predictor, list[dict[str, Any]]]:
    settings, classes = this.settings, len(this.source.classes)
    if state is not None and state["stage"] == "fit":

        def second() -> UNet:
            return UNet(**this.network_options(classes)).to(this.fabric.device)

        network, before, state2 = second(), state["history"], state["state"]
    else:
        if starts is None:
            handlers = stage1_handlers(this, folder, state, reporter, request)
            network, first = this.initialise(classes, settings.seed, **handlers)
        else:
            network, first = starts(this, 0)
        further = count(1)
        before, state2 = first.history, None
        if first.diagnostics and folder.writes:
            write_json(folder / "pretrain.json", as_dict(first.diagnostics))
        if folder.writes:
            save_model(
                folder / "pretrained.safetensors", network.state_dict(), {"network": this.network_options(classes)}
            )

        def second() -> UNet:
            number = next(further)
            return (starts(this, number) if starts else this.initialise(classes, settings.seed + number * SEEDS_APART))[0]

    method = make_method(
        settings.method,
        network=network,
        another=second,
        loss=settings.loss,
        augment=this.augment,
        options=settings.method_options,
    )
    batches = this.batches(unlabelled=method.uses_unlabelled, augmented=True, seed=settings.seed)

    def save(make: Callable[[], dict[str, Any]], now: bool) -> None:
        whole = lambda: {"stage": "fit", "history": before, "state": make()}  # noqa: E731
        folder.checkpoint(whole, every_s=settings.checkpoint_every_s, now=now)

    try:
        kept, rows = fit(
            method,
            batches,
            this.stage2(),
            fabric=this.fabric,
            validate=_validator(this) if this.training.validation else None,
            state=state2,
            save=save,
            report=lambda done, total, row: reporter.step("stage 2", done, total, row),
            request=request,
        )
    except HebbsegError as error:
        if isinstance(error, Interrupted) or not (folder / "checkpoint.pt").exists():
            raise
        raise HebbsegError(f"{error} The last good checkpoint is {folder / 'checkpoint.pt'}.") from error
    recalibrate_norms(kept, this.calibration())
    return this.segmenter(kept.cpu().eval()), [*before, *rows]


def _validator(this: Run) -> Callable[[nn.Module], float]:
    """Mean Dice over foreground classes and validation cases, at the size of training."""

    def validate(network: nn.Module) -> float:
        segmenter = this.segmenter(network)
        values = []
        for name in this.training.validation:
            probabilities = segmenter.probabilities_of_prepared(this.store.images([name])[0])
            target = this.store.mask(name).numpy()
            rows = case_metrics(probabilities.argmax(0).numpy(), target, len(this.source.classes))
            values.append(sum(row["dice"] for row in rows) / len(rows))
        return sum(values) / len(values)

    return validate
