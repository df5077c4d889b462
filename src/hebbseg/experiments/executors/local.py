"""Worker processes on this machine; each imports torch once and executes one task after another."""

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from hebbseg.experiments.tasks import Outcome, Task, carry_out

WATCH_EVERY_S = 0.5


class LocalExecutor:
    """A pool of ``jobs`` processes with ``threads`` threads each. A process that dies is replaced at the next task."""

    def __init__(self, *, jobs: int, threads: int) -> None:
        self.slots = jobs
        self.threads = threads
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, Task] = {}

    def submit(self, task: Task) -> None:
        alive = [worker for worker in self._idle if worker.process.is_alive()]
        worker = alive.pop() if alive else _Worker(self.threads)
        self._idle = alive
        with suppress(OSError):  # the worker just died, which `wait` detects
            worker.connection.send(task)
        self._busy[worker] = task

    def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
        by_handle: dict[object, _Worker] = {}
        for worker in self._busy:
            by_handle[worker.connection] = by_handle[worker.process.sentinel] = worker
        ready = {by_handle[handle] for handle in wait(list(by_handle), timeout_s)}  # type: ignore[arg-type]
        ended = []
        for worker in ready:
            task = self._busy.pop(worker)
            outcome = worker.result()
            if outcome.status in ("lost", "stopped"):
                worker.end()  # a stopped worker has saved its task and is still alive
            else:
                self._idle.append(worker)
            ended.append((task, outcome))
        return ended

    def ask_to_stop(self) -> None:
        for worker in self._busy:
            worker.process.terminate()

    def close(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.end()
        self._idle, self._busy = [], {}


class _Worker:
    """A process and the pipe to it."""

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")
        self.connection, worker_end = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(worker_end, threads, os.getpid()), daemon=True)
        self.process.start()
        worker_end.close()  # so that the pipe closes when the worker ends

    def end(self) -> None:
        self.process.kill()
        self.process.join()

    def result(self) -> Outcome:
        try:
            if self.connection.poll():
                outcome = self.connection.recv()
                assert isinstance(outcome, Outcome)
                return outcome
        except (EOFError, OSError):
            pass
        self.process.join()
        code = self.process.exitcode
        if code == -signal.SIGTERM:
            return Outcome(status="stopped", message="stopped before it started")
        return Outcome(status="lost", message=f"the worker process ended ({_in_words(code)})")


def _in_words(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (": out of memory?" if name == "SIGKILL" else "")
    return f"exit code {code}"


def _work(connection: Connection, threads: int, driver: int) -> None:
    """Execute tasks from the pipe until it closes."""
    # Ctrl-C in the terminal reaches only the driver, which asks each worker once.
    os.setsid()
    threading.Thread(target=end_with, args=(driver,), daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is imported
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(carry_out(task))


def end_with(driver: int) -> None:
    """End this process when the driver ends, as a new driver may resume the same run."""
    while os.getppid() == driver:
        time.sleep(WATCH_EVERY_S)
    os._exit(1)
