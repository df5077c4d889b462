"""Who carries tasks out: processes on this machine, or a Ray cluster. One interface."""

import os
from typing import Protocol

from hebbseg.experiments.tasks import Outcome, Task

EXECUTORS = ("local", "ray")


class Executor(Protocol):
    """Carries out tasks side by side. A task is given once; what to do when its worker is lost is the caller's choice."""

    @property
    def slots(self) -> int:
        """How many tasks may be under way at once; may change with the cluster."""
        ...

    def submit(self, task: Task) -> None: ...

    def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
        """What has ended since; returns after ``timeout_s`` at the latest."""
        ...

    def ask_to_stop(self) -> None:
        """Asks every task under way to save its state and end; `wait` gives their outcomes."""
        ...

    def close(self) -> None:
        """Ends all workers, at once."""
        ...


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_job(jobs: int) -> int:
    """So that all jobs together keep every core busy and none twice; OMP_NUM_THREADS, where set, decides instead."""
    return int(os.environ.get("OMP_NUM_THREADS") or max(1, cores() // jobs))


def make_executor(name: str, *, jobs: int | None, address: str | None, cpus_per_run: float, gpus_per_run: float) -> Executor:
    """The executor of that name.

    Args:
        jobs: tasks at a time; default one locally, and what the cluster has room for with Ray.
        address: of a running Ray cluster, or None for a new one on this machine.
        cpus_per_run, gpus_per_run: what Ray keeps free for each.
    """
    if name == "ray":
        from hebbseg.experiments.executors.ray import RayExecutor

        return RayExecutor(jobs=jobs, address=address, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run)
    from hebbseg.experiments.executors.local import LocalExecutor

    jobs = jobs or 1
    return LocalExecutor(jobs=jobs, threads=threads_per_job(jobs))
