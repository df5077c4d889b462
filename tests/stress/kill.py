"""Kills a run at ten random moments, five in each stage, resumes it each time, and compares it with one left alone.

python -m tests.stress.kill [DATA]
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

# Long enough that five kills fit into each stage; checkpoints as often as there is something to save.
OPTIONS = {
    "labelled": "6", "features": (8, 16, 32), "size": (64, 64), "updates": 400, "checkpoint_every_s": 0.0,
    "pretrain_epochs": 60, "settle": 0.0, "method": "supervised", "seed": 3,
}  # fmt: skip
SCRIPT = """
from pathlib import Path
from hebbseg.config import make_settings
from hebbseg.runs.train import run
from hebbseg.data.progress import Quiet

class Steps(Quiet):
    def step(self, stage, done, total, row):
        print(f"{{stage}}, {{done}} of {{total}}", flush=True)

run(make_settings({data!r}, {options!r}), Path({out!r}), resume={resume}, reporter=Steps())
"""
KILLS_PER_STAGE = {"stage 1": 5, "stage 2": 5}
SHARE_OF_STAGE = (0.02, 0.18)  # that a start works before it is killed: five of them never fill a stage


@dataclass
class Start:
    """A process at work on a run, which prints every step it has done."""

    process: subprocess.Popen[str]

    @classmethod
    def of(cls, data: str, out: Path) -> "Start":
        resume = (out / "run.json").exists()
        code = SCRIPT.format(data=data, options=OPTIONS, out=str(out), resume=resume)
        return cls(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, encoding="utf-8"))

    def next_step(self) -> str:
        """Waits for it; empty when the process has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> str:
        """The last step that was done before."""
        self.process.send_signal(signal.SIGKILL)
        rest, _ = self.process.communicate()
        return (rest.splitlines() or [""])[-1]


def stage_of(step: str) -> str:
    return step.partition(",")[0]


def left_alone(data: str, out: Path) -> dict[str, float]:
    """Seconds that each stage takes."""
    start, first, last = Start.of(data, out), {}, {}
    while step := start.next_step():
        last[stage_of(step)] = time.monotonic()
        first.setdefault(stage_of(step), time.monotonic())
    if start.process.wait() != 0:
        raise SystemExit("the run that was left alone failed")
    return {stage: last[stage] - first[stage] for stage in KILLS_PER_STAGE}


def killed_in(stage: str, data: str, out: Path, after_s: float) -> str:
    """Starts the run, lets it work in a stage for so long, kills it, and says where that was; empty if it had ended."""
    start = Start.of(data, out)
    first = step = start.next_step()
    while step and stage_of(step) != stage:
        step = start.next_step()
    time.sleep(after_s)
    last = start.kill() or step
    if start.process.returncode == 0 or stage_of(last) != stage:
        return ""
    saved = out / "checkpoint.pt"
    kept = torch.load(saved, weights_only=True)["stage"] if saved.exists() else "none"
    return f"{stage}: went on at ({first}), killed {after_s:.2f} s into it at ({last}); checkpoint of: {kept}"


def main(data: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        alone, killed = Path(folder) / "alone", Path(folder) / "killed"
        lengths, moments = left_alone(data, alone), random.Random(0)
        print("left alone: " + ", ".join(f"{stage} takes {seconds:.1f} s" for stage, seconds in lengths.items()))
        number = 0
        for stage, kills in KILLS_PER_STAGE.items():
            for _ in range(kills):
                number += 1
                where = killed_in(stage, data, killed, lengths[stage] * moments.uniform(*SHARE_OF_STAGE))
                print(f"kill {number:2}  {where or 'MISSED its stage'}", flush=True)
                if not where:
                    return 1
        last = Start.of(data, killed)
        print(f"last start went on at ({last.next_step()})")
        last.process.communicate()
        if last.process.returncode != 0:
            raise SystemExit("the run could not be resumed")
        return compare(alone, killed)


def compare(alone: Path, killed: Path) -> int:
    ours, theirs = (load_file(out / "model.safetensors") for out in (alone, killed))
    same = {"weights": ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)}
    for name in ("history.csv", "metrics.csv"):
        same[name] = (alone / name).read_bytes() == (killed / name).read_bytes()
    print(", ".join(f"{name} {'identical' if identical else 'DIFFERENT'}" for name, identical in same.items()))
    return 0 if all(same.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "phantom:glands?n=40&size=64"))
