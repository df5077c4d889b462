"""Times of the parts of a run on this machine, measured on a few steps of each."""

import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from torch import nn

from hebbseg.config import AUTO_INIT, PRETEXT, FinetuneSettings
from hebbseg.data.splits.split import TrainingCases
from hebbseg.evaluation.evaluate import evaluate
from hebbseg.methods import make_method
from hebbseg.networks.factory import build_network
from hebbseg.pretraining.initializers import INITIALIZERS, is_initializer
from hebbseg.pretraining.pretext import EPOCHS
from hebbseg.runs.context import RunContext
from hebbseg.runs.pictures import Shown, draw_cases
from hebbseg.training.loop import fit
from hebbseg.training.session import Row, Session

BATCHES = 3  # of stage 1
UPDATES = 7  # of stage 2, spread over the whole of its schedule; the first is a warm-up
LONGEST_S = 60.0  # of measuring stage 2
CASES = 2  # predicted and evaluated
QUICK_S = 1.0  # a case that takes longer is not measured twice
DRAWN = 6  # test cases in figures/test.png
PAGE = 8  # drawings that the page of a run takes as long as
SPARE = 1.1  # the test is allowed more time than measured


@dataclass(frozen=True, kw_only=True)
class Stage1Time:
    """Seconds of stage 1: ``fixed_s``, and ``round_s`` for one batch of every layer; ``rounds`` are wanted in total.

    ``rounds`` is 0 without stage 1, and None for initializations of other packages, whose length is not known.
    """

    fixed_s: float = 0.0
    round_s: float = 0.0
    rounds: int | None = 0

    @property
    def total_s(self) -> float:
        return self.fixed_s + (self.rounds or 0) * self.round_s


def rounds_of_stage1(context: RunContext, images: int) -> int | None:
    """Return the number of batches per layer in stage 1, the largest possible if it trains until convergence.

    Args:
        images: number of training images.
    """
    pretrain = context.settings.pretrain
    without = pretrain.init == "random" or (pretrain.init == "random-rescaled" and pretrain.restore_norms)
    if without or not is_initializer(pretrain.init):
        return 0
    if pretrain.init not in (AUTO_INIT, *INITIALIZERS):
        return None
    if pretrain.init not in PRETEXT:
        pretrain = pretrain.of_hebbian()
    epochs = EPOCHS if pretrain.epochs == "auto" else pretrain.epochs
    batch = context.batches(seed=0).image_batch
    return epochs * min(math.ceil(images / batch), pretrain.max_batches or sys.maxsize)


def time_stage1(context: RunContext, images: int, *, enough_s: float = 0.0) -> Stage1Time:
    """Measure stage 1 with one and with several batches per layer, on networks that are not used further.

    Args:
        images: number of training images.
        enough_s: measure no further if the whole of stage 1 is sure to take less.
    """
    rounds = rounds_of_stage1(context, images)
    if not rounds:
        return Stage1Time(rounds=rounds)
    per_epoch = math.ceil(len(context.training.images) / context.batches(seed=0).image_batch)
    several = min(BATCHES, per_epoch)
    first = _seconds_of_stage1(context, several)  # with the warm-up, so that the time of a batch is an upper bound
    if first / several * rounds <= enough_s or several == 1:
        return Stage1Time(round_s=first / several, rounds=rounds)
    one = _seconds_of_stage1(context, 1)
    round_s = max((first - one) / (several - 1), 0.05 * one)
    return Stage1Time(fixed_s=max(0.0, one - round_s), round_s=round_s, rounds=rounds)


def _seconds_of_stage1(context: RunContext, batches: int) -> float:
    """Return the seconds of stage 1 with this many batches per layer, on a network that is not used further."""
    kept = context.settings
    short = kept.pretrain.model_copy(update={"epochs": 1, "max_batches": batches, "settle": 0.0})
    try:
        context.settings = kept.model_copy(update={"pretrain": short})
        with torch.random.fork_rng(devices=[]):
            return _seconds(lambda: context.initialize(2, kept.run_seed))
    finally:
        context.settings = kept


@dataclass(frozen=True, kw_only=True)
class EvaluationTime:
    """Seconds to predict and evaluate a test case, and to draw one."""

    case_s: float
    drawing_s: float

    def of(self, cases: int, *, page: bool = False) -> float:
        """Return the seconds of testing this many cases and drawing the figures, with a reserve.

        Args:
            page: also of drawing those of the page of the run.
        """
        figures_s = self.drawing_s * (min(cases, DRAWN) + 1 + (PAGE if page else 0))  # and the training curves
        return SPARE * (self.case_s * cases + figures_s) if cases else 0.0


def time_test(context: RunContext) -> EvaluationTime:
    """Measure prediction, evaluation and drawing on labelled training cases, with an untrained network."""
    predictor = context.predictor(_network(context).cpu().eval())
    source, ids = context.source, context.training.labelled[:CASES]
    shown: list[Shown] = []

    def look(case: str, prediction: np.ndarray, target: np.ndarray) -> None:
        shown.append(Shown(case=case, prediction=prediction, target=target, dice=0.0))

    def draw(path: Path) -> None:
        draw_cases(source, shown, path, "Time")

    context.store.images(ids[:1]), context.store.masks(ids[:1])  # decoded before
    case_s = _seconds(lambda: evaluate(predictor, source, ids[:1], store=context.store, look=look))
    if case_s < QUICK_S and len(ids) > 1:  # the first case has the warm-up
        case_s = _seconds(lambda: evaluate(predictor, source, ids[1:], store=context.store))
    with tempfile.TemporaryDirectory() as folder:
        return EvaluationTime(case_s=case_s, drawing_s=_seconds(lambda: draw(Path(folder) / "test.png")))


class _Enough(Exception):
    """Measured long enough."""


def time_update(context: RunContext) -> float:
    """Return the mean seconds of an update of stage 2, over updates spread from its start to its end."""
    finetune = context.settings.finetune
    steps = _seconds_of_updates(context, finetune, enough=lambda steps: sum(steps) > LONGEST_S and len(steps) > 1)
    return mean(steps[1:] or steps)


def affords(context: RunContext, updates: int, within_s: float) -> bool:
    """Return whether this many updates with masks alone fit into a time; measures as few as decide it, mostly one."""
    finetune = context.settings.finetune.model_copy(update={"method": "supervised", "method_options": {}})

    def fits(step_s: float) -> bool:
        return updates * step_s <= within_s

    # The first update has the warm-up: if it fits, all fit; if a third of it does not, none does.
    steps = _seconds_of_updates(context, finetune, enough=lambda steps: fits(steps[0]) or not fits(steps[0] / 3))
    return context.fabric.broadcast(fits(mean(steps[1:] or steps)))


def _seconds_of_updates(
    context: RunContext, planned: FinetuneSettings, *, enough: Callable[[list[float]], bool]
) -> list[float]:
    """Return the seconds of `UPDATES` updates of stage 2, or of those until ``enough``; the network is not used further."""
    finetune = planned.model_copy(update={"updates": UPDATES, "epochs": None, "time_budget_s": None})
    options = dict(finetune.method_options)
    if "start_updates" in options:  # the measured updates stand for all
        options["start_updates"] = int(options["start_updates"]) * UPDATES // planned.updates
    method = make_method(
        finetune.method,
        network=_network(context),
        another=lambda: _network(context),
        loss=finetune.loss,
        augment=context.augment,
        options=options,
    )
    last, steps = time.monotonic(), []

    def report(done: int, total: int, row: Row) -> None:
        nonlocal last
        now = time.monotonic()
        steps.append(now - last)
        last = now
        if context.fabric.broadcast(enough(steps)):  # all processes end together
            raise _Enough

    batches = context.batches(unlabelled=method.uses_unlabelled, seed=context.settings.run_seed)
    try:
        with torch.random.fork_rng(devices=[]):
            fit(method, batches, finetune, fabric=context.fabric, session=Session(report=report))
    except _Enough:
        pass
    return steps


def few_cases(training: TrainingCases, *, labelled: int = 8, unlabelled: int = 8) -> TrainingCases:
    """Return training cases for measuring, so that few files are read."""
    return TrainingCases(labelled=training.labelled[:labelled], unlabelled=training.unlabelled[:unlabelled])


def _network(context: RunContext) -> nn.Module:
    options = context.network_options(context.outputs)
    return build_network(**options, seed=context.settings.run_seed).to(context.fabric.device)


def _seconds(function: Callable[[], object]) -> float:
    start = time.monotonic()
    function()
    return time.monotonic() - start
