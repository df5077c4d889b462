"""Every command of docs/how-to/sparse-labels.md runs."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from hebbseg.methods import WITH_UNLABELLED
from studies import scribbles
from tests.data.trees import picture, save
from tests.runs.test_ignore import sparse_folder
from tests.tiny import TINY, command

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "sparse-labels.md"
QUICK = (*TINY, "--updates", "2", "--init", "random")
QUICK_3D = ("--patch", "16x16x16", "--features", "4,8", "--updates", "2", "--init", "random", "--set", "labelled_batch=1")


def blocks() -> list[tuple[str, str]]:
    """The language and the content of each code block."""
    return re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    sparse_folder(tmp_path / "my_data")
    shutil.copytree("my_data", "other_data")
    for seed, name in enumerate("abcdef"):
        save(tmp_path / "nuclei" / "images" / f"{name}.png", picture(seed, 40, 48))
        (tmp_path / "nuclei" / "points").mkdir(exist_ok=True)
        (tmp_path / "nuclei" / "points" / f"{name}.csv").write_text(f"x,y\n{10 + seed},8\n30,{20 + seed}\n")
        (tmp_path / "nuclei" / "boxes").mkdir(exist_ok=True)
        (tmp_path / "nuclei" / "boxes" / f"{name}.csv").write_text("top,left,bottom,right\n2,3,12,14\n")
    run = compared = 0
    printed = ""
    for language, text in blocks():
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {})
            continue
        if language == "text":  # what the block before printed
            assert set(text.splitlines()) <= {line.rstrip() for line in printed.splitlines()}
            compared += 1
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            if program == "python":
                assert arguments[:2] == ["-m", "studies.scribbles"]
                monkeypatch.setattr(sys, "argv", arguments[1:])
                scribbles.main()
            else:
                quick = (QUICK_3D if "slices" in arguments else QUICK) if arguments[0] == "train" else ()
                assert command(monkeypatch, *arguments, *quick) == 0, line
            run += 1
        printed = capsys.readouterr().out
    assert run >= 11 and compared == 1
    for side, low, high in (("train", 0.9, 0.99), ("test", 0, 0)):
        for path in Path("scribbles", side, "masks").iterdir():
            assert low <= _share(path) <= high
    masks = [np.asarray(Pillow.open(path)) for path in Path("nuclei/masks").iterdir()]
    assert len(masks) == 6 and all(set(np.unique(mask)) == {0, 1, 255} for mask in masks)
    for name in ("run", "run-scribbles", "run-slices", "run-nuclei"):
        settings = json.loads((tmp_path / name / "run.json").read_text(encoding="utf-8"))["settings"]
        assert settings["method"] == WITH_UNLABELLED, name


def _share(path: Path) -> float:
    """The share of a mask that is not annotated."""
    return float((np.asarray(Pillow.open(path)) == 255).mean())
