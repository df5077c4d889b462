"""Scheduler of a grid: skips finished tasks, resumes interrupted ones, and continues after a failure."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from hebbseg.experiments.executors.executor import Executor
from hebbseg.experiments.grid import GridRun
from hebbseg.experiments.tasks import Outcome, Task, described, is_done, take_over
from hebbseg.training.interrupt import Interrupted, Request, interrupt_requests

RETRIES = 2  # after the loss of a worker
POLL_S = 0.5
STOPPING_S = 60.0  # for running tasks to save their state


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a grid: the number of tasks done before and done now, and the failed ones with their outcome."""

    before: int
    now: int
    failed: dict[str, tuple[Task, Outcome]] = field(default_factory=dict)


def tasks_of(runs: Sequence[GridRun], out: Path) -> list[Task]:
    """Return the runs as tasks, each after the stage-1 fits it needs; a shared fit appears once."""
    tasks: dict[str, Task] = {}
    for run in runs:
        for fit in run.stage1:
            name, folder = f"stage1-{fit.key}", out / "stage1" / fit.key
            task = Task(id=name, kind="stage1", settings=fit.settings, folder=folder, out=out, network=fit.network)
            tasks.setdefault(name, task)
        tasks[run.id] = Task(
            id=run.id,
            kind=run.kind,
            settings=run.settings,
            folder=out / "runs" / run.id,
            out=out,
            stage1=tuple(out / "stage1" / fit.key for fit in run.stage1),
            note=run.note,
        )
    return list(tasks.values())


def left_of(tasks: Sequence[Task]) -> list[Task]:
    """Return the unfinished runs and the unfinished stage-1 fits they need."""
    runs = {task.id: task for task in tasks if task.kind != "stage1" and not is_done(task)}
    needed = {folder for run in runs.values() for folder in run.stage1}
    return [task for task in tasks if task.id in runs or (task.folder in needed and not is_done(task))]


class Board(Protocol):
    """Progress display of a grid, notified when a task starts, ends or cannot start."""

    def started(self, task: Task) -> None: ...

    def ended(self, task: Task, outcome: Outcome, *, again: bool = False) -> None: ...

    def blocked(self, task: Task) -> None: ...

    def summary(self) -> str: ...


MakeBoard = Callable[[Sequence[Task], dict[str, float | None], int], AbstractContextManager[Board]]
"""Called with all tasks of the grid, the seconds of those done before, and the number of parallel tasks."""


def run_tasks(tasks: Sequence[Task], executor: Executor, make_board: MakeBoard) -> Result:
    """Run all unfinished tasks; after Ctrl-C, raise `Interrupted` as soon as running tasks have saved their state."""
    left = left_of(tasks)
    ids = {task.id for task in left}
    needed = {folder for run in left for folder in run.stage1}
    counted = [task for task in tasks if task.kind != "stage1" or task.folder in needed]
    for task in tasks:
        if task.kind != "stage1" and task.id not in ids:
            take_over(task)
    done = {task.id: described(task.folder).get("seconds") for task in counted if task.id not in ids}
    with make_board(counted, done, executor.slots) as board, interrupt_requests() as request:
        try:
            failed = _Schedule(left, executor, board).run(request)
        finally:
            executor.close()
    return Result(before=len(done), now=len(left) - len(failed), failed=failed)


class _Schedule:
    """The waiting, running and failed tasks."""

    def __init__(self, left: Sequence[Task], executor: Executor, board: Board) -> None:
        self.waiting = {task.id: task for task in left}
        self.executor = executor
        self.board = board
        self.running: dict[str, Task] = {}
        self.losses: dict[str, int] = {}
        self.failed: dict[str, tuple[Task, Outcome]] = {}
        self.pending = {task.folder for task in left if task.kind == "stage1"}  # weights that do not exist yet
        self.broken: dict[Path, Task] = {}  # failed tasks by folder

    def run(self, request: Request) -> dict[str, tuple[Task, Outcome]]:
        while (self.waiting or self.running) and not request.made:
            while len(self.running) < self.executor.slots and (task := self._next()) is not None:
                self.executor.submit(self.waiting.pop(task.id))
                self.running[task.id] = task
                self.board.started(task)
            if self.running:  # none if all remaining tasks depend on a failed one
                self._collect(POLL_S)
        if request.made:
            self._stop()
        return self.failed

    def _next(self) -> Task | None:
        """Return the first task whose stage-1 weights exist; tasks that need a failed fit fail, too."""
        for task in list(self.waiting.values()):
            cause = next((self.broken[folder] for folder in task.stage1 if folder in self.broken), None)
            if cause is not None:
                message = f"stage 1 failed, see {cause.log}"
                self.failed[task.id] = (self.waiting.pop(task.id), Outcome(status="failed", message=message))
                self.board.blocked(task)
            elif self.pending.isdisjoint(task.stage1):
                return task
        return None

    def _collect(self, timeout_s: float, *, stopping: bool = False) -> None:
        for task, outcome in self.executor.wait(timeout_s):
            del self.running[task.id]
            again = False
            if outcome.status == "stopped" and not stopping:
                # The signal went to the worker (`kill`, machine shutdown), not to the grid.
                outcome = replace(outcome, status="lost", message="the worker process received SIGTERM from outside the grid")
            if outcome.status == "lost":
                self.losses[task.id] = self.losses.get(task.id, 0) + 1
                again = self.losses[task.id] <= RETRIES and not stopping
            if again:
                # First in the queue, as it is partly done.
                self.waiting = {task.id: task} | self.waiting
            elif outcome.status in ("failed", "lost"):
                self.failed[task.id] = (task, outcome)
                self.broken[task.folder] = task
            if not again:
                self.pending.discard(task.folder)
            self.board.ended(task, outcome, again=again)

    def _stop(self) -> None:
        self.executor.ask_to_stop()
        waited = 0.0
        while self.running and waited < STOPPING_S:
            self._collect(POLL_S, stopping=True)
            waited += POLL_S
        raise Interrupted(f"Stopped: {self.board.summary()}.")
