"""A report over 2,000 run folders that were never trained: seconds and peak memory, held to 30 s and 1 GB.

python -m benchmarks.report [RUNS]     also prints the processor's seconds, which other work on the machine changes less

All tables and curves are made; predictions are not, as there are no models.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.reporting.runs import make_sota

from benchmarks.timing import Row, row

RUNS = 2000
SECONDS_AT_MOST = 30.0
MIB_AT_MOST = 1000 / 1.048576  # 1 GB
PER_DATASET = 300  # 6 arms × 5 regimes × 10 folds of one seed


def make(root: Path, runs: int) -> None:
    """Datasets of 300 runs, the last one cut short; a tenth of the runs, all that are drawn, have a history of 60 rows."""
    for number in range(-(-runs // PER_DATASET)):
        make_sota(root / f"g{number}", dataset=f"data{number}", recipe=f"recipe{number}", seeds=1, folds=10)
    for folder in sorted(root.glob("g*/runs/*"))[runs:]:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def measure(runs: int) -> tuple[float, float, float]:
    """Seconds, seconds of the processor and peak memory in MiB of the command, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root / "runs", runs)
        line = [
            sys.executable,
            "-m",
            "hebbseg",
            "report",
            str(root / "runs"),
            "-o",
            str(root / "r.html"),
            "--tables",
        ]
        begun = time.perf_counter()
        with subprocess.Popen([*line, str(root / "t")], stdout=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            said = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)  # of this process alone, not of others before it
            process.returncode = status
        took = time.perf_counter() - begun
        assert status == 0, said
        counted = int(said.split("runs", 1)[1].split()[0])
        assert counted == runs, said
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def run() -> list[Row]:
    took, _, peak = measure(RUNS)
    return [
        row(f"report over {RUNS} runs, seconds / limit", took, SECONDS_AT_MOST, at_most=1),
        row(f"report over {RUNS} runs, peak MiB / limit", peak, MIB_AT_MOST, at_most=1),
    ]


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    took, processor, peak = measure(runs)
    measured = {"seconds": round(took, 1), "processor_seconds": round(processor, 1), "peak_mib": round(peak)}
    print(json.dumps({"runs": runs} | measured))
