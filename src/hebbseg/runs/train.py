"""One run: list, preflight, decode, split, stage 1, stage 2, test. It can be resumed at any point."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.atomic_files import write_json
from hebbseg.config import Settings
from hebbseg.data.progress import Quiet, Reporter, counted
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.evaluation.evaluate import Grid, evaluate
from hebbseg.hebbian.diagnostics import as_dict
from hebbseg.inference.predictor import Predictor
from hebbseg.methods import AUTO, auto_method, options_text
from hebbseg.networks.factory import UNET
from hebbseg.networks.model_file import load_model, save_model
from hebbseg.planning.plan import Plan
from hebbseg.pretraining.initializers import INITIALIZERS, is_initializer
from hebbseg.reporting.plots.figures import draw_history
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset, decode_cases, describe_split, list_cases
from hebbseg.runs.examples import Examples
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.large_cases import measure_large
from hebbseg.runs.lock import exclusive
from hebbseg.runs.parent import in_grid_of_parent, weights_of_parent
from hebbseg.runs.pictures import Shown, draw_cases, shown
from hebbseg.runs.planned import describe_plan, planned
from hebbseg.runs.preflight import (
    check_listed,
    check_planned,
    check_settings,
    require_annotated,
    require_classes,
    require_labelled,
    warn_of_single_class,
)
from hebbseg.runs.provenance import overlap_warning
from hebbseg.runs.selection import draw_selected_split
from hebbseg.runs.stages import Initialize, stage1_session, train_stages
from hebbseg.training.distributed import launched, make_fabric
from hebbseg.training.interrupt import Interrupted, Request, interrupt_requests
from hebbseg.training.tensorboard import WithTensorBoard

PICTURES = 6  # test cases shown in figures/test.png


@exclusive
def run(
    settings: Settings,
    out: Path,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    dataset: Dataset | None = None,
    initialize: Initialize | None = None,
    notes: Mapping[str, Any] | None = None,
    started: float | None = None,
    examples: bool = False,
) -> Predictor:
    """Run both stages and the test; write everything to ``out`` (see `RunFolder`).

    Args:
        dataset: the data of ``settings``, if they are decoded already.
        initialize: replaces stage 1; must return the weights that stage 1 would compute.
        notes: added to run.json.
        started: when the command started (`time.monotonic`), for the time budget; default: now.
        examples: draw the test cases with the lowest, median and highest Dice; a time budget reserves time for this and for
            the page of the run.
    """
    reporter = reporter or Quiet()
    check_settings(settings)
    fabric = make_fabric(settings)
    folder = RunFolder(out, writes=fabric.global_rank == 0, started=started)
    folder.check(resume=resume)
    dataset, split, plan, chosen = _data(settings, reporter, dataset, folder)
    require_labelled(settings, split)
    require_classes(settings, dataset.source)
    require_annotated(dataset, split)
    warn_of_single_class(dataset, split, reporter)
    initialize = initialize or weights_of_parent(settings, dataset.source, reporter)
    settings = _resolve_method(settings, dataset, split, folder.begun_with(), reporter)
    state = folder.begin(settings, split, resume=resume, plan=plan)
    notes = _note_of_weights(settings, split, reporter) | dict(notes or {})
    if notes:
        folder.note(**notes)
    if resume and folder.description()["status"] == "done":
        reporter.say(f"{out}: this run is already complete.")
        return Predictor.load(out, trust=settings.network.name != UNET)  # the preflight has imported it
    with folder.failure_noted(), launched(fabric), _with_tensorboard(reporter, settings, folder) as reporter:
        context = RunContext(chosen(settings), dataset, split.training, fabric)
        with _stoppable(folder) as request:
            predictor, history, ended = train_stages(
                context, folder, state, reporter, request, initialize, test_cases=len(split.test), examples=examples
            )
            if fabric.global_rank == 0:
                folder.still_there()
                predictor.save(folder / "model.safetensors")
                folder.save_rows("history.csv", history)
                draw_history(history, folder / "progress.png")
                if split.test:
                    kept = Examples() if examples else None
                    _test(predictor, dataset, split, folder, reporter, request, ended, settings.finetune.metrics_grid, kept)
                _close(folder, **ended)
        fabric.barrier()
    return predictor


@exclusive
def pretrain_only(settings: Settings, out: Path, *, resume: bool = False, reporter: Reporter | None = None) -> Path:
    """Run stage 1 alone; reads no mask. Returns the weights file for ``--init FILE``."""
    reporter = reporter or Quiet()
    check_settings(settings)
    if not is_initializer(settings.pretrain.init):
        raise HebbsegError(
            f"init={settings.pretrain.init}: stage 1 does not start from a file of weights. {did_you_mean('', INITIALIZERS)}"
        )
    fabric = make_fabric(settings)
    folder = RunFolder(out, writes=fabric.global_rank == 0)
    folder.check(resume=resume)
    dataset, split, plan, chosen = _data(settings.changed(labelled="0"), reporter, None, folder, masks=False)
    state = folder.begin(settings, split, resume=resume, plan=plan)
    path = folder / "pretrained.safetensors"
    if resume and folder.description()["status"] == "done":
        reporter.say(f"{out}: this run is already complete.")
        return path
    with folder.failure_noted(), launched(fabric), _with_tensorboard(reporter, settings, folder) as reporter:
        context = RunContext(chosen(settings), dataset, split.training, fabric)
        with _stoppable(folder) as request:
            session = stage1_session(settings, folder, state, reporter, request)
            network, first = context.initialize(2, settings.run_seed, session)
        if fabric.global_rank == 0:
            save_model(path, network.state_dict(), {"network": context.network_options(2), "init": settings.pretrain.init})
            folder.save_rows("history.csv", first.history)
            write_json(folder / "pretrain.json", as_dict(first.diagnostics))
            _close(folder)
    return path


def _data(
    settings: Settings, reporter: Reporter, dataset: Dataset | None, folder: RunFolder, *, masks: bool = True
) -> tuple[Dataset, Split, Plan | None, Callable[[Settings], Settings]]:
    """Return the cases, decoded once at the planned size, their split, the plan, and what replaces ``auto`` by its values."""
    if dataset is None:
        listed = in_grid_of_parent(settings, list_cases(settings.data))
        check_listed(settings, listed, labelled=masks)
        split = draw_selected_split(settings, listed, reporter)
        fill, plan = planned(settings, listed, split, folder, masks=masks)
        check_planned(fill(settings), listed)
        tested = split.test if masks and settings.finetune.metrics_grid == "original" else ()
        dataset = decode_cases(listed, fill(settings).data, reporter, masks=masks, originals=tested)
        if dataset.source.cases != listed.cases:
            split = draw_selected_split(settings, dataset.source, reporter)
    else:
        split = draw_selected_split(settings, dataset.source, reporter)
        fill, plan = planned(settings, dataset.source, split, folder, dataset=dataset, masks=masks)
    describe_split(split, dataset.source, reporter)
    if plan is not None:
        describe_plan(plan, reporter)
    return dataset, split, plan, fill


def _note_of_weights(settings: Settings, split: Split, reporter: Reporter) -> dict[str, Any]:
    """Return for run.json the file of initial weights, and a warning if they were trained on test cases."""
    if is_initializer(settings.pretrain.init):
        return {}
    weights = Path(settings.pretrain.init).absolute()
    notes: dict[str, Any] = {"init_file": str(weights)}
    if settings.pretrain.from_run is not None:
        notes["parent"] = settings.pretrain.from_run
    elif "classes" in load_model(weights)[1]:
        reporter.say(
            f"init {weights.name}: the output layer is new; its weights are not used. --from {weights.parent} continues that "
            "run with its output layer and split."
        )
    warning = overlap_warning(weights, split.test)
    if warning is not None:
        reporter.say(f"warning: {warning}")
        notes["warning"] = warning
    return notes


def _resolve_method(
    settings: Settings, dataset: Dataset, split: Split, started_with: Settings | None, reporter: Reporter
) -> Settings:
    """Replace ``method=auto`` by the method it stands for, or stood for when the run was started."""
    if settings.finetune.method != AUTO:
        return settings
    unlabelled = len(split.training.unlabelled)
    partial = sum(dataset.store.annotated(name) is not None for name in split.training.labelled)
    method, options = auto_method(unlabelled=unlabelled + partial)
    if started_with is not None:
        method, options = started_with.finetune.method, dict(started_with.finetune.method_options)
    how = f" with {options_text(options)}" if options else ""
    partly = f", {partial} partly annotated" if partial else ""
    reporter.say(f"method: {method}{how} ({_unlabelled(unlabelled)}{partly})")
    return settings.changed(method=method, method_options=options)


def _unlabelled(number: int) -> str:
    return counted(number, "unlabelled training image") if number else "no unlabelled training images"


def _with_tensorboard(reporter: Reporter, settings: Settings, folder: RunFolder) -> AbstractContextManager[Reporter]:
    wanted = settings.hardware.tensorboard and folder.writes
    return WithTensorBoard(reporter, folder / "tensorboard") if wanted else nullcontext(reporter)


@contextmanager
def _stoppable(folder: RunFolder) -> Iterator[Request | None]:
    """Handle Ctrl-C in the first process alone, so that all processes stop after the same update."""
    try:
        with interrupt_requests() as request:
            yield request if folder.writes else None
    except Interrupted as stop:
        raise Interrupted(f"{stop} Everything up to the last checkpoint is saved; continue with --resume.") from None


def _test(
    predictor: Predictor, dataset: Dataset, split: Split, folder: RunFolder, reporter: Reporter, request: Request | None,
    ended: Mapping[str, Any], grid: Grid, examples: Examples | None,
) -> None:  # fmt: skip
    """Evaluate on the test cases, which the store of the training stages refuses to return."""
    chosen: list[Shown] = []

    def look(case: str, prediction: np.ndarray, target: np.ndarray) -> None:
        if len(chosen) < PICTURES:
            chosen.append(shown(case, prediction, target, len(dataset.source.classes)))
        if examples is not None:
            examples.look(case, prediction, target, len(dataset.source.classes))

    def report(done: int, total: int) -> None:
        reporter.step("test", done, total, {})
        folder.still_there()
        if request is not None and request.made and done < total:
            raise Interrupted(
                f"Stopped after {done} of {total} test cases. The trained model is {folder / 'model.safetensors'}."
            )

    rows, summary = evaluate(
        predictor,
        dataset.source,
        split.test,
        store=dataset.store.restricted_to(dataset.source, images=split.test, masks=split.test),
        grid=grid,
        in_parts=partial(measure_large, predictor, dataset.source),
        look=look,
        report=report,
    )
    folder.save_rows("metrics.csv", rows)
    draw_cases(dataset.source, chosen, folder / "figures" / "test.png", "Test cases")
    if examples is not None:
        examples.draw(dataset.source, folder.path)
    warning = {name: text for name, text in folder.description().items() if name == "warning"}
    write_json(folder / "summary.json", summary | {"split_notes": list(split.provenance.notes), **ended} | warning)


def _close(folder: RunFolder, **ended: Any) -> None:
    folder.note(status="done", seconds=round(folder.seconds, 1), **ended)
    (folder / "checkpoint.pt").unlink(missing_ok=True)
