"""The time budget of a run, over reading, stage 1, stage 2 and test."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lightning_fabric import Fabric

from hebbseg.config import AUTO_INIT, PRETEXT, FinetuneSettings, PretrainSettings
from hebbseg.data.progress import Reporter, duration
from hebbseg.errors import HebbsegError
from hebbseg.methods import method_class
from hebbseg.pretraining.pretext import EPOCHS
from hebbseg.runs.context import RunContext
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.timing import Stage1Time, affords, time_stage1, time_test
from hebbseg.training.session import State

STAGE1_SHARE = 0.15
LEAST_UPDATES = 1000  # with masks alone, that a time budget must allow for stage 1 by default


@dataclass(frozen=True, kw_only=True)
class TimeBudget:
    """Divides a time limit: reading takes what it takes, stage 1 at most a share, the test what was measured, stage 2 the rest.

    Args:
        total_s: the limit.
        elapsed_s: returns the seconds of the run so far, those before an interruption included.
        test_s: reserved for the test and the figures.
    """

    total_s: float
    elapsed_s: Callable[[], float]
    test_s: float

    def stage1_s(self) -> float:
        """Return the seconds allowed for stage 1."""
        return max(0.0, min(STAGE1_SHARE * self.total_s, self.left_s()))

    def stage2_s(self, before_s: float = 0.0) -> float:
        """Return the time limit of stage 2, counted from its start.

        Args:
            before_s: its seconds before an interruption.
        """
        left = self.left_s()
        if left <= 0 and not before_s:
            elapsed_s = self.elapsed_s()
            least_s = 2 * (elapsed_s + self.test_s)
            raise HebbsegError(
                f"--time-budget {self.total_s:g} s is too short: {elapsed_s:.0f} s have passed before stage 2, and the test "
                f"needs about {self.test_s:.0f} s, so no time is left for training. Train "
                f"into another folder with at least {least_s:.0f} s, or with fewer test cases (--set test=0.1)."
            )
        return max(before_s + left, 1e-6)

    def left_s(self) -> float:
        """Return the seconds that are left for training."""
        return self.total_s - self.elapsed_s() - self.test_s


def limit_stage1(
    context: RunContext, folder: RunFolder, test_cases: int, reporter: Reporter, *, examples: bool = False
) -> TimeBudget | None:
    """Measure stage 1 and the test, shorten stage 1 in the settings of ``context``, and return the budget; None without one.

    With ``init="auto"``, a budget for fewer than `LEAST_UPDATES` updates leaves out stage 1. What is measured is noted in
    run.json, so that a resumed run continues with the same stage 1.

    Args:
        examples: reserve time for the page of the run.
    """
    total_s = context.settings.finetune.time_budget_s
    if total_s is None:
        return None
    noted = folder.description().get("time_budget") if folder.writes else None
    chosen: dict[str, Any] | None = context.fabric.broadcast(noted)  # all processes measure, or none
    if chosen is None:
        test_s = time_test(context).of(test_cases, page=examples) if test_cases else 0.0
        budget = TimeBudget(total_s=total_s, elapsed_s=lambda: folder.seconds, test_s=test_s)
        changed = _limited(context, budget)
        chosen = context.fabric.broadcast({"test_s": round(budget.test_s, 2), "stage1": changed})
    folder.note(time_budget=chosen)
    if chosen["stage1"]:
        reporter.say(f"time budget: {_described(chosen['stage1'], total_s)}")
        pretrain = context.settings.pretrain.model_copy(update=chosen["stage1"])
        context.settings = context.settings.model_copy(update={"pretrain": pretrain})
    return TimeBudget(total_s=total_s, elapsed_s=lambda: folder.seconds, test_s=chosen["test_s"])


def _limited(context: RunContext, budget: TimeBudget) -> dict[str, Any]:
    """Return the settings of stage 1 that the budget changes."""
    pretrain = context.settings.pretrain
    if pretrain.init == AUTO_INIT and not affords(context, LEAST_UPDATES, budget.left_s()):
        return {"init": "random"}
    allowed_s = budget.stage1_s() / _networks(context)
    stage1 = time_stage1(context, len(context.training.images), enough_s=allowed_s)
    short = shortened(pretrain, stage1, allowed_s, per_epoch=_per_epoch(context))
    return {name: getattr(short, name) for name in ("epochs", "max_batches")} if short != pretrain else {}


def _described(changed: Mapping[str, Any], total_s: float) -> str:
    if "init" in changed:
        least = f"fewer than {LEAST_UPDATES} updates fit into {duration(total_s)}"
        return f"{least}, so stage 1 is left out and weights stay random; --init hebbian includes it"
    described = ", ".join(f"pretrain_{name}={value}" for name, value in changed.items())
    return f"stage 1 is shortened to {STAGE1_SHARE:.0%} of {duration(total_s)} ({described})"


def limit_stage2(
    settings: FinetuneSettings, budget: TimeBudget | None, state: State | None, fabric: Fabric
) -> FinetuneSettings:
    """Return the settings of stage 2 with the time that is left for it."""
    if budget is None:
        return settings
    before_s = 0.0 if state is None else float(state["elapsed_s"])
    return settings.model_copy(update={"time_budget_s": fabric.broadcast(budget.stage2_s(before_s))})


def _networks(context: RunContext) -> int:
    return method_class(context.settings.finetune.method).networks


def _per_epoch(context: RunContext) -> int:
    batch = context.batches(seed=0).image_batch
    return min(math.ceil(len(context.training.images) / batch), context.settings.pretrain.max_batches or sys.maxsize)


def shortened(settings: PretrainSettings, time: Stage1Time, allowed_s: float, *, per_epoch: int) -> PretrainSettings:
    """Return the settings of stage 1 with fewer batches per epoch, and fewer epochs if need be, so that it fits.

    At least one batch of each layer remains.

    Args:
        time: the measured seconds of stage 1.
        per_epoch: its batches per epoch without a time limit.
    """
    if not time.rounds or time.total_s <= allowed_s:
        return settings
    rounds = max(1, int((allowed_s - time.fixed_s) / time.round_s))
    if settings.init in PRETEXT:
        # Until convergence has no length to shorten: it becomes a fixed number of epochs.
        epochs = min(EPOCHS if settings.epochs == "auto" else settings.epochs, max(1, rounds // per_epoch))
    else:
        epochs = min(int(settings.of_hebbian().epochs), rounds)
    return settings.model_copy(update={"epochs": epochs, "max_batches": max(1, min(per_epoch, rounds // epochs))})
