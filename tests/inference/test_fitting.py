"""Images of other dimensions than the model are refused once, before anything is written."""

from pathlib import Path

import nibabel
import numpy as np
import pytest

from tests.data.trees import picture, save
from tests.tiny import command, tiny_segmenter


@pytest.fixture
def volume_model(tmp_path: Path) -> Path:
    tiny_segmenter(dims=3, channels=1, size=None, window=(8, 8, 8)).save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_images_for_a_model_of_volumes(volume_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for n in range(3):
        save(tmp_path / "images" / f"{n}.png", picture(n, 12, 14, 3))
    assert command(monkeypatch, "predict", volume_model, tmp_path / "images", "-o", tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert err.count("Error") == 1 and "failed:" not in err
    assert "0.png: a 2D image, like the other 2, but the model is 3D" in err and "with 1 channel." in err
    assert not (tmp_path / "out").exists()


def test_volumes_for_a_model_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    tiny_segmenter().save(tmp_path / "model.safetensors")
    nibabel.save(nibabel.Nifti1Image(np.zeros((9, 8, 7), np.int16), np.eye(4)), tmp_path / "volume.nii.gz")
    arguments = (tmp_path / "model.safetensors", tmp_path / "volume.nii.gz", "-o", tmp_path / "out")
    assert command(monkeypatch, "predict", *arguments) == 2
    err = capsys.readouterr().err
    assert "a 3D image, but the model is 2D" in err and "with 3 channels" in err and not (tmp_path / "out").exists()


def test_one_image_among_volumes_fails_alone(
    volume_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    save(tmp_path / "a.png", picture(0, 12, 14, 3))
    values = np.random.default_rng(0).normal(size=(9, 8, 7)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "b.nii.gz")
    files = (tmp_path / "a.png", tmp_path / "b.nii.gz")
    assert command(monkeypatch, "predict", volume_model, *files, "-o", tmp_path / "out", "--no-overlays") == 1
    assert "a.png" in capsys.readouterr().err and (tmp_path / "out" / "b.nii.gz").is_file()
