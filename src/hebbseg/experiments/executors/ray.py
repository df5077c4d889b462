"""Tasks on a Ray cluster, running or new. Ray is imported here and nowhere else."""

import socket
from typing import Any

from hebbseg.errors import HebbsegError
from hebbseg.experiments.tasks import Outcome, Task, carry_out

CONNECT_S = 5.0


class RayExecutor:
    """Tasks as Ray tasks; Ray chooses the machine, keeps the cores and GPUs free, and says when a worker is lost.

    Every machine must see the folder of the grid and the data under the same path.

    Args:
        jobs: tasks at a time; default what the cluster has room for. More than that lets an autoscaler add machines.
        address: of a running cluster (``auto`` finds the one of this machine), or None for a new one, here, which ends
            with this process.
        cpus_per_run, gpus_per_run: kept free for each task; torch uses as many threads as cores.
    """

    def __init__(self, *, jobs: int | None, address: str | None, cpus_per_run: float, gpus_per_run: float) -> None:
        try:
            import ray
        except ImportError:
            raise HebbsegError("--executor ray: Ray is not installed; `pip install hebbseg[cluster]`.") from None
        self._ray = ray
        self._jobs = jobs
        self._share = {"CPU": cpus_per_run, "GPU": gpus_per_run}
        _refuse_silence(address)
        try:
            ray.init(
                # None would mean the last cluster that was started on this machine, though it may be gone.
                address=address or "local",
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if address is None else None,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise HebbsegError(
                f"--address {address}: no Ray cluster lets us in there ({error}). Start one with `ray start --head`, or leave "
                "--address out for a new one on this machine. If it runs with token authentication, this process needs its "
                "token, too: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE (docs/experiments.md)."
            ) from None
        # What a lost worker's run needs is to be resumed, which is the caller's to do: Ray itself repeats nothing.
        remote = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)
        self._carry_out: Any = remote(carry_out)
        self._running: dict[Any, Task] = {}
        if self._room() < 1 and jobs is None:
            has = {name: ray.cluster_resources().get(name, 0) for name in self._share}
            self.close()
            raise HebbsegError(
                f"--cpus-per-run {cpus_per_run:g} --gpus-per-run {gpus_per_run:g}: the cluster has {has['CPU']:g} cores and "
                f"{has['GPU']:g} GPUs in all. Ask for less, or add machines (and then give --jobs)."
            )

    @property
    def slots(self) -> int:
        # At least one: where all machines are lost for now, it waits in Ray's queue for the next.
        return self._jobs or max(1, self._room())

    def _room(self) -> int:
        has = self._ray.cluster_resources()
        return int(min((has.get(name, 0) // share for name, share in self._share.items() if share), default=0))

    def submit(self, task: Task) -> None:
        self._running[self._carry_out.remote(task)] = task

    def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        return [(self._running.pop(reference), self._outcome(reference)) for reference in ready]

    def ask_to_stop(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference)  # arrives in the worker as Ctrl-C does

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _outcome(self, reference: Any) -> Outcome:
        try:
            outcome = self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            return Outcome(status="stopped", message="stopped before it had begun")
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            return Outcome(status="lost", message=f"its Ray worker was lost ({type(error).__name__}: {reason})")
        assert isinstance(outcome, Outcome)
        return outcome


def _refuse_silence(address: str | None) -> None:
    """Says at once that nothing listens at HOST:PORT; Ray itself waits for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise HebbsegError(
            f"--address {address}: nothing answers there ({error}). Start a cluster with `ray start --head --port {port}`, or "
            "leave --address out for a new one on this machine."
        ) from None
