"""Time estimate of a grid: a few updates of each kind of run are timed and extrapolated."""

import math
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hebbseg.config import AUTO_BATCH, FinetuneSettings, Settings
from hebbseg.config.pretrain import PRETEXT
from hebbseg.data.progress import Quiet, duration
from hebbseg.experiments.executors.executor import threads_per_job
from hebbseg.experiments.probe import probe
from hebbseg.experiments.scheduler import left_of
from hebbseg.experiments.stage1_cache import fit_stage1
from hebbseg.experiments.tasks import Task, dataset_of
from hebbseg.runs.dataset import draw_split
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.planned import filled
from hebbseg.runs.train import run

UPDATES = 6  # timed updates of stage 2
STAGE1_S = 8.0  # time limit for stage 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of a task: ``fixed`` (reading, testing), and those of each update and each validation.

    Some methods start on labelled images alone, with the options ``start`` and ``start_updates``: an update then takes
    ``early`` seconds.
    """

    fixed: float
    update: float = 0.0
    validation: float = 0.0
    early: float = 0.0
    start: float = 0.0
    start_updates: int = 0

    def of(self, finetune: FinetuneSettings) -> float:
        """Return the seconds of a stage 2 whose length is in updates; a stage 1 or a probe has none."""
        validations = finetune.updates // finetune.validate_every
        seconds = self.fixed + self.of_updates(finetune.updates) + validations * self.validation
        return seconds if finetune.time_budget_s is None else min(seconds, finetune.time_budget_s)

    def of_updates(self, updates: int) -> float:
        starting = min(updates, max(math.ceil(self.start * updates), self.start_updates))
        return starting * self.early + (updates - starting) * self.update


def describe_plan(tasks: Sequence[Task], jobs: int) -> list[tuple[str, str]]:
    """Return (name, value) rows: the number of runs and stage-1 fits, how many are left to do, and their estimated time."""
    left = left_of(tasks)
    runs = [task for task in tasks if task.kind != "stage1"]
    runs_left = sum(task.kind != "stage1" for task in left)
    networks = sum(len(task.stage1) for task in runs)
    facts = [
        ("runs", f"{len(runs)} ({runs_left} left)"),
        ("stage 1", f"{len(tasks) - len(runs)} fits for {networks} networks ({len(left) - runs_left} left)"),
    ]
    if not left:
        return facts
    torch.set_num_threads(threads_per_job(jobs))
    total = 0.0
    fixed_costs: dict[str, float] = {}
    labelled: dict[str, int] = {}
    for group in _groups_of_equal_cost(left):
        first = group[0]
        cost = time_task(first, fixed_costs)
        lengths = [in_updates(task, labelled) for task in group]
        seconds = sum(map(cost.of, lengths))
        stage1, method = f"stage 1 ({first.settings.pretrain.init})", first.settings.finetune.method
        name = {"stage1": stage1, "train": method, "probe": "probe"}[first.kind]
        mean_s = sum(cost.of_updates(each.updates) for each in lengths) / sum(each.updates for each in lengths)
        per_update = f"{mean_s:.2f} s per update, " if cost.update else ""
        pretrain = first.settings.pretrain
        converges = first.kind == "stage1" and pretrain.init in PRETEXT and pretrain.epochs == "auto"
        bound = "at most " if converges else ""
        facts.append((name, f"{per_update}{bound}{duration(seconds / len(group))} each, {len(group)} left"))
        total += seconds
    facts.append(("time", f"about {duration(total / jobs)} with --jobs {jobs}, {duration(total)} of computation"))
    return facts


def in_updates(task: Task, labelled: dict[str, int]) -> FinetuneSettings:
    """Return the settings of stage 2 with its length in updates, also if it is given in epochs.

    Args:
        labelled: the number of labelled images by data set and label regime; reused and extended. It is that of the first
            fold: the others differ by the rounding of their size.
    """
    finetune = task.settings.finetune
    if task.kind != "train" or finetune.epochs is None:
        return finetune
    settings = task.settings.changed(fold=0 if task.settings.data.folds else task.settings.data.fold)
    dataset, key = dataset_of(settings), str(settings.data)
    source = dataset.source
    if key not in labelled:
        labelled[key] = len(draw_split(settings, source).training.labelled)
    batch = filled(settings, dataset).finetune.labelled_batch
    if batch == "auto":
        batch = AUTO_BATCH[source.spatial_dims]
    return finetune.in_updates(labelled=labelled[key], batch=batch)


def time_task(task: Task, fixed_costs: dict[str, float]) -> Cost:
    """Start the task in a temporary folder and stop as soon as its cost is known.

    Args:
        fixed_costs: seconds of reading and testing, which do not depend on the method; reused and extended, so that test
            cases are evaluated once and not once per method.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "timed"
        if task.kind == "stage1":
            return _time_stage1(task, folder)
        return _time_probe(task, folder) if task.kind == "probe" else _time_run(task, folder, fixed_costs)


def _groups_of_equal_cost(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group tasks that differ only in repetition, label regime or number of updates."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        settings = _one_repetition(task.settings)
        stage = settings.pretrain if task.kind == "stage1" else settings.finetune
        key = f"{task.kind} {settings.data} {settings.network} {stage} {settings.hardware}"
        groups.setdefault(key, []).append(task)
    return list(groups.values())


def _one_repetition(settings: Settings) -> Settings:
    return settings.changed(seed=0, split_seed=0, fold=None, labelled="", updates=1, epochs=None, validate_every=1)


class _Enough(Exception):
    """Timed long enough."""


class _Clock(Quiet):
    """Records when each step of a stage ends; raises `_Enough` at the limit of seconds or steps."""

    def __init__(self, stage: str, *, limit_s: float = math.inf, limit_steps: float = math.inf) -> None:
        self.stage = stage
        self.limit_s, self.limit_steps = limit_s, limit_steps
        self.start = time.monotonic()
        self.ends: list[float] = []
        self.total = 0

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        if stage != self.stage:
            return
        self.ends.append(time.monotonic() - self.start)
        self.total = total
        if self.ends[-1] - self.ends[0] > self.limit_s or len(self.ends) >= self.limit_steps:
            raise _Enough


def _from_scratch(task: Task, **changes: Any) -> Settings:
    return task.settings.changed(init="random", init_options={}, time_budget_s=None, **changes)


def _time_run(task: Task, folder: Path, fixed_costs: dict[str, float]) -> Cost:
    settings = _one_repetition(task.settings)
    key = f"{settings.data} {settings.network} {settings.finetune.precision} {settings.finetune.tta}"
    dataset = dataset_of(task.settings)
    clock = _Clock("stage 2", limit_steps=UPDATES if key in fixed_costs else math.inf)
    with suppress(_Enough):
        timed = _from_scratch(task, updates=UPDATES, epochs=None, validate_every=UPDATES)
        run(timed, folder, dataset=dataset, reporter=clock)
    elapsed = time.monotonic() - clock.start
    # The first update is a warm-up; the last one is followed by a validation if there are validation cases.
    steps = [after - before for before, after in pairwise(clock.ends)]
    update = median(steps[:-1])
    fixed = fixed_costs.setdefault(key, elapsed - UPDATES * update)
    cost = Cost(fixed=fixed, update=update, validation=max(0.0, steps[-1] - update))
    begun = RunFolder(folder).begun_with()
    assert begun is not None
    return _with_start(cost, begun.finetune, task, folder.with_name("later"), steps)


def _with_start(cost: Cost, finetune: FinetuneSettings, task: Task, folder: Path, steps: list[float]) -> Cost:
    """Return the cost with the updates after the start timed as well, if the method (not ``auto``) has a start."""
    options = dict(finetune.method_options)
    start, start_updates = float(options.get("start", 0)), int(options.get("start_updates", 0))
    if not start and not start_updates:
        return cost
    clock = _Clock("stage 2", limit_steps=UPDATES)
    at_once = options | {name: 0 for name in ("start", "start_updates") if name in options}
    length = {"updates": UPDATES + 1, "epochs": None, "validate_every": UPDATES + 1}
    timed = _from_scratch(task, method=finetune.method, method_options=at_once, **length)
    with suppress(_Enough):
        run(timed, folder, dataset=dataset_of(task.settings), reporter=clock)
    late = median(after - before for before, after in pairwise(clock.ends))
    started = max(1, max(math.ceil(start * UPDATES), start_updates) - 2)  # after the warm-up, before the last
    return replace(cost, update=late, early=median(steps[:-1][:started]), start=start, start_updates=start_updates)


def _time_probe(task: Task, folder: Path) -> Cost:
    dataset, start = dataset_of(task.settings), time.monotonic()
    probe(_from_scratch(task), folder, dataset=dataset, reporter=Quiet())
    return Cost(fixed=time.monotonic() - start)


def _time_stage1(task: Task, folder: Path) -> Cost:
    dataset, clock = dataset_of(task.settings, any_regime=True), _Clock("stage 1", limit_s=STAGE1_S)
    try:
        fit_stage1(task.settings, task.network, folder, dataset=dataset, reporter=clock)
    except _Enough:
        step = (clock.ends[-1] - clock.ends[0]) / (len(clock.ends) - 1)
        return Cost(fixed=clock.ends[0] + step * clock.total)
    return Cost(fixed=time.monotonic() - clock.start)
