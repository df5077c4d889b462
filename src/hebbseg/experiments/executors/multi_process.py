"""Tasks with several processes: a separate program, which Fabric can start once per device.

python -m hebbseg.experiments.executors.multi_process TASK
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from hebbseg.errors import HebbsegError
from hebbseg.experiments.executors.local import end_with
from hebbseg.experiments.tasks import Task, perform
from hebbseg.training.interrupt import Interrupted, interrupt_requests

POLL_S = 0.5
STOPPED = 130


def perform_in_processes(task: Task) -> None:
    """Execute the task in new processes and wait for them; their output goes to the task's log."""
    with tempfile.TemporaryDirectory() as folder, task.log.open("a", encoding="utf-8") as log:
        path = Path(folder) / "task.pickle"
        path.write_bytes(pickle.dumps(task))
        command = [sys.executable, "-m", "hebbseg.experiments.executors.multi_process", str(path)]
        with interrupt_requests() as request:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            asked = False
            while (code := process.poll()) is None:
                if request.made and not asked:
                    process.send_signal(signal.SIGINT)
                    asked = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=POLL_S)
    if code == STOPPED:
        raise Interrupted("Stopped. The last checkpoint is saved.")
    if code:
        hardware = task.settings.hardware
        raise HebbsegError(f"the run ({hardware.devices} × {hardware.num_nodes} processes) ended with exit code {code}")


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    try:
        perform(pickle.loads(Path(sys.argv[1]).read_bytes()))
    except Interrupted as stop:
        sys.stderr.write(f"{stop}\n")
        sys.exit(STOPPED)
