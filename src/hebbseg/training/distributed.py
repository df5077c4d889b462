"""Launch and shutdown of a run in several processes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning_fabric import Fabric

from hebbseg.config import Settings
from hebbseg.errors import HebbsegError

logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # no "Using bfloat16 …" for each run

BFLOAT16 = ("avx512_bf16", "amx_bf16")
"""Instruction sets with bfloat16 products. On other processors it is emulated and slower than float32."""


def make_fabric(settings: Settings) -> Fabric:
    """Return devices, precision and processes of a run; `launched` starts the other processes."""
    hardware = settings.hardware
    return available_fabric(
        accelerator=hardware.accelerator,
        devices=hardware.devices,
        num_nodes=hardware.num_nodes,
        precision=resolved_precision(settings.finetune.precision, hardware.accelerator),
        strategy="ddp" if hardware.devices * hardware.num_nodes > 1 else "auto",
    )


def resolved_precision(precision: str, accelerator: str) -> str:
    """Return the precision that ``auto`` stands for on this machine: bf16-mixed where bfloat16 is computed in hardware."""
    if precision != "auto":
        return precision
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    if accelerator in ("gpu", "cuda", "mps") or (accelerator == "auto" and torch.backends.mps.is_available()):
        return "32-true"
    cpu = torch.cpu.get_capabilities()
    return "bf16-mixed" if any(cpu.get(name) for name in BFLOAT16) else "32-true"


def uses_gpu(accelerator: str) -> bool:
    """Return whether a run with this setting uses a GPU on this machine."""
    if accelerator == "auto":
        return torch.cuda.is_available() or torch.backends.mps.is_available()
    return accelerator != "cpu"


def available_fabric(*, accelerator: str, devices: int, **options: Any) -> Fabric:
    """Return a Fabric, or raise an error that names the device this machine lacks."""
    try:
        return Fabric(accelerator=accelerator, devices=devices, **options)
    except Exception as error:  # each accelerator raises its own type
        raise HebbsegError(
            f"accelerator={accelerator!r}, devices={devices}: not available on this machine "
            f"({' '.join(str(error).split())}). accelerator=auto uses an available device."
        ) from error


@contextmanager
def launched(fabric: Fabric) -> Iterator[None]:
    """Start the other processes, each of which runs the program up to here, and end them if this one fails.

    Only the first process reports user errors; the others encounter the same error or wait for a process that has ended.
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
    """Kill the processes that this one started; while waiting for another process they ignore other signals."""
    started = getattr(fabric.strategy.launcher, "procs", [])
    processes = list(started)
    started.clear()  # Fabric watches this list and would kill this process as well
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
