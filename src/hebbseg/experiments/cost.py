"""About how long a grid takes: a few updates of each kind of run are timed, and the rest is multiplication."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hebbseg.config import Settings
from hebbseg.data.progress import Quiet, duration
from hebbseg.experiments.executors.executor import threads_per_job
from hebbseg.experiments.probe import probe
from hebbseg.experiments.scheduler import left_of
from hebbseg.experiments.stage1_cache import fit_stage1
from hebbseg.experiments.tasks import Task, dataset_of
from hebbseg.runs.train import run

UPDATES = 6  # of stage 2 that are timed
STAGE1_S = 8.0  # of stage 1, at most


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of a task: ``fixed`` (reading, testing), and so much for each update and each look at validation cases."""

    fixed: float
    update: float = 0.0
    look: float = 0.0

    def of(self, settings: Settings) -> float:
        updates = settings.finetune.updates
        return self.fixed + updates * self.update + updates // settings.finetune.validate_every * self.look


def describe_plan(tasks: Sequence[Task], jobs: int) -> list[tuple[str, str]]:
    """How many runs there are and are left, how many fits of stage 1 they share, and what they cost, as names and values."""
    left = left_of(tasks)
    runs = [task for task in tasks if task.kind != "stage1"]
    fits = [task for task in tasks if task.kind == "stage1"]
    using = sum(len(task.stage1) for task in runs)
    facts = [
        ("runs", f"{len(runs)}, of which {sum(task.kind != 'stage1' for task in left)} are left"),
        ("stage 1", f"{len(fits)} fits for {using} starts, of which {sum(t.kind == 'stage1' for t in left)} are left"),
    ]
    if not left:
        return facts
    torch.set_num_threads(threads_per_job(jobs))
    total = 0.0
    besides: dict[str, float] = {}
    for like in _alike(left):
        cost = time_task(like[0], besides)
        whole = sum(cost.of(task.settings) for task in like)
        what = f"stage 1 ({like[0].settings.pretrain.init})" if like[0].kind == "stage1" else like[0].settings.finetune.method
        what = "probe" if like[0].kind == "probe" else what
        each = f"{cost.update:.2f} s an update, " if cost.update else ""
        facts.append((what, f"{each}{duration(whole / len(like))} each, {len(like)} left"))
        total += whole
    facts.append(("time", f"about {duration(total / jobs)} with {jobs} at a time, {duration(total)} in all"))
    return facts


def time_task(task: Task, besides: dict[str, float] | None = None) -> Cost:
    """Begins the task in a folder that is thrown away, and stops when enough is known.

    Args:
        besides: seconds of reading and testing by what they depend on, which is not the method: looked up and added to,
            so that volumes are tested once and not once for every method.
    """
    besides = {} if besides is None else besides
    timers: dict[str, Callable[[Task, Path], Cost]] = {
        "stage1": _time_stage1,
        "train": lambda task, folder: _time_run(task, folder, besides),
        "probe": _time_probe,
    }
    with tempfile.TemporaryDirectory() as folder:
        return timers[task.kind](task, Path(folder) / "timed")


def _alike(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks that cost the same, together: repetitions, label regimes, and runs that differ in their number of updates."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        settings = _one_repetition(task.settings)
        stage = settings.pretrain if task.kind == "stage1" else settings.finetune
        key = f"{task.kind} {settings.data} {settings.network} {stage} {settings.hardware}"
        groups.setdefault(key, []).append(task)
    return list(groups.values())


def _one_repetition(settings: Settings) -> Settings:
    return settings.changed(seed=0, split_seed=0, fold=None, labelled="", updates=1, validate_every=1)


class _Enough(Exception):
    """Timed long enough."""


class _Clock(Quiet):
    """When each step of a stage ended; `_Enough` after so many seconds or steps of it."""

    def __init__(self, stage: str, *, limit_s: float = math.inf, limit_steps: float = math.inf) -> None:
        self.stage = stage
        self.limit_s, self.limit_steps = limit_s, limit_steps
        self.begun = time.monotonic()
        self.ends: list[float] = []
        self.total = 0

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        if stage != self.stage:
            return
        self.ends.append(time.monotonic() - self.begun)
        self.total = total
        if self.ends[-1] - self.ends[0] > self.limit_s or len(self.ends) >= self.limit_steps:
            raise _Enough


def _from_scratch(task: Task, **changes: Any) -> Settings:
    return task.settings.changed(init="random", init_options={}, time_budget_s=None, **changes)


def _time_run(task: Task, folder: Path, besides: dict[str, float]) -> Cost:
    like = _one_repetition(task.settings)
    known = f"{like.data} {like.network} {like.finetune.precision} {like.finetune.tta}"
    dataset = dataset_of(task.settings)
    clock = _Clock("stage 2", limit_steps=UPDATES if known in besides else math.inf)
    with suppress(_Enough):
        run(_from_scratch(task, updates=UPDATES), folder, dataset=dataset, reporter=clock)
    whole = time.monotonic() - clock.begun
    # The first update warms up, and the last one is followed by a look at the validation cases, if there are any.
    steps = [b - a for a, b in zip(clock.ends, clock.ends[1:], strict=False)]
    update = median(steps[:-1])
    fixed = besides.setdefault(known, whole - UPDATES * update)
    return Cost(fixed=fixed, update=update, look=max(0.0, steps[-1] - update))


def _time_probe(task: Task, folder: Path) -> Cost:
    dataset, begun = dataset_of(task.settings), time.monotonic()
    probe(_from_scratch(task), folder, dataset=dataset, reporter=Quiet())
    return Cost(fixed=time.monotonic() - begun)


def _time_stage1(task: Task, folder: Path) -> Cost:
    dataset, clock = dataset_of(task.settings), _Clock("stage 1", limit_s=STAGE1_S)
    try:
        fit_stage1(task.settings, task.network, folder, dataset=dataset, reporter=clock)
    except _Enough:
        step = (clock.ends[-1] - clock.ends[0]) / (len(clock.ends) - 1)
        return Cost(fixed=clock.ends[0] + step * clock.total)
    return Cost(fixed=time.monotonic() - clock.begun)
