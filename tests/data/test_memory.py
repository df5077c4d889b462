"""The memory for decoded images: a quarter of the machine or of the container, or as the environment says."""

from pathlib import Path

import pytest

from hebbseg.data import memory
from hebbseg.data.memory import VARIABLE, default_memory_limit
from hebbseg.errors import HebbsegError


@pytest.fixture(autouse=True)
def without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(memory, "_physical", lambda: 80 * 10**9)
    monkeypatch.setattr(memory, "_CGROUP", ())


def test_a_quarter_of_the_machine_or_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_memory_limit() == 20 * 10**9
    for name, content in (("small", "8000000000\n"), ("none", "max\n")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(memory, "_CGROUP", (tmp_path / "none", tmp_path / "small", tmp_path / "missing"))
    assert default_memory_limit() == 2 * 10**9


def test_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "300")
    assert default_memory_limit() == 300 * 10**6
    monkeypatch.setenv(VARIABLE, "2 GB")
    with pytest.raises(HebbsegError, match=r"HEBBSEG_MEMORY_MB='2 GB': allowed is a number of megabytes"):
        default_memory_limit()
