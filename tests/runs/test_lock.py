"""One process at a time in a run folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from hebbseg.errors import HebbsegError
from hebbseg.runs.lock import in_use

HOLD = "import sys; from pathlib import Path; from hebbseg.runs.lock import in_use\n"
HOLD += "with in_use(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "cache"))


def test_a_second_process_is_refused_until_the_first_ends_even_if_it_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(out)], stdin=-1, stdout=-1, encoding="utf-8")
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    with pytest.raises(HebbsegError, match=r"run: another process is training in this run folder\. Wait"), in_use(out):
        pass
    with in_use(tmp_path / "another run"):
        pass
    first.kill()
    first.communicate()
    with in_use(tmp_path / "link" / ".." / "run"):
        pass
    assert not out.exists()


def test_an_error_releases_the_lock(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), in_use(tmp_path / "run"):
            raise KeyError


def test_further_processes_of_a_run_do_not_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_use(tmp_path / "run"):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with in_use(tmp_path / "run"):
            pass


def test_without_a_writable_cache_folder_there_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "file"))
    with in_use(tmp_path / "run"):
        pass
