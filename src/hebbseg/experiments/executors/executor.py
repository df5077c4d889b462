"""Common interface of the executors: processes on this machine, or a Ray cluster."""

import os
from typing import Protocol

from hebbseg.experiments.tasks import Outcome, Task

EXECUTORS = ("local", "ray")


class Executor(Protocol):
    """Executes tasks in parallel. It does not retry: if a worker is lost, the caller decides."""

    @property
    def slots(self) -> int:
        """Number of tasks that can run in parallel; can change with the cluster."""
        ...

    def submit(self, task: Task) -> None: ...

    def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
        """Return the tasks that have ended since the last call, after ``timeout_s`` at the latest."""
        ...

    def ask_to_stop(self) -> None:
        """Ask every running task to save its state and stop; `wait` returns their outcomes."""
        ...

    def close(self) -> None:
        """Kill all workers."""
        ...


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_job(jobs: int) -> int:
    """Return OMP_NUM_THREADS if it is set, else the number of cores per job."""
    return int(os.environ.get("OMP_NUM_THREADS") or max(1, cores() // jobs))


def make_executor(name: str, *, jobs: int | None, address: str | None, cpus_per_run: float, gpus_per_run: float) -> Executor:
    """Return the executor of that name; for the arguments, see `RayExecutor`. Local jobs default to one."""
    if name == "ray":
        from hebbseg.experiments.executors.ray import RayExecutor

        return RayExecutor(jobs=jobs, address=address, cpus_per_run=cpus_per_run, gpus_per_run=gpus_per_run)
    from hebbseg.experiments.executors.local import LocalExecutor

    jobs = jobs or 1
    return LocalExecutor(jobs=jobs, threads=threads_per_job(jobs))
