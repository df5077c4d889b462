"""The commands in the how-to pages run, one after another, as they are written."""

import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from hebbseg.segmenter import Segmenter
from tests.data.trees import picture, save
from tests.tiny import bright_folder, command

DOCS = Path(__file__).parent.parent / "docs" / "how-to"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("howto")
    bright_folder(root / "data", "abcd")
    small = {"size": "16x16", "features": "4,8", "updates": 2, "pretrain_epochs": 1, "labelled_batch": 2}
    Segmenter.train(root / "data", root / "run1", quiet=True, **small)
    bright_folder(root / "more_data", "abcde")
    for n, name in enumerate(("a.png", "b.png", "sub/c.png")):
        save(root / "scans" / name, picture(n, 12, 14, 3))
    save(root / "image.png", picture(3, 20, 20, 3))
    return root


@pytest.mark.parametrize("page", ["export.md", "predict.md", "report-of-a-run.md"])
def test_commands_of_the_page(page: str, place: Path, monkeypatch):
    monkeypatch.chdir(place)
    found = commands(page)
    assert len(found) >= 4
    for line in found:
        before, _, call = line.rpartition("|")
        if before:
            assert before.split()[0] == "ls"
            monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(str, Path().glob(before.split()[1])))))
        arguments = shlex.split(call)
        # As long as the tiny run that it continues.
        short = ["--updates", "2", "--set", "labelled_batch=2"] if arguments[1] == "train" else []
        short += ["--size", "16x16", "--features", "4,8"] if short and not {"--from", "--resume"} & set(arguments) else []
        assert arguments[0] == "hebbseg"
        assert command(monkeypatch, *arguments[1:], *short) == 0, line
        written = arguments[arguments.index("-o") + 1] if "-o" in arguments else f"{arguments[2]}/report.html"
        assert Path(written).exists()
