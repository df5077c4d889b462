"""A grid of 24 runs whose workers, and then whose driver, are killed: nothing may be lost, repeated or changed.

python -m tests.stress.kill_grid [local] [ray]

Every executor is compared with a local grid that was left alone. Linux only (it reads /proc).
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

RECIPE = """
name = "kill"
baseline = "Supervised"
[settings]
size = [32, 32]
features = [4, 8, 16]
updates = 60
checkpoint_every_s = 0.2
[data.glands]
source = "phantom:glands?n=30&size=32"
[axes]
labelled = ["10%", "30%"]
seed = [0, 1, 2]
[[arms]]
name = "Supervised"
init = "random"
[[arms]]
name = "Hebbian"
init = "hebbian"
[[arms]]
name = "CPS"
init = "random"
method = "cps"
[[arms]]
name = "CPS + Hebbian"
gain_over = "CPS"
init = "hebbian"
method = "cps"
"""
RUNS, FITS, JOBS, KILLS = 24, 6, 2, 2
COMMAND = (sys.executable, "-m", "hebbseg")
WORKERS = (b"spawn_main", b"ray::carry_out")  # in the command line of a process that does tasks: ours, and Ray's


def start(recipe: Path, out: Path, executor: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "grid", str(recipe), "-o", str(out), "--jobs", str(JOBS), "--executor", executor]
    with (out.parent / f"{out.name}.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})


def workers(driver: int) -> list[int]:
    """Descendants of the driver that carry out tasks; Ray's have its own processes between them and the driver."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "PID (NAME) STATE PARENT …", and a name may hold anything.
            parents[int(folder.name)] = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:
            continue

    def descends(process: int) -> bool:
        while process in parents and process != driver:
            process = parents[process]
        return process == driver

    return sorted(pid for pid, line in lines.items() if any(word in line for word in WORKERS) and descends(pid))


def finished(out: Path) -> dict[str, int]:
    """Runs that are done, and when their description was last written."""
    files = (out / "runs").glob("*/run.json")
    return {
        file.parent.name: file.stat().st_mtime_ns for file in files if '"status": "done"' in file.read_text(encoding="utf-8")
    }


def starts(out: Path) -> int:
    """How often a task was begun: each writes its own id into its log."""
    logs = (out / "logs").glob("*.log")
    return sum(line.endswith(f" {log.stem}") for log in logs for line in log.read_text(encoding="utf-8").splitlines())


def wait_for(driver: subprocess.Popen[bytes], out: Path, count: int) -> None:
    """Until so many runs are done; a grid that ends before would leave nothing to kill."""
    while (done := len(finished(out))) < count:
        if driver.poll() is not None:
            raise SystemExit(f"the grid ended with {done} runs done and exit code {driver.returncode}, before it was killed")
        time.sleep(0.05)


def done_twice(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Runs that were done, and were lost or written once more."""
    return sorted(name for name, moment in before.items() if after.get(name) != moment)


def same(ours: Path, theirs: Path) -> bool:
    names = {path.name for path in (theirs / "runs").iterdir()}
    files = ("metrics.csv", "history.csv", "model.safetensors")
    return names == {path.name for path in (ours / "runs").iterdir()} and all(
        (ours / "runs" / name / file).read_bytes() == (theirs / "runs" / name / file).read_bytes()
        for name in names
        for file in files
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a grid ended that was disturbed. ``cut``: tasks that a kill may have cut, which alone may begin again."""

    code: int
    done: int
    twice: list[str]
    again: int
    cut: int
    same: bool

    @property
    def faults(self) -> list[str]:
        found = {
            f"exit code {self.code}": self.code != 0,
            f"{self.done} of {RUNS} runs done": self.done != RUNS,
            f"done before and written again: {', '.join(self.twice)}": bool(self.twice),
            f"{self.again} tasks begun again, though only {self.cut} were cut": self.again > self.cut,
            "weights or metrics differ": not self.same,
        }
        return [fault for fault, is_so in found.items() if is_so]


def kill_workers(recipe: Path, out: Path, alone: Path, executor: str) -> Outcome:
    moments = random.Random(0)
    driver = start(recipe, out, executor)
    before: dict[str, int] = {}
    for kill in range(KILLS):
        wait_for(driver, out, 5 + 8 * kill)
        time.sleep(moments.uniform(0.1, 0.6))
        while not (found := workers(driver.pid)):
            wait_for(driver, out, len(finished(out)))
            time.sleep(0.01)
        os.kill(moments.choice(found), signal.SIGKILL)
        before |= finished(out)
    return outcome(driver.wait(), out, alone, before, cut=KILLS)


def kill_driver(recipe: Path, out: Path, alone: Path, executor: str) -> Outcome:
    driver = start(recipe, out, executor)
    wait_for(driver, out, RUNS // 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = finished(out)
    return outcome(start(recipe, out, executor).wait(), out, alone, before, cut=JOBS)


def outcome(code: int, out: Path, alone: Path, before: dict[str, int], *, cut: int) -> Outcome:
    after = finished(out)
    return Outcome(
        code=code,
        done=len(after),
        twice=done_twice(before, after),
        again=starts(out) - RUNS - FITS,
        cut=cut,
        same=len(after) == RUNS and same(out, alone),
    )


def main(executors: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="kill-grid-"))
    recipe, alone = folder / "kill.toml", folder / "alone"
    recipe.write_text(RECIPE)
    begun = time.monotonic()
    code = start(recipe, alone, "local").wait()
    if code or len(finished(alone)) != RUNS:
        done = f"{len(finished(alone))} of {RUNS} runs done, exit code {code}"
        raise SystemExit(f"left alone, local: {done}; nothing to compare with. See {folder / 'alone.txt'}")
    print(f"left alone, local: {RUNS} runs in {time.monotonic() - begun:.0f} s", flush=True)
    good = True
    for executor in executors:
        for what, kill in (("workers", kill_workers), ("driver", kill_driver)):
            found = kill(recipe, folder / f"{executor}-{what}", alone, executor)
            good = good and not found.faults
            kept = f"{found.done} of {RUNS} runs done, {found.again} tasks begun again, no run done twice, weights identical"
            print(f"{executor}, {what} killed: {'; '.join(found.faults).upper() or kept}", flush=True)
    print(f"logs in {folder}")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main(sys.argv[1:] or ["local", "ray"])
