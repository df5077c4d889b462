"""Time and memory against size: stage 1 and check on many images, a grid and a report of many runs.

    python -m tests.stress.scale                          # everything at full size; takes about an hour on one core
    python -m tests.stress.scale check 1000 5000          # one of PARTS at given sizes

Each measurement runs in a process of its own, forked after the imports. Seconds are those of the processor, memory is the
largest resident set, of which "base" is that of the imports.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 64
RECIPE = """name = "many"
baseline = "random"
[settings]
size = [32, 32]
[data.glands]
source = "phantom:glands?n=16&size=32"
[axes]
seed = [{seeds}]
[[arms]]
name = "random"
init = "random"
method = "supervised"
[[arms]]
name = "Hebbian"
init = "hebbian"
method = "supervised"
"""
ARMS = 2
SCORE = {"mean": 0.5, "ci90": [0.4, 0.6]}
SUMMARY = {"n": 4, "unit": "px", "grid": "original", "dice_pooled": 0.5, "split_notes": []}


def write_images(folder: Path, count: int, *, masks: bool) -> Path:
    """Write this many grayscale images of noise with a brighter square, and their masks."""
    rng = np.random.default_rng(0)
    for kind in ("images", "masks") if masks else ("images",):
        (folder / kind).mkdir(parents=True)
    for number in range(count):
        image, mask = rng.integers(0, 100, (SIDE, SIDE), dtype=np.uint8), np.zeros((SIDE, SIDE), np.uint8)
        top, left = rng.integers(4, 36, 2)
        mask[top : top + 20, left : left + 20] = 255
        image[mask > 0] += 100
        for kind, array in (("images", image), ("masks", mask))[: 1 + masks]:
            Image.fromarray(array).save(folder / kind / f"case{number:05}.png", compress_level=1)
    return folder


def write_grid(folder: Path, count: int) -> Path:
    """Write a recipe of this many runs and the folders of finished runs, as a grid would; return the recipe."""
    from hebbseg.experiments.grid import plan
    from hebbseg.experiments.recipe import load_recipe
    from hebbseg.experiments.scheduler import tasks_of

    recipe = folder / "many.toml"
    recipe.write_text(RECIPE.format(seeds=", ".join(map(str, range(count // ARMS)))), encoding="utf-8")
    out = folder / "out"
    out.mkdir()
    (out / "recipe.toml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    for number, task in enumerate(tasks_of(plan(load_recipe(recipe), [Path()]), out)):
        if task.kind == "stage1":
            continue
        task.folder.mkdir(parents=True)
        run = {"status": "done", "settings": task.settings.flat(), "seed": task.settings.seed, "split_hash": "0" * 64}
        run |= {"split_notes": [], "versions": {}, "command": "hebbseg", "grid": task.note, "seconds": 1.0 + number % 7}
        score = {name: SCORE | {"mean": (number * 7919 % 1000) / 1000} for name in ("dice", "jaccard", "hd95", "asd")}
        (task.folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
        (task.folder / "summary.json").write_text(json.dumps(SUMMARY | score), encoding="utf-8")
    return recipe


@contextmanager
def measured(name: str, count: int) -> Iterator[None]:
    """Print the processor time per item, and the largest memory of the process."""
    base, start = peak_mb(), time.process_time()
    yield
    seconds = time.process_time() - start
    print(f"| {name} | {count} | {seconds:.1f} | {1000 * seconds / count:.2f} | {base} | {peak_mb()} |", flush=True)


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def stage1(folder: Path, count: int) -> None:
    """Stage 1 alone, one pass over the images, with 1 MB of images in memory: the others are on disk."""
    from hebbseg.config import make_settings
    from hebbseg.data.progress import Quiet
    from hebbseg.runs.train import pretrain_only

    data = write_images(folder / "data", count, masks=False)
    os.environ |= {"HEBBSEG_MEMORY_MB": "1", "HEBBSEG_CACHE": str(folder / "cache")}
    settings = {
        "size": (32, 32),
        "features": (4, 8, 16),
        "pretrain_epochs": 1,
        "pretrain_batch": 16,
        "pretrain_max_batches": None,
    }
    with measured("stage 1", count):
        pretrain_only(make_settings(str(data), settings), folder / "out", reporter=Quiet())


def check(folder: Path, count: int) -> None:
    """``hebbseg check`` on this many files: half are images, half are masks."""
    from hebbseg.data.inspect import examine
    from hebbseg.data.inspect_report import report
    from hebbseg.data.sources import open_source

    data = write_images(folder / "data", count // 2, masks=True)
    with measured("check", count):
        report(examine(open_source(str(data))))


def grid(folder: Path, count: int) -> None:
    """Start a grid whose runs are all done, then the board through every task of a grid of the same size."""
    from hebbseg.cli.grid_board import Board
    from hebbseg.experiments.grid import plan
    from hebbseg.experiments.recipe import load_recipe
    from hebbseg.experiments.scheduler import run_tasks, tasks_of
    from hebbseg.experiments.tasks import Outcome

    recipe = write_grid(folder, count)

    class Idle:
        slots = 1

        def close(self) -> None:
            pass

    with measured("grid, start with all runs done", count):
        tasks = tasks_of(plan(load_recipe(recipe), [Path()]), folder / "out")
        assert run_tasks(tasks, Idle(), Board).now == 0  # type: ignore[arg-type]
    with measured("grid, board", len(tasks)), Path(os.devnull).open("w") as nothing:
        sys.stderr, shown = nothing, sys.stderr
        board = Board(tasks, {}, 1)
        for task in tasks:
            board.started(task)
            board.ended(task, Outcome(status="done", seconds=1.0))
        sys.stderr = shown


def report(folder: Path, count: int) -> None:
    """``hebbseg report`` on this many runs, without pictures."""
    from hebbseg.reporting.html import write_report

    write_grid(folder, count)
    with measured("report", count):
        assert len(write_report([folder / "out"], folder / "report.html", pictures=False).results.runs) == count


PARTS: dict[str, tuple[Callable[[Path, int], None], tuple[int, ...]]] = {
    "stage1": (stage1, (1000, 5000, 20_000)),
    "check": (check, (2000, 10_000, 50_000)),
    "grid": (grid, (500, 5000)),
    "report": (report, (500, 5000)),
}


def in_child(work: Callable[[Path, int], None], size: int) -> int:
    """Run a part in a forked process; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            work(Path(folder), size)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("sizes", nargs="*", type=int)
    given = parser.parse_args()
    import hebbseg.reporting.html
    import hebbseg.runs.train  # noqa: F401  (before the fork)

    print("| what | number | seconds | ms each | base MB | peak MB |\n|---|---:|---:|---:|---:|---:|", flush=True)
    failed = 0
    for part in [given.part] if given.part else PARTS:
        work, sizes = PARTS[part]
        for size in given.sizes or sizes:
            failed |= in_child(work, size)
    return failed


if __name__ == "__main__":
    sys.exit(main())
