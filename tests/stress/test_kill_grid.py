"""The benchmark that kills grids: it starts a real command, and sees what it is to see. Its runs take minutes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stress import kill_grid
from tests.stress.kill_grid import COMMAND, RUNS, Outcome, done_twice, finished, wait_for, workers

GOOD = Outcome(code=0, done=RUNS, twice=[], again=2, cut=2, same=True)


def test_its_command_is_the_command_line() -> None:
    shown = subprocess.run([*COMMAND, "--version"], capture_output=True, encoding="utf-8", check=True).stdout
    assert shown.startswith("hebbseg ")


def test_a_grid_that_did_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_grid, "COMMAND", (sys.executable, "-c", "pass"))
    with pytest.raises(SystemExit, match=rf"0 of {RUNS} runs done, exit code 0; nothing to compare with"):
        kill_grid.main(["local"])


def test_a_grid_that_ends_too_early_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as driver, pytest.raises(SystemExit, match="0 runs done"):
        wait_for(driver, tmp_path, 1)


@pytest.mark.parametrize("change", [{"code": 1}, {"done": 23}, {"twice": ["a"]}, {"again": 3}, {"same": False}], ids=str)
def test_every_fault_is_named(change: dict[str, object]) -> None:
    assert GOOD.faults == [] and len(replace(GOOD, **change).faults) == 1  # type: ignore[arg-type]


def test_a_finished_run_that_is_written_again_is_seen(tmp_path: Path) -> None:
    for name, status in (("a", "done"), ("b", "done"), ("c", "running")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(json.dumps({"status": status}))
    before = finished(tmp_path)
    assert before.keys() == {"a", "b"} and done_twice(before, finished(tmp_path)) == []
    after = finished(tmp_path) | {"a": before["a"] + 1}
    assert done_twice(before, after) == ["a"] and done_twice(before, {"a": before["a"]}) == ["b"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it reads /proc")
def test_workers_are_found_by_descent() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()', 'ray::' + 'carry_out'])"
    driver = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        while not (found := workers(driver.pid)):
            assert driver.poll() is None
        assert len(found) == 1 and driver.pid not in found
    finally:
        driver.communicate(b"\n")
