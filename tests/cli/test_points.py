"""Masks from points and boxes on the command line, and mistakes in them."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image as Pillow

from tests.data.trees import picture, save
from tests.tiny import command


def table(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def nuclei(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        save(tmp_path / "images" / f"{name}.jpg", picture(0, 40, 48))
    table(tmp_path / "points" / "a.csv", "y,x\n10,12\n30,40\n")
    table(tmp_path / "boxes" / "a.csv", "top,left,bottom,right\n4,6,13,21\n")
    return tmp_path


def test_points_and_boxes(nuclei: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    assert command(monkeypatch, "points", "images", "points", "-o", "masks", "--radius", "3", "--ring", "2") == 0
    assert "1 in masks" in capsys.readouterr().out and [path.name for path in Path("masks").iterdir()] == ["a.png"]
    mask = np.asarray(Pillow.open("masks/a.png"))
    rows, columns = np.ogrid[:40, :48]
    distance = np.minimum(*(np.hypot(rows - y, columns - x) for y, x in ((10, 12), (30, 40))))
    assert np.array_equal(mask, np.select([distance <= 3, distance <= 5], [1, 255]))
    assert command(monkeypatch, "points", "images", "boxes", "-o", "of-boxes", "--boxes") == 0
    mask = np.asarray(Pillow.open("of-boxes/a.png"))
    assert (mask[4:14, 6:22] > 0).all() and not mask[:4].any() and mask[9, 14] == 1 and mask[4, 6] == 255
    assert command(monkeypatch, "check", ".", "--ignore", "255", "--masks", "masks", "--no-sheet") == 0


def test_points_of_volumes_are_in_the_grid_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "images").mkdir()
    affine = np.diag([0.5, 0.5, 2, 1])
    nibabel.save(nibabel.Nifti1Image(np.zeros((12, 10, 8), np.int16), affine), tmp_path / "images" / "a.nii.gz")
    table(tmp_path / "points" / "a.csv", "z,y,x\n2,4,9\n")
    arguments = ("points", tmp_path / "images", tmp_path / "points", "-o", tmp_path / "masks", "--radius", "1")
    assert command(monkeypatch, *arguments) == 0
    written = nibabel.load(tmp_path / "masks" / "a.nii.gz")
    values = np.asarray(written.dataobj)
    assert values.shape == (12, 10, 8) and values[9, 4, 2] == 1 and (values == 1).sum() == 7
    assert np.array_equal(written.affine, affine)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["points", "-o", "masks"], "--radius is missing"),
        (["points", "-o", "masks", "--radius", "3", "--boxes"], "exclude each other"),
        (["boxes", "-o", "masks", "--boxes", "--ring", "2"], "--ring applies to points"),
        (["points"], "Option -o (output folder) is missing"),
        (["points", "-o", "masks", "--radius", "0"], "a.csv: radius=0.0"),
        (["boxes", "-o", "masks", "--radius", "3"], "If it has boxes, pass --boxes"),
        (["points", "-o", "masks", "--boxes"], "If it has points, pass --radius"),
        (["nothing", "-o", "masks", "--radius", "3"], "nothing: no such folder"),
        (
            ["outside", "-o", "masks", "--radius", "3"],
            "a.csv: point 1, (50.0, 3.0): expected 2 numbers within the image",
        ),
        (["others", "-o", "masks", "--radius", "3"], "no image c in images"),
        (["points", "-o", "images", "--radius", "3"], "already exists"),
    ],
)
def test_mistakes(arguments: list[str], words: str, nuclei: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    table(nuclei / "outside" / "a.csv", "y,x\n50,3\n")
    table(nuclei / "others" / "c.csv", "y,x\n5,3\n")
    if "images" in arguments:
        save(nuclei / "images" / "a.png", picture(0, 40, 48))
        (nuclei / "images" / "a.jpg").unlink()
    assert command(monkeypatch, "points", "images", *arguments) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert words in err and "Traceback" not in err
    assert not list(nuclei.glob("masks/*.png"))
