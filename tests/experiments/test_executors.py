"""Executors: worker processes that are killed, and Ray giving the same as processes."""

import os
import signal
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from hebbseg.errors import HebbsegError
from hebbseg.experiments.executors.executor import threads_per_job
from hebbseg.experiments.executors.local import LocalExecutor
from hebbseg.experiments.tasks import Outcome, Task
from tests.experiments.tinygrid import SETTINGS, InThisProcess, run_all, tiny_tasks

NO_RAY = "Ray is not installed (extra cluster)"


class Killing(LocalExecutor):
    """Sends a signal to a worker in the middle of its task, the first time there is one far enough."""

    killed: Task | None = None

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(jobs=1, threads=1)
        self.number = number
        self.workers: set[int | None] = set()

    def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
        for worker, task in self._busy.items():
            self.workers.add(worker.process.pid)
            if self.killed is None and (task.folder / "checkpoint.pt").exists():
                self.killed = task
                os.kill(worker.process.pid or 0, self.number)
        return super().wait(0.02)


def results(tasks: list[Task]) -> list[bytes]:
    return [(task.folder / "metrics.csv").read_bytes() for task in tasks if task.kind == "train"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_replaced_and_its_run_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    changes = {
        "settings": SETTINGS | {"updates": 40, "checkpoint_every_s": 0.0, "labelled": "4"},
        "axes": {"seed": [0, 1]},
        "arms": [{"name": "S", "init": "random"}],
        "baseline": None,
    }
    tasks = tiny_tasks(tmp_path / "killed", **changes)
    executor = Killing(number)
    result = run_all(tasks, executor)
    assert executor.killed is not None and not result.failed and result.now == len(tasks) == 2
    assert len(executor.workers) == 2, "a new one for the one that was killed"
    begun = {task.id: task.log.read_text(encoding="utf-8").count(f" {task.id}\n") for task in tasks}
    assert begun == {task.id: 2 if task.id == executor.killed.id else 1 for task in tasks}
    alone = tiny_tasks(tmp_path / "alone", **changes)
    run_all(alone, InThisProcess())
    assert results(tasks) == results(alone)


def test_workers_asked_to_stop_save_and_end(tmp_path: Path) -> None:
    (task,) = tiny_tasks(
        tmp_path, settings=SETTINGS | {"updates": 100_000, "checkpoint_every_s": 0.0, "labelled": "4"}, axes={"seed": [0]},
        arms=[{"name": "S", "init": "random"}], baseline=None,
    )  # fmt: skip
    executor = LocalExecutor(jobs=1, threads=1)
    try:
        executor.submit(task)
        until = time.monotonic() + 60
        while not (task.folder / "checkpoint.pt").exists():
            assert executor.wait(0.05) == [] and time.monotonic() < until
        executor.ask_to_stop()
        ((_, outcome),) = executor.wait(30)
        assert outcome.status == "stopped" and "Stopped after update" in outcome.message
    finally:
        executor.close()


def test_threads_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("hebbseg.experiments.executors.executor.cores", lambda: 8)
    assert [threads_per_job(jobs) for jobs in (1, 2, 3, 8, 16)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_per_job(8) == 3


def test_without_ray_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from hebbseg.experiments.executors.ray import RayExecutor

    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(HebbsegError, match=r"hebbseg\[cluster\]"):
        RayExecutor(jobs=1, address=None, cpus_per_run=1, gpus_per_run=0)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason=NO_RAY)
def test_ray_gives_what_processes_give(tmp_path: Path) -> None:
    from hebbseg.experiments.executors.ray import RayExecutor

    executor = RayExecutor(jobs=2, address=None, cpus_per_run=1, gpus_per_run=0)
    ours = tiny_tasks(tmp_path / "ray", axes={"labelled": ["4"], "seed": [0]})
    assert not run_all(ours, executor).failed
    theirs = tiny_tasks(tmp_path / "here", axes={"labelled": ["4"], "seed": [0]})
    run_all(theirs, InThisProcess())
    assert results(ours) == results(theirs)


@pytest.mark.skipif(find_spec("ray") is None, reason=NO_RAY)
def test_an_address_where_nobody_listens_is_said_at_once() -> None:
    from hebbseg.experiments.executors.ray import RayExecutor

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begun = time.monotonic()
    with pytest.raises(HebbsegError, match=rf"--address 127.0.0.1:{port}: no connection"):
        RayExecutor(jobs=1, address=f"127.0.0.1:{port}", cpus_per_run=1, gpus_per_run=0)
    assert time.monotonic() - begun < 30
