"""The command line: fast help, JSON output, errors without a traceback."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hebbseg import __version__
from hebbseg.cli import app as cli
from tests.data.trees import hmeps_tree, plain_folder, save


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hebbseg", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code or 0)


def test_help_answers_at_once_without_torch():
    code = "import sys; from hebbseg.cli import app as cli\ntry: cli.app(['--help'])\nfinally: print(sorted(sys.modules))"
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "hebbseg", "--help"], capture_output=True, encoding="utf-8", check=True)
        times.append(time.perf_counter() - start)
    assert "check" in done.stdout
    # The target is 0.5 s; the best of three is allowed 1 s, as other tests may keep the machine busy.
    assert min(times) < 1.0
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True).stdout
    for heavy in ("'torch'", "'numpy'", "'matplotlib'", "'PIL'", "'monai'", "'pydantic'"):
        assert heavy not in modules


def test_check_does_not_import_torch(tmp_path: Path):
    plain_folder(tmp_path / "x")
    code = "import sys; from hebbseg.cli import app as cli\ntry: cli.app(['check', 'x'])\nfinally: print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert (tmp_path / "x-check.png").is_file()
    assert "'numpy'" in done.stdout and "'torch'" not in done.stdout


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == f"hebbseg {__version__}"


def test_python_dash_m_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "hebbseg", "--version"], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == f"hebbseg {__version__}"


def test_check_json_is_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "check", f"hmeps:{hmeps_tree(tmp_path / 'x')}", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["cases"], summary["with_mask"], summary["without_mask"], summary["groups"]) == (6, 6, 0, 3)
    assert [c["name"] for c in summary["classes"]] == ["background", "pupil"]
    assert summary["problems"] == []
    assert list(tmp_path.iterdir()) == [tmp_path / "x"], "--json draws no sheet without --sheet"
    assert run(monkeypatch, "check", f"hmeps:{tmp_path / 'x'}", "--json", "--sheet", "s/sheet.png") == 0
    assert Path(json.loads(capsys.readouterr().out)["sheet"]).is_file()


def test_check_prints_a_table_and_draws_a_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    plain_folder(tmp_path / "mine", "abc", masks="ab")
    (tmp_path / "mine" / "images" / "d.png").write_bytes(b"")
    assert run(monkeypatch, "check", "mine") == 0
    shown = capsys.readouterr().out
    for words in ("with mask", "foreground", "d.png", "empty file", "mine-check.png"):
        assert words in shown
    assert (tmp_path / "mine-check.png").is_file()
    assert run(monkeypatch, "check", "mine", "--no-sheet", "--group", "^(.)", "--label-map", "gland=255") == 0
    shown = capsys.readouterr().out
    assert "gland" in shown
    assert "Contact sheet" not in shown


def test_check_options_reach_the_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    import numpy as np

    plain_folder(tmp_path, "a", masks="")
    save(tmp_path / "masks" / "a.png", np.arange(24 * 32, dtype=np.uint8).reshape(24, 32))
    assert run(monkeypatch, "check", str(tmp_path), "--json") == 1
    assert "--instances" in json.loads(capsys.readouterr().out)["problems"][0]["remedy"]
    assert run(monkeypatch, "check", str(tmp_path), "--json", "--instances") == 0
    assert json.loads(capsys.readouterr().out)["classes"][1]["share"] == pytest.approx(255 / 256)
    assert run(monkeypatch, "check", str(tmp_path), "--json", "--mask-threshold", "128") == 0
    assert json.loads(capsys.readouterr().out)["classes"][1]["share"] == pytest.approx(0.5)


def test_errors_are_one_message_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "images").mkdir()
    assert run(monkeypatch, "check", str(tmp_path)) == 2
    out, err = capsys.readouterr()
    assert (out, "Traceback" in err) == ("", False)
    assert "no image found" in err
    assert str(tmp_path) in err
    assert run(monkeypatch, "check", str(tmp_path), "--json") == 2
    out, err = capsys.readouterr()
    (problem,) = json.loads(out)["problems"]
    assert problem["finding"].startswith("no image found")
    assert "no image found" in err


def test_debug_shows_the_traceback(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "hebbseg", "check", str(tmp_path), "--debug"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "no image found" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["chekc", "x"], "check"), (["check", "x", "--jsn"], "--json"), (["check", "gals:x"], "'glas'")],
)
def test_typos_get_a_did_you_mean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], hint: str
):
    assert run(monkeypatch, *arguments) == 2
    err = capsys.readouterr().err
    assert any(words in err for words in ("Did you mean", "Possible options"))
    assert hint in err


def test_sigterm_during_a_finalizer_ends_the_command():
    """Python ignores exceptions in finalizers, also that of the signal's handler."""
    code = """
import os, signal, sys, time, weakref
from hebbseg.cli import app as cli

class Thing: pass

def command(arguments):
    thing = Thing()
    reference = weakref.ref(thing, lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.01)))
    del thing
    print("after the finalizer", flush=True)
    time.sleep(30)

cli.app = command
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60)
    assert "after the finalizer" in done.stdout, "the exception was ignored"
    assert done.returncode == 143 and "Stopped by SIGTERM." in done.stderr and "Traceback" not in done.stderr
