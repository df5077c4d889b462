"""Kills a run at ten random moments of both stages, resumes it each time, and compares it with one that was left alone.

python -m benchmarks.kill [DATA]
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

OPTIONS = {
    "labelled": "6", "features": (8, 16, 32), "size": (64, 64), "updates": 120, "checkpoint_every_s": 0.5,
    "pretrain_epochs": 4, "seed": 3,
}  # fmt: skip
SCRIPT = "from hebbseg import Segmenter; Segmenter.train({data!r}, {out!r}, quiet=True, resume={resume}, **{options!r})"
KILLS = 10


def start(data: str, out: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    code = SCRIPT.format(data=data, out=str(out), resume=resume, options=OPTIONS)
    return subprocess.Popen([sys.executable, "-c", code])


def main(data: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        alone, killed = Path(folder) / "alone", Path(folder) / "killed"
        begun = time.monotonic()
        if start(data, alone, resume=False).wait() != 0:
            raise SystemExit("the run that was left alone failed")
        length, moments, kills, where = time.monotonic() - begun, random.Random(0), 0, []
        while kills < KILLS:
            process = start(data, killed, resume=(killed / "run.json").exists())
            # Long enough to get somewhere, short enough that ten of them fit into the run.
            time.sleep(length * moments.uniform(0.3, 0.55))
            process.send_signal(signal.SIGKILL)
            if process.wait() == 0:
                break
            kills += 1
            checkpoint = killed / "checkpoint.pt"
            where.append(
                torch.load(checkpoint, weights_only=True)["stage"] if checkpoint.exists() else "before any checkpoint"
            )
        if start(data, killed, resume=True).wait() != 0:
            raise SystemExit("the run could not be resumed")
        print(f"killed {kills} times, in {where}")
        ours, theirs = (load_file(out / "model.safetensors") for out in (alone, killed))
        same = all(torch.equal(ours[name], theirs[name]) for name in ours)
        history = (alone / "history.csv").read_text() == (killed / "history.csv").read_text()
        print(f"weights {'identical' if same else 'DIFFER'}, history {'identical' if history else 'DIFFERS'}")
        raise SystemExit(0 if same and history else 1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "phantom:glands?n=40&size=64")
