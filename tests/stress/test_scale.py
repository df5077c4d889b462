"""The work per file and per run does not grow with their number: counted in bytecodes of hebbseg, so without a clock."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hebbseg
from hebbseg.cli.grid_board import Board
from hebbseg.data.batches import Batches
from hebbseg.data.inspect import examine
from hebbseg.data.inspect_report import report
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import make_split
from hebbseg.data.store import CaseStore
from hebbseg.errors import printable
from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import load_recipe
from hebbseg.experiments.scheduler import run_tasks, tasks_of
from hebbseg.experiments.tasks import Outcome, Task
from hebbseg.reporting.results import read_results
from tests.data.trees import plain_folder
from tests.stress.scale import write_grid

HOME = str(Path(hebbseg.__file__).parent)
TOLERANCE = 1.15


def operations(work: Callable[[], Any]) -> int:
    """Return the number of bytecodes of hebbseg that a function executes, in all threads."""
    counts: dict[int, int] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            thread = threading.get_ident()
            counts[thread] = counts.get(thread, 0) + 1
        return trace

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
    return sum(counts.values())


def grows_linearly(count: Callable[[int], int], few: int, many: int) -> None:
    small, large = count(few), count(many)
    assert small > 50 * few, "the work is counted"
    assert large / small < TOLERANCE * many / few, f"{small} operations for {few}, {large} for {many}"


def test_a_quadratic_part_is_seen() -> None:
    def count(number: int) -> int:
        texts = ["a" * 20] * number
        return operations(lambda: [printable("".join(texts)) for _ in range(number)])

    with pytest.raises(AssertionError, match="operations for 4"):
        grows_linearly(count, 4, 32)


def test_check_is_linear_in_files(tmp_path: Path) -> None:
    def count(number: int) -> int:
        folder = plain_folder(tmp_path / str(number), [f"c{n:04}" for n in range(number)])
        return operations(lambda: report(examine(open_source(folder))))

    grows_linearly(count, 30, 240)


def test_a_grid_and_its_report_are_linear_in_runs(tmp_path: Path) -> None:
    class AtOnce:
        """An executor whose tasks are done at once."""

        slots = 1
        task: Task

        def submit(self, task: Task) -> None:
            self.task = task

        def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
            return [(self.task, Outcome(status="done", seconds=1.0))]

        def close(self) -> None: ...

    def counted(number: int) -> dict[str, int]:
        folder = tmp_path / str(number)
        folder.mkdir()
        recipe = write_grid(folder, number)
        tasks = tasks_of(plan(load_recipe(recipe), [Path()]), folder / "new")
        return {
            "start": operations(lambda: tasks_of(plan(load_recipe(recipe), [Path()]), folder / "new")),
            "run": operations(lambda: run_tasks(tasks, AtOnce(), Board)),  # type: ignore[arg-type]
            "report": operations(lambda: read_results([folder / "out"])),
        }

    few, many = counted(16), counted(64)
    for part, small in few.items():
        grows_linearly({16: small, 64: many[part]}.__getitem__, 16, 64)


def test_a_batch_of_stage_1_costs_the_same_for_any_number_of_images(tmp_path: Path) -> None:
    counts = []
    for number in (16, 128):
        source = open_source(plain_folder(tmp_path / str(number), [f"c{n:04}" for n in range(number)], masks=[]))
        training = make_split(source, labelled="0", test=0.0).training
        store = CaseStore.for_training(
            source, training, preprocessing=Preprocessing(size=(8, 8), normalize="unit"), memory_limit_bytes=0, folder=tmp_path
        )
        store.load()
        batches = Batches(store=store, training=training, steps=10, image_batch=4)
        batches.images_only(0)  # draws the order of the epoch
        counts.append(operations(partial(batches.images_only, 1)))
    assert counts[1] < TOLERANCE * counts[0], counts
