"""Ratios measured side by side: the contenders take turns, so that whatever else the machine does hits all alike."""

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def seconds(
    contenders: dict[str, Callable[[], Any]],
    *,
    rounds: int = 7,
    warm_up: int = 1,
    of: Callable[[list[float]], float] = min,
) -> dict[str, float]:
    """The time of each contender in its least disturbed of ``rounds`` turns: other work on a machine only ever adds.

    ``of`` takes another one: the median for work that a turn before it may have begun, as loaders do.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(warm_up + rounds):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            if turn >= warm_up:
                times[name].append(time.perf_counter() - start)
    return {name: of(each) for name, each in times.items()}


def row(name: str, ours: float, reference: float, *, at_most: float | None = None, at_least: float | None = None) -> Row:
    """A line of the table: ours / reference, and the limit that the ratio is held to."""
    ratio = ours / reference
    limit = f"≤ {at_most:g}" if at_most is not None else f"≥ {at_least:g}"
    held = ratio <= at_most if at_most is not None else at_least is not None and ratio >= at_least
    return {"name": name, "ours": ours, "reference": reference, "ratio": ratio, "required": limit, "held": held}


def peak_mib(module: str, case: str) -> float:
    """Peak memory of ``python -m module case`` beyond what it had after set-up, in MiB: each case a process of its own."""
    done = subprocess.run([sys.executable, "-m", module, case], capture_output=True, encoding="utf-8", check=True)
    return float(done.stdout.strip().splitlines()[-1])


def report_extra_peak(work: Callable[[], Any]) -> None:
    """Prints by how many MiB the peak of this process rises while ``work`` runs; for use in a process of its own."""
    gc.collect()
    _reset_peak()
    before = _resident_mib()
    work()
    print(_peak_mib() - before)


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123 - Path has no unbuffered write for /proc
        file.write("5")


def _status(key: str) -> float:
    with open("/proc/self/status") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident_mib() -> float:
    return _status("VmRSS:")


def _peak_mib() -> float:
    return _status("VmHWM:")
