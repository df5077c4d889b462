"""A task whose run takes several processes: a program of its own, which Fabric can start once for every device.

python -m hebbseg.experiments.executors.multi_process TASK
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from hebbseg.errors import HebbsegError
from hebbseg.experiments.executors.local import end_with
from hebbseg.experiments.tasks import Task, perform
from hebbseg.training.interrupt import Interrupted, interrupt_requests

LOOK_EVERY_S = 0.5
STOPPED = 130


def perform_apart(task: Task) -> None:
    """Does the task in further processes and waits for them; their output goes to the task's log."""
    with tempfile.TemporaryDirectory() as folder, task.log.open("a", encoding="utf-8") as log:
        path = Path(folder) / "task.pickle"
        path.write_bytes(pickle.dumps(task))
        command = [sys.executable, "-m", "hebbseg.experiments.executors.multi_process", str(path)]
        with interrupt_requests() as request:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            asked = False
            while (code := _ended(process)) is None:
                if request.made and not asked:
                    process.send_signal(signal.SIGINT)
                    asked = True
    if code == STOPPED:
        raise Interrupted("Stopped; everything up to the last checkpoint is saved.")
    if code:
        raise HebbsegError(
            f"its {task.settings.hardware.devices} × {task.settings.hardware.num_nodes} processes ended with exit code {code}"
        )


def _ended(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(timeout=LOOK_EVERY_S)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    try:
        perform(pickle.loads(Path(sys.argv[1]).read_bytes()))
    except Interrupted as stop:
        sys.stderr.write(f"{stop}\n")
        sys.exit(STOPPED)
