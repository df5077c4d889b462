"""Tasks on a Ray cluster, existing or new."""

import socket
from typing import Any

from hebbseg.errors import HebbsegError
from hebbseg.experiments.tasks import Outcome, Task, carry_out

CONNECT_S = 5.0


class RayExecutor:
    """Submits tasks to Ray, which chooses the machine and reserves cores and GPUs.

    The output folder and the data must have the same path on every machine.

    Args:
        jobs: number of parallel tasks; default what the cluster has resources for. With more, an autoscaler adds machines.
        address: of a running cluster (``auto`` finds the one on this machine), or None for a new local one, which ends
            with this process.
        cpus_per_run, gpus_per_run: reserved for each task; torch uses one thread per core.
    """

    def __init__(self, *, jobs: int | None, address: str | None, cpus_per_run: float, gpus_per_run: float) -> None:
        try:
            import ray
        except ImportError:
            raise HebbsegError("--executor ray: Ray is not installed. Run `pip install hebbseg[cluster]`.") from None
        self._ray = ray
        self._jobs = jobs
        self._share = {"CPU": cpus_per_run, "GPU": gpus_per_run}
        _check_connection(address)
        try:
            ray.init(
                # None would select the last cluster started on this machine, which may no longer run.
                address=address or "local",
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if address is None else None,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise HebbsegError(
                f"--address {address}: cannot connect to a Ray cluster ({error}). Start one with `ray start --head`, or omit "
                "--address to start one on this machine. A cluster with token authentication needs RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN_PATH=FILE in this environment (docs/how-to/experiments.md)."
            ) from None
        # No retries by Ray: the caller resumes the run of a lost worker.
        remote = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)
        self._carry_out: Any = remote(carry_out)
        self._running: dict[Any, Task] = {}
        if self._room() < 1 and jobs is None:
            has = {name: ray.cluster_resources().get(name, 0) for name in self._share}
            self.close()
            raise HebbsegError(
                f"--cpus-per-run {cpus_per_run:g} --gpus-per-run {gpus_per_run:g}: the cluster has {has['CPU']:g} cores and "
                f"{has['GPU']:g} GPUs in total. Reserve fewer, or set --jobs and add machines."
            )

    @property
    def slots(self) -> int:
        # At least one: without any machine, the task waits in Ray's queue for the next.
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
            self._ray.cancel(reference)  # acts like Ctrl-C in the worker

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _outcome(self, reference: Any) -> Outcome:
        try:
            outcome = self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            return Outcome(status="stopped", message="stopped before it started")
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            return Outcome(status="lost", message=f"the Ray worker was lost ({type(error).__name__}: {reason})")
        assert isinstance(outcome, Outcome)
        return outcome


def _check_connection(address: str | None) -> None:
    """Raise an error at once if HOST:PORT does not answer; Ray would wait for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise HebbsegError(
            f"--address {address}: no connection ({error}). Start a cluster with `ray start --head --port {port}`, or omit "
            "--address to start one on this machine."
        ) from None
