"""Both stages of a run: initial weights, then fine-tuning."""

from collections.abc import Callable
from itertools import count

from torch import nn

from hebbseg.atomic_files import write_json
from hebbseg.config import Settings
from hebbseg.data.progress import Reporter
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import mean_dice
from hebbseg.hebbian.diagnostics import as_dict
from hebbseg.inference.predictor import Predictor
from hebbseg.methods import make_method
from hebbseg.networks.factory import build_network
from hebbseg.networks.model_file import save_model
from hebbseg.pretraining.initializers import Initialized
from hebbseg.runs.context import RunContext
from hebbseg.runs.folder import RunFolder
from hebbseg.training.ema import recalibrate_norms
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.loop import fit
from hebbseg.training.session import Row, Session, State

SEEDS_APART = 1_000_003  # between the networks of a method that has several

Initialize = Callable[[RunContext, int], tuple[nn.Module, Initialized]]
"""Gives network number 0 (or 1, 2, … for methods that have several) of a run with its initial weights."""


def stage1_session(
    settings: Settings, folder: RunFolder, state: State | None, reporter: Reporter, request: Request | None
) -> Session:
    every_s = settings.hardware.checkpoint_every_s

    def save(make: Callable[[], State], now: bool) -> None:
        folder.checkpoint(lambda: {"stage": "pretrain", "state": make()}, every_s=every_s, now=now)

    return Session(
        state=state["state"] if state is not None and state["stage"] == "pretrain" else None,
        save=save,
        report=lambda done, total, row: reporter.step("stage 1", done, total, row),
        request=request,
    )


def train_stages(
    context: RunContext,
    folder: RunFolder,
    state: State | None,
    reporter: Reporter,
    request: Request | None,
    initialize: Initialize | None,
) -> tuple[Predictor, list[Row]]:
    """Stage 1, unless the state is of stage 2, then stage 2."""
    settings, classes = context.settings, len(context.source.classes)
    if state is not None and state["stage"] == "fit":

        def another() -> nn.Module:
            return build_network(**context.network_options(classes)).to(context.fabric.device)

        network, before, state2 = another(), state["history"], state["state"]
    else:
        if initialize is None:
            session = stage1_session(settings, folder, state, reporter, request)
            network, first = context.initialize(classes, settings.seed, session)
        else:
            network, first = initialize(context, 0)
        before, state2, numbers = first.history, None, count(1)
        _save_stage1(context, folder, network, first)

        def another() -> nn.Module:
            number = next(numbers)
            seed = settings.seed + number * SEEDS_APART
            return (initialize(context, number) if initialize else context.initialize(classes, seed))[0]

    def save(make: Callable[[], State], now: bool) -> None:
        whole = lambda: {"stage": "fit", "history": before, "state": make()}  # noqa: E731
        folder.checkpoint(whole, every_s=settings.hardware.checkpoint_every_s, now=now)

    method = make_method(
        settings.finetune.method,
        network=network,
        another=another,
        loss=settings.finetune.loss,
        augment=context.augment,
        options=settings.finetune.method_options,
    )
    try:
        kept, rows = fit(
            method,
            context.batches(unlabelled=method.uses_unlabelled, augmented=True, seed=settings.seed),
            settings.finetune,
            seed=settings.seed,
            fabric=context.fabric,
            validate=_validator(context) if context.training.validation else None,
            session=Session(
                state=state2,
                save=save,
                report=lambda done, total, row: reporter.step("stage 2", done, total, row),
                request=request,
            ),
        )
    except HebbsegError as error:
        if isinstance(error, Interrupted) or not (folder / "checkpoint.pt").exists():
            raise
        raise HebbsegError(f"{error} The last good checkpoint is {folder / 'checkpoint.pt'}.") from error
    recalibrate_norms(kept, context.calibration())
    return context.predictor(kept.cpu().eval()), [*before, *rows]


def _save_stage1(context: RunContext, folder: RunFolder, network: nn.Module, first: Initialized) -> None:
    if not folder.writes:
        return
    if first.diagnostics:
        write_json(folder / "pretrain.json", as_dict(first.diagnostics))
    described = {"network": context.network_options(len(context.source.classes))}
    save_model(folder / "pretrained.safetensors", network.state_dict(), described)


def _validator(context: RunContext) -> Callable[[nn.Module], float]:
    """Mean Dice over foreground classes and validation cases, at the size of training."""

    def validate(network: nn.Module) -> float:
        predictor = context.predictor(network)
        values = []
        for name in context.training.validation:
            probabilities = predictor.probabilities_of_preprocessed(context.store.images([name])[0])
            target = context.store.mask(name).numpy()
            values.append(mean_dice(probabilities.argmax(0).numpy(), target, len(context.source.classes)))
        return sum(values) / len(values)

    return validate
