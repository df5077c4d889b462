"""One run in several processes: how they begin, and how they end when something goes wrong in one of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning_fabric import Fabric

from hebbseg.config import Settings
from hebbseg.errors import HebbsegError


def make_fabric(settings: Settings) -> Fabric:
    """Devices, precision and processes of a run; `launched` starts the further processes."""
    hardware = settings.hardware
    several = hardware.devices * hardware.num_nodes > 1
    return available_fabric(
        accelerator=hardware.accelerator,
        devices=hardware.devices,
        num_nodes=hardware.num_nodes,
        precision=settings.finetune.precision,
        strategy="ddp" if several else "auto",
    )


def available_fabric(*, accelerator: str, devices: int, **options: Any) -> Fabric:
    """A fabric of devices that this machine has, or an error that says what it does not have."""
    try:
        return Fabric(accelerator=accelerator, devices=devices, **options)
    except Exception as error:  # each accelerator has an exception of its own for "not here"
        raise HebbsegError(
            f"accelerator={accelerator!r}, devices={devices}: not available on this machine "
            f"({' '.join(str(error).split())}). accelerator=auto takes what there is."
        ) from error


@contextmanager
def launched(fabric: Fabric) -> Iterator[None]:
    """Starts the further processes, each of which runs the whole program up to here, and ends them if this one fails.

    What the user can mend is said once, by the first process: the others meet the same error, or wait for a partner who
    is no longer there.
    """
    fabric.launch()
    try:
        yield
    except BaseException as error:
        _end_others(fabric)
        if fabric.global_rank > 0 and isinstance(error, HebbsegError | KeyboardInterrupt):
            raise SystemExit from None
        raise


def _end_others(fabric: Fabric) -> None:
    """Kills what this process has started; a process that waits for a partner hears no gentler word."""
    started = getattr(fabric.strategy.launcher, "procs", [])
    processes = list(started)
    # Fabric watches this list, and would kill this process too for what happens to those in it.
    started.clear()
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
