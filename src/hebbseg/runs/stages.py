"""Both stages of a run: weight initialization and fine-tuning."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from torch import nn

from hebbseg.atomic_files import write_json
from hebbseg.config import UNLIMITED_UPDATES, Settings
from hebbseg.data.progress import Reporter
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import mean_dice
from hebbseg.hebbian.diagnostics import as_dict
from hebbseg.inference.predictor import Predictor
from hebbseg.methods import make_method
from hebbseg.networks.factory import build_network
from hebbseg.networks.model_file import save_model
from hebbseg.pretraining.initializers import Initialized
from hebbseg.runs.budget import limit_stage1, limit_stage2
from hebbseg.runs.context import RunContext
from hebbseg.runs.folder import RunFolder
from hebbseg.training.ema import recalibrate_norms
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.loop import fit
from hebbseg.training.session import Row, Session, State

TITLES = {"pretrain": "stage 1", "fit": "stage 2"}
SEEDS_APART = 1_000_003  # between the networks of a method with several

Initialize = Callable[[RunContext, int], tuple[nn.Module, Initialized]]
"""(context, number) → the initialized network of that number: 0, and 1, 2, … for methods with several."""


def _session(
    stage: str, settings: Settings, folder: RunFolder, state: State | None, reporter: Reporter, request: Request | None,
    **further: Any,
) -> Session:  # fmt: skip
    """Return the session of a stage. Its checkpoints also contain ``further``."""
    every_s = settings.hardware.checkpoint_every_s

    def save(make: Callable[[], State], now: bool) -> None:
        folder.checkpoint(lambda: {"stage": stage, **further, "state": make()}, every_s=every_s, now=now)

    return Session(
        state=state["state"] if state is not None and state["stage"] == stage else None,
        save=save,
        report=lambda done, total, row: reporter.step(TITLES[stage], done, total, row),
        request=request,
        checkpoint=folder / "checkpoint.pt",
    )


stage1_session = partial(_session, "pretrain")


def train_stages(
    context: RunContext,
    folder: RunFolder,
    state: State | None,
    reporter: Reporter,
    request: Request | None,
    initialize: Initialize | None,
    *,
    test_cases: int = 0,
    examples: bool = False,
) -> tuple[Predictor, list[Row], dict[str, Any]]:
    """Run stage 1, unless the state is from stage 2, then stage 2.

    Args:
        test_cases: number of cases that are tested afterwards, for which a time budget reserves time.
        examples: whether some of them are drawn for the page of the run.

    Returns:
        the predictor, the history, and ``updates_done``, ``updates_planned`` and ``stopped_by``.
    """
    budget = limit_stage1(context, folder, test_cases, reporter, examples=examples)
    settings, classes = context.settings, context.outputs
    resumed = state["history"] if state is not None and state["stage"] == "fit" else None

    def initialized(number: int) -> tuple[nn.Module, Initialized]:
        if resumed is not None:  # weights and history are in the state
            return build_network(**context.network_options(classes)).to(context.fabric.device), Initialized(history=resumed)
        if initialize is not None:
            return initialize(context, number)
        session = stage1_session(settings, folder, state, reporter, request) if number == 0 else None
        return context.initialize(classes, settings.run_seed + number * SEEDS_APART, session)

    network, first = initialized(0)
    if resumed is None:
        _save_stage1(context, folder, network, first)
    numbers = count(1)
    method = make_method(
        settings.finetune.method,
        network=network,
        another=lambda: initialized(next(numbers))[0],
        loss=settings.finetune.loss,
        augment=context.augment,
        options=settings.finetune.method_options,
    )
    ended: dict[str, Any] = {}
    session = replace(
        _session("fit", settings, folder, state, reporter, request, history=first.history),
        ended=lambda done, stopped_by: ended.update(_ended(done, settings.finetune.updates, stopped_by)),
    )
    try:
        kept, rows = fit(
            method,
            context.batches(unlabelled=method.uses_unlabelled, seed=settings.run_seed),
            limit_stage2(settings.finetune, budget, session.state, context.fabric),
            seed=settings.run_seed,
            fabric=context.fabric,
            validate=_validator(context) if context.training.validation else None,
            session=session,
        )
    except HebbsegError as error:
        if isinstance(error, Interrupted) or not (folder / "checkpoint.pt").exists():
            raise
        raise HebbsegError(f"{error} The last good checkpoint is {folder / 'checkpoint.pt'}.") from error
    if not context.training.validation:  # otherwise the network that was validated is tested
        recalibrate_norms(kept, context.calibration())
    return context.predictor(kept.cpu().eval()), [*first.history, *rows], ended


def _ended(done: int, planned: int, stopped_by: str) -> dict[str, Any]:
    """``updates_planned`` is None if only a time budget limits them."""
    limit = None if planned == UNLIMITED_UPDATES else planned
    return {"updates_done": done, "updates_planned": limit, "stopped_by": stopped_by}


def _save_stage1(context: RunContext, folder: RunFolder, network: nn.Module, first: Initialized) -> None:
    if folder.writes and first.diagnostics:
        write_json(folder / "pretrain.json", as_dict(first.diagnostics))
    if folder.writes:
        described = {"network": context.network_options(context.outputs)}
        save_model(folder / "pretrained.safetensors", network.state_dict(), described)


def _validator(context: RunContext) -> Callable[[nn.Module], float]:
    """Return a function that computes the mean Dice of the validation cases, to select weights.

    It is computed at the size used in training, whatever ``metrics_grid``: no result is reported from it.

    Averaged weights need norm statistics of their own, so these are recomputed before each validation.
    """
    calibration = context.calibration() if context.settings.finetune.ema and context.settings.network.norm == "batch" else []

    def validate(network: nn.Module) -> float:
        if calibration:
            recalibrate_norms(network, calibration)
        predictor = replace(context.predictor(network), tta="none")  # validation is frequent
        values = []
        for name in context.training.validation:
            probabilities = predictor.probabilities_of_preprocessed(context.store.images([name])[0])
            target = context.store.mask(name).numpy()
            values.append(mean_dice(probabilities.argmax(0).numpy(), target, len(context.source.classes)))
        return sum(values) / len(values)

    return validate
