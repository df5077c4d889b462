"""What a grid adds to its runs: 200 trivial ones through one worker, its start and its end included.

python -m benchmarks.overhead [RUNS]
"""

import sys
import tempfile
import time
from pathlib import Path

from hebbseg.cli.grid_board import Board
from hebbseg.experiments.executors.local import LocalExecutor
from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import Recipe
from hebbseg.experiments.scheduler import run_tasks, tasks_of

LIMIT_S = 0.1


class Summing(LocalExecutor):
    """Adds up what the tasks themselves took."""

    own_s = 0.0

    def wait(self, timeout_s: float):  # type: ignore[no-untyped-def]
        ended = super().wait(timeout_s)
        self.own_s += sum(outcome.seconds for _, outcome in ended)
        return ended


def trivial(count: int) -> Recipe:
    return Recipe(
        name="trivial",
        settings={"size": [32, 32], "features": [2, 4], "updates": 1, "labelled_batch": 1, "labelled": "1"},
        data={"glands": {"source": "phantom:glands?n=4&size=32"}},
        axes={"seed": list(range(count))},
        arms=[{"name": "Supervised", "init": "random"}],
    )


def main(count: int) -> None:
    tasks = tasks_of(plan(trivial(count), [Path()]), Path(tempfile.mkdtemp()))
    executor = Summing(jobs=1, threads=1)
    begun = time.monotonic()
    result = run_tasks(tasks, executor, Board)
    whole = time.monotonic() - begun
    each = (whole - executor.own_s) / count
    print(
        f"{result.now} runs in {whole:.1f} s, {executor.own_s:.1f} s of it their own: "
        f"{each * 1000:.1f} ms added to each (limit {LIMIT_S * 1000:.0f} ms)"
    )
    raise SystemExit(0 if each <= LIMIT_S and not result.failed else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
