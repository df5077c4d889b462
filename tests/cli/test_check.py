"""hebbseg check: exit codes, advice given once, files not used, and commands that a shell understands."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from hebbseg.cli.check_table import show
from hebbseg.data.cases import DataError
from hebbseg.data.inspect import examine
from hebbseg.data.inspect_report import report
from hebbseg.data.sources import open_source
from tests.data.trees import disc, glas_tree, picture, plain_folder, save
from tests.tiny import command

Captured = pytest.CaptureFixture[str]


def test_exit_code_is_1_if_something_must_be_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured):
    plain_folder(tmp_path / "good", "abcd")
    assert command(monkeypatch, "check", tmp_path / "good", "--no-sheet") == 0
    save(tmp_path / "good" / "masks" / "lonely.png", disc(24, 32) * 255)
    assert command(monkeypatch, "check", tmp_path / "good", "--no-sheet") == 0, "a warning needs no action"
    plain_folder(tmp_path / "empty", "abcd", masks="")
    for name in "abcd":
        save(tmp_path / "empty" / "masks" / f"{name}.png", np.zeros((24, 32), np.uint8))
    assert command(monkeypatch, "check", tmp_path / "empty", "--no-sheet") == 1
    capsys.readouterr()
    assert command(monkeypatch, "check", tmp_path / "empty", "--json") == 1
    assert any(problem["fatal"] for problem in json.loads(capsys.readouterr().out)["problems"])
    assert command(monkeypatch, "check", tmp_path / "nowhere") == 2


def test_repeated_advice_is_given_once_with_a_count(tmp_path: Path, capsys: Captured):
    plain_folder(tmp_path, "abcd")
    for n in range(9):
        save(tmp_path / "masks" / f"lonely{n}.png", disc(24, 32) * 255)
    summary = report(examine(open_source(tmp_path)))
    assert len(summary["problems"]) == 9
    show(summary)
    shown = capsys.readouterr().out
    assert shown.count("Add the image, or rename the mask") == 1
    assert shown.count("mask with no matching image") == 3
    assert "and 6 more with the same advice" in shown
    assert "9 problem(s), 0 of them must be fixed" in shown


def test_folders_and_unused_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured):
    plain_folder(tmp_path, "abcd")
    save(tmp_path / "old photos" / "x.png", picture(1, 24, 32, 3))
    save(tmp_path / "old photos" / "y.png", picture(2, 24, 32, 3))
    (tmp_path / "readme.md").write_text("about")
    assert command(monkeypatch, "check", tmp_path, "--no-sheet") == 0
    shown = capsys.readouterr().out
    for words in ("images in", "images/ (4)", "masks in", "masks/ (4)", "not used:", "readme.md: not images (.md)"):
        assert words in shown
    assert "old photos/ (2 files): images, with many values per file; to use them: --images 'old photos'" in shown
    summary = report(examine(open_source(tmp_path)))
    assert {each["place"] for each in summary["unused"]} == {"old photos/", "readme.md"}
    assert summary["mask_folders"] == {"masks/": 4}


def test_masks_and_images_are_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured):
    for name in "abc":
        save(tmp_path / "photos" / f"{name}.png", picture(1, 24, 32, 3))
        for folder in ("gt", "mask"):
            save(tmp_path / folder / f"{name}.png", disc(24, 32, 4 if folder == "gt" else 9) * 255)
    arguments = ("check", tmp_path, "--json", "--images", "photos")
    assert command(monkeypatch, *arguments) == 2
    assert "2 folders could contain the masks: gt" in capsys.readouterr().err
    assert command(monkeypatch, *arguments, "--masks", "gt") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["with_mask"], summary["mask_folders"]) == (3, {"gt/": 3})
    assert command(monkeypatch, *arguments, "--masks", "none") == 0
    assert json.loads(capsys.readouterr().out)["with_mask"] == 0


def test_suggested_names_are_quoted_for_the_shell(tmp_path: Path):
    folder = glas_tree(tmp_path / "Warwick QU's data")
    with pytest.raises(DataError) as refused:
        open_source(folder)
    remedy = refused.value.problem.remedy
    assert shlex.split(remedy.removesuffix("."))[1].rstrip(",") == f"glas:{folder}"


def test_images_without_masks_are_for_stage_1_and_unreadable_ones_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    data = plain_folder(tmp_path / "data", masks="")
    assert command(monkeypatch, "check", data, "--no-sheet") == 0
    assert "`hebbseg pretrain` can use these images; `hebbseg train` needs masks" in capsys.readouterr().out
    for image in (data / "images").iterdir():
        image.write_bytes(image.read_bytes()[:-200])  # the header is intact
    assert command(monkeypatch, "check", data, "--no-sheet", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["usable_for"], found["left_out"]) == ([], 4)
