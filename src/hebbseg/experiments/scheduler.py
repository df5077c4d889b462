"""Carries out a grid: what is done is skipped, what was cut goes on, and one failure never stops the rest."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from hebbseg.experiments.executors.executor import Executor
from hebbseg.experiments.grid import GridRun
from hebbseg.experiments.tasks import Outcome, Task, described, is_done, take_over
from hebbseg.training.interrupt import Interrupted, Request, interrupt_requests

RETRIES = 2  # of a task whose worker is lost
POLL_S = 0.5
STOPPING_S = 60.0  # for tasks under way to save their state


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a grid ended: tasks done before, done now, and failed with what they said."""

    before: int
    now: int
    failed: dict[str, tuple[Task, Outcome]] = field(default_factory=dict)


def tasks_of(runs: Sequence[GridRun], out: Path) -> list[Task]:
    """The runs as tasks, each behind the fits of stage 1 it needs; a fit that several need comes once."""
    tasks: dict[str, Task] = {}
    for run in runs:
        for fit in run.stage1:
            folder = out / "stage1" / fit.key
            tasks.setdefault(
                f"stage1-{fit.key}",
                Task(
                    id=f"stage1-{fit.key}",
                    kind="stage1",
                    settings=fit.settings,
                    folder=folder,
                    out=out,
                    network=fit.network,
                ),
            )
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
    """What is still to do: runs that are not done, and the fits of stage 1 that those need."""
    runs = {task.id: task for task in tasks if task.kind != "stage1" and not is_done(task)}
    needed = {folder for run in runs.values() for folder in run.stage1}
    return [task for task in tasks if task.id in runs or (task.folder in needed and not is_done(task))]


class Board(Protocol):
    """Follows a grid: told of every task that begins, ends or cannot begin."""

    def begun(self, task: Task) -> None: ...

    def ended(self, task: Task, outcome: Outcome, *, again: bool = False) -> None: ...

    def blocked(self, task: Task) -> None: ...

    def summary(self) -> str: ...


MakeBoard = Callable[[Sequence[Task], dict[str, float | None], int], AbstractContextManager[Board]]
"""Gets all tasks of the grid, those done before with their seconds, and how many run at once."""


def run_tasks(tasks: Sequence[Task], executor: Executor, make_board: MakeBoard) -> Result:
    """All tasks that are not done; raises `Interrupted` after Ctrl-C, when everything under way is saved."""
    left = left_of(tasks)
    ids = {task.id for task in left}
    runs_left = [task for task in left if task.kind != "stage1"]
    needed = {folder for run in runs_left for folder in run.stage1}
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
    """The list of tasks to do, and what is under way."""

    def __init__(self, left: Sequence[Task], executor: Executor, board: Board) -> None:
        self.waiting = {task.id: task for task in left}
        self.executor = executor
        self.board = board
        self.running: dict[str, Task] = {}
        self.losses: dict[str, int] = {}
        self.failed: dict[str, tuple[Task, Outcome]] = {}

    def run(self, request: Request) -> dict[str, tuple[Task, Outcome]]:
        while (self.waiting or self.running) and not request.made:
            while len(self.running) < self.executor.slots and (task := self._next()) is not None:
                self.executor.submit(self.waiting.pop(task.id))
                self.running[task.id] = task
                self.board.begun(task)
            if self.running:  # nothing is, if all that was left waits for something that failed
                self._collect(POLL_S)
        if request.made:
            self._stop()
        return self.failed

    def _next(self) -> Task | None:
        """The first task whose weights of stage 1 are there; tasks that wait for failed ones fail with them."""
        coming = {task.folder for task in (*self.waiting.values(), *self.running.values()) if task.kind == "stage1"}
        broken = {task.folder: task for task, _ in self.failed.values()}
        for task in list(self.waiting.values()):
            cause = next((broken[folder] for folder in task.stage1 if folder in broken), None)
            if cause is not None:
                message = f"its stage 1 failed, see {cause.log}"
                self.failed[task.id] = (self.waiting.pop(task.id), Outcome(status="failed", message=message))
                self.board.blocked(task)
            elif not coming & set(task.stage1):
                return task
        return None

    def _collect(self, timeout_s: float, *, stopping: bool = False) -> None:
        for task, outcome in self.executor.wait(timeout_s):
            del self.running[task.id]
            again = False
            if outcome.status == "stopped" and not stopping:
                # Not by us: whoever did it (TERM to a worker, a machine that is shut down) did not ask the grid to end.
                outcome = replace(outcome, status="lost", message="its worker was told to end (SIGTERM), not by the grid")
            if outcome.status == "lost":
                self.losses[task.id] = self.losses.get(task.id, 0) + 1
                again = self.losses[task.id] <= RETRIES and not stopping
            if again:
                # First in the list: it is half done.
                self.waiting = {task.id: task} | self.waiting
            elif outcome.status in ("failed", "lost"):
                self.failed[task.id] = (task, outcome)
            self.board.ended(task, outcome, again=again)

    def _stop(self) -> None:
        self.executor.ask_to_stop()
        waited = 0.0
        while self.running and waited < STOPPING_S:
            self._collect(POLL_S, stopping=True)
            waited += POLL_S
        raise Interrupted(f"Stopped: {self.board.summary()}.")
