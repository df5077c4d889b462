"""How several processes end when one of them fails."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from hebbseg.config import make_settings
from hebbseg.errors import HebbsegError
from hebbseg.training.distributed import launched, make_fabric, resolved_precision


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


@pytest.mark.parametrize(
    "found, expected", [({"avx512_bf16": True}, "bf16-mixed"), ({"amx_bf16": True}, "bf16-mixed"), ({}, "32-true")]
)
def test_auto_is_bf16_where_the_processor_computes_it(monkeypatch, found, expected):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx2": True, **found})
    assert resolved_precision("auto", "cpu") == expected
    assert resolved_precision("32-true", "cpu") == "32-true" and resolved_precision("bf16-mixed", "cpu") == "bf16-mixed"


def test_auto_on_a_graphics_card(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: False)
    assert resolved_precision("auto", "auto") == "32-true"
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: True)
    assert resolved_precision("auto", "cuda") == "bf16-mixed"
    monkeypatch.setattr("torch.cpu.get_capabilities", dict)
    assert resolved_precision("auto", "cpu") == "32-true"
