"""Runs on sparse masks: the method, the test, the pictures and the errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from hebbseg.data.cases import IGNORE
from hebbseg.errors import HebbsegError
from hebbseg.methods import WITH_UNLABELLED
from hebbseg.reporting.plots.contact_sheet import overlay as contact_overlay
from hebbseg.reporting.plots.overlay import HATCH_PERIOD, middle, overlay
from hebbseg.segmenter import Segmenter
from tests.data.trees import picture, save
from tests.tiny import TINY, bright_folder, command

QUICK = {"size": "32x32", "features": "4,8", "updates": 2, "labelled_batch": 2, "init": "random"}


def sparse_folder(root: Path) -> Path:
    """As `bright_folder`, with the masks of all but the first two cases annotated in a few columns only."""
    bright_folder(root)
    for name in "cdef":
        path = root / "masks" / f"{name}.png"
        mask = np.asarray(Pillow.open(path)).copy()
        mask[mask == 255] = 1
        mask[:, np.r_[:2, 4:12, 14:32]] = 255
        save(path, mask)
    for name in "ab":
        save(root / "masks" / f"{name}.png", (np.asarray(Pillow.open(root / "masks" / f"{name}.png")) > 0).astype(np.uint8))
    return root


def test_scribbles_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    root, run = sparse_folder(tmp_path / "data"), tmp_path / "run"
    assert command(monkeypatch, "check", root, "--no-sheet") == 1
    assert "--ignore 255" in capsys.readouterr().out
    assert command(monkeypatch, "check", root, "--ignore", "255", "--sheet", tmp_path / "sheet.png") == 0
    assert "% of the pixels of all masks (4 partly)" in capsys.readouterr().out
    assert command(monkeypatch, "train", root, "-o", run, "--ignore", "255", "--set", "test=0.5", *TINY) == 0
    assert "(no unlabelled training images, " in capsys.readouterr().err
    settings = json.loads((run / "run.json").read_text())["settings"]
    assert (settings["method"], settings["ignore"]) == (WITH_UNLABELLED, "255")
    assert command(monkeypatch, "predict", run, root / "images", "-o", tmp_path / "out") == 0
    predicted = {value for path in (tmp_path / "out").glob("*.png") for value in np.unique(np.asarray(Pillow.open(path)))}
    assert predicted <= {0, 1}
    assert command(monkeypatch, "evaluate", run, root, "--ignore", "255", "-o", tmp_path / "evaluation") == 0
    assert json.loads((tmp_path / "evaluation" / "summary.json").read_text())["n"] == 6


def test_masks_that_lose_their_scribbles_are_named_before_training(tmp_path: Path):
    root = bright_folder(tmp_path)
    for path in (root / "masks").iterdir():
        mask = np.full((24, 32), 255, np.uint8)
        mask[0, 0], mask[0, 1] = 0, 1
        save(path, mask)
    with pytest.raises(
        HebbsegError, match=r"at the working size 4×4, no annotated pixel is left in the mask of \d labelled case"
    ):
        Segmenter.train(root, out=tmp_path / "run", ignore=255, **QUICK | {"size": "4x4", "features": "4,8"})


@pytest.mark.parametrize("shape", [(40, 50), (12, 14, 16)])
def test_pictures_hatch_ignored_pixels_and_draw_no_contour_around_them(shape):
    image = picture(0, 1, *shape)
    mask = np.zeros(shape, np.uint8)
    partial = mask.copy()
    partial[..., : shape[-1] // 2] = IGNORE
    plain, hatched = overlay(image, mask), overlay(image, mask, target=partial)
    assert plain.shape == hatched.shape
    changed = (plain != hatched).any(axis=-1)
    if len(shape) == 2:
        half = plain.shape[1] // 2
        assert not changed[:, half:].any()
        assert changed[:, :half].mean() == pytest.approx(2 / HATCH_PERIOD, rel=0.1), "the lines are 2 pixels wide"
        lines = hatched[:, :half][changed[:, :half]].mean(axis=-1)
        before = plain[:, :half][changed[:, :half]].mean(axis=-1)
        assert ((lines < before) | (before < 1)).mean() > 0.4 and ((lines > before) | (before > 254)).mean() > 0.4, "both"
    assert changed.any()
    np.testing.assert_array_equal(overlay(image, partial), hatched)
    assert middle(partial) == [n // 2 for n in shape]


def test_contact_sheets_hatch_ignored_pixels():
    image, mask = picture(0, 40, 50), np.zeros((40, 50), np.uint8)
    plain = np.asarray(contact_overlay(image, mask))
    mask[:, :25] = IGNORE
    changed = (np.asarray(contact_overlay(image, mask)) != plain).any(axis=-1)
    assert changed[:, : plain.shape[1] // 2].any() and not changed[:, plain.shape[1] // 2 :].any()


def test_borders_need_masks_that_are_annotated_everywhere(tmp_path: Path):
    root = sparse_folder(tmp_path)
    with pytest.raises(HebbsegError, match=r"borders: the masks of \d labelled case.*not annotated everywhere"):
        Segmenter.train(root, out=tmp_path / "run", ignore=255, borders=True, **QUICK)
