"""A grid of 24 runs whose workers, and then whose driver, are killed: nothing may be lost, repeated or changed.

python -m benchmarks.kill_grid [local] [ray]

Every executor is compared with a local grid that was left alone. Linux only (it reads /proc).
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
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
RUNS, FITS, KILLS = 24, 6, 2
WORKERS = (b"spawn_main", b"ray::carry_out")


def start(recipe: Path, out: Path, executor: str, mark: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hebbseg.cli", "grid", str(recipe), "-o", str(out), "--jobs", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HEBBSEG_MARK": mark}
    with (out.parent / f"{out.name}.txt").open("ab") as log:
        return subprocess.Popen([*command, "--executor", executor], stdout=log, stderr=log, env=environment)


def workers(mark: str) -> list[int]:
    """Processes that carry out tasks for the driver with that mark in its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if f"HEBBSEG_MARK={mark}".encode() in environment and any(word in line for word in WORKERS):
            found.append(int(folder.name))
    return sorted(found)


def finished(out: Path) -> dict[str, int]:
    """Runs that are done, and when their description was last written."""
    files = (out / "runs").glob("*/run.json")
    return {
        file.parent.name: file.stat().st_mtime_ns
        for file in files
        if '"status": "done"' in file.read_text(encoding="utf-8")
    }


def starts(out: Path) -> int:
    """How often a task was begun: each writes its own id into its log."""
    logs = (out / "logs").glob("*.log")
    return sum(line.endswith(f" {log.stem}") for log in logs for line in log.read_text(encoding="utf-8").splitlines())


def wait_for(out: Path, count: int) -> None:
    while len(finished(out)) < count:
        time.sleep(0.05)


def same(ours: Path, theirs: Path) -> bool:
    names = {path.name for path in (theirs / "runs").iterdir()}
    files = ("metrics.csv", "history.csv", "model.safetensors")
    return names == {path.name for path in (ours / "runs").iterdir()} and all(
        (ours / "runs" / name / file).read_bytes() == (theirs / "runs" / name / file).read_bytes()
        for name in names
        for file in files
    )


def kill_workers(recipe: Path, out: Path, executor: str) -> list[str]:
    moments = random.Random(0)
    driver = start(recipe, out, executor, mark := f"{executor}-workers")
    for kill in range(KILLS):
        wait_for(out, 5 + 8 * kill)
        time.sleep(moments.uniform(0.1, 0.6))
        os.kill(moments.choice(workers(mark)), signal.SIGKILL)
    code = driver.wait()
    return [
        f"exit code {code}",
        f"{len(finished(out))} of {RUNS} runs done",
        f"{starts(out) - RUNS - FITS} tasks begun again",
    ]


def kill_driver(recipe: Path, out: Path, executor: str) -> list[str]:
    driver = start(recipe, out, executor, f"{executor}-driver")
    wait_for(out, RUNS // 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = finished(out)
    code = start(recipe, out, executor).wait()
    after = finished(out)
    touched = sum(after[name] != moment for name, moment in before.items())
    return [
        f"exit code {code}",
        f"{len(before)} done when it was killed, {len(after)} in the end",
        f"{touched} of the first written again",
        f"{starts(out) - RUNS - FITS} tasks begun again",
    ]


def main(executors: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="kill-grid-"))
    recipe = folder / "kill.toml"
    recipe.write_text(RECIPE)
    begun = time.monotonic()
    assert start(recipe, folder / "alone", "local").wait() == 0, f"see {folder / 'alone.txt'}"
    print(f"left alone, local: {len(finished(folder / 'alone'))} runs in {time.monotonic() - begun:.0f} s")
    good = True
    for executor in executors:
        for what, kill in (("workers", kill_workers), ("driver", kill_driver)):
            out = folder / f"{executor}-{what}"
            facts = kill(recipe, out, executor)
            equal = same(out, folder / "alone") and len(finished(out)) == RUNS
            good = good and equal
            results = f"weights and metrics {'identical' if equal else 'DIFFER'}"
            print(f"{executor}, {what} killed: {', '.join(facts)}; {results}", flush=True)
    print(f"logs in {folder}")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main(sys.argv[1:] or ["local", "ray"])
