"""A grid small enough for tests."""

from pathlib import Path
from typing import Any

from hebbseg.cli.grid_board import Board
from hebbseg.experiments.executors.executor import Executor
from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import Recipe
from hebbseg.experiments.scheduler import Result, run_tasks, tasks_of
from hebbseg.experiments.tasks import Outcome, Task, carry_out

SETTINGS: dict[str, Any] = {
    "size": [32, 32], "features": [4, 8], "updates": 3, "labelled_batch": 2, "unlabelled_batch": 2, "pretrain_epochs": 1,
    "pretrain_batch": 4,
}  # fmt: skip
ROOT = [Path()]


def tiny(**changes: Any) -> dict[str, Any]:
    """The contents of a recipe with two arms and two seeds."""
    return {
        "name": "tiny",
        "table": "sota",
        "baseline": "Supervised",
        "settings": SETTINGS,
        "data": {"glands": {"source": "phantom:glands?n=12&size=32"}},
        "axes": {"labelled": ["2", "4"], "seed": [0, 1]},
        "arms": [
            {"name": "Supervised", "init": "random"},
            {"name": "Hebbian", "gain_over": "Supervised", "init": "hebbian"},
        ],
    } | changes


def tiny_tasks(out: Path, **changes: Any) -> list[Task]:
    return tasks_of(plan(Recipe(**tiny(**changes)), ROOT), out)


class InThisProcess:
    """An executor without processes; ``lose`` are ids of tasks whose worker is said to have died, each that many times."""

    slots = 2

    def __init__(self, lose: dict[str, int] | None = None) -> None:
        self.lose = dict(lose or {})
        self.begun: list[str] = []
        self.closed = False
        self._waiting: list[Task] = []

    def submit(self, task: Task) -> None:
        self.begun.append(task.id)
        self._waiting.append(task)
        assert len(self._waiting) <= self.slots

    def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
        task = self._waiting.pop(0)
        if self.lose.get(task.id, 0):
            self.lose[task.id] -= 1
            return [(task, Outcome(status="lost", message="killed"))]
        return [(task, carry_out(task))]

    def ask_to_stop(self) -> None:
        raise AssertionError("nobody asked")

    def close(self) -> None:
        self.closed = True


def run_all(tasks: list[Task], executor: Executor) -> Result:
    """As `hebbseg grid` does."""
    return run_tasks(tasks, executor, Board)
