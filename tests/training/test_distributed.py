"""How several processes end when one of them fails."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from hebbseg.config import make_settings
from hebbseg.errors import HebbsegError
from hebbseg.training.distributed import launched, make_fabric


def fabric_with(process: subprocess.Popen, *, rank: int = 0) -> SimpleNamespace:
    launcher = SimpleNamespace(procs=[])
    return SimpleNamespace(
        launch=lambda: launcher.procs.append(process), strategy=SimpleNamespace(launcher=launcher), global_rank=rank
    )


@pytest.fixture
def waiting():
    """A process that waits for a partner."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("error", [HebbsegError("the disk is full"), RuntimeError("a bug"), KeyboardInterrupt()])
def test_the_others_end_with_the_first(waiting, error):
    fabric = fabric_with(waiting)
    with pytest.raises(type(error)), launched(fabric):
        raise error
    assert waiting.poll() is not None
    assert fabric.strategy.launcher.procs == []  # or Fabric would kill the first process for it


def test_a_further_process_leaves_the_word_to_the_first(waiting):
    with pytest.raises(SystemExit) as end, launched(fabric_with(waiting, rank=1)):
        raise HebbsegError("what the first process says too")
    assert not end.value.code
    with pytest.raises(RuntimeError), launched(fabric_with(waiting, rank=1)):
        raise RuntimeError("a bug is nothing to be silent about")


def test_one_process_needs_no_launcher():
    with pytest.raises(HebbsegError), launched(make_fabric(make_settings("x", {"accelerator": "cpu"}))):
        raise HebbsegError("as it is")
