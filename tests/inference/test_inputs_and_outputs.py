"""IMAGES as patterns and lists; probabilities in files that other programs read with the geometry of the image."""

import io
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile

from hebbseg.errors import HebbsegError
from hebbseg.inference.input_lists import expanded
from tests.data.trees import picture, save
from tests.inference.test_files import files_below
from tests.tiny import command, tiny_segmenter


def test_patterns_and_lists(tmp_path: Path, monkeypatch, capsys):
    tiny_segmenter().save(tmp_path / "m.safetensors")
    for n, place in enumerate(("a/1.png", "a/b/2.png", "c/3.png", "c/.hidden.png", "c/4[1].png")):
        save(tmp_path / "new" / place, picture(n, 12, 14, 3))
    bare = ("--outputs", "mask")
    pattern = str(tmp_path / "new" / "**" / "*.png")
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", pattern, "-o", tmp_path / "out", *bare) == 0
    assert files_below(tmp_path / "out") == ["a/1.png", "a/b/2.png", "c/3.png", "c/4[1].png"]
    names = [str(tmp_path / "new" / place) for place in ("a/1.png", "c/3.png")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(names) + "\n\n"))
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", "-", "-o", tmp_path / "two", *bare) == 0
    assert files_below(tmp_path / "two") == ["a/1.png", "c/3.png"]
    monkeypatch.chdir(tmp_path / "new")
    assert expanded(["c/*.png", "c/3.png", "c/4[1].png"]) == ["c/3.png", "c/4[1].png"], "an existing name is no pattern"
    assert expanded(["phantom:glands?n=2"]) == ["phantom:glands?n=2"]
    with pytest.raises(HebbsegError, match="no file matches"):
        expanded(["c/*.tif"])
    with pytest.raises(HebbsegError, match="no file name"):
        expanded(["-"], ["\n"])
    with pytest.raises(HebbsegError, match=r"1 of 2 files .* 'absent\.png'"):
        expanded(["-"], ["absent.png\n", "c/3.png\n"])


def test_outputs_are_chosen(tmp_path: Path, monkeypatch, capsys):
    segmenter = tiny_segmenter()
    segmenter.save(tmp_path / "m.safetensors")
    image = save(tmp_path / "a.png", picture(0, 12, 14, 3))
    run = ("predict", tmp_path / "m.safetensors", image)
    assert command(monkeypatch, *run, "-o", tmp_path / "out", "--outputs", "prob,overlay") == 0
    assert files_below(tmp_path / "out") == ["a.png", "overlays/a.png", "probabilities/a.npz"]
    stored = np.load(tmp_path / "out" / "probabilities" / "a.npz")["probabilities"]
    assert stored.dtype == np.float16 and np.allclose(stored, segmenter.probabilities(image).numpy(), atol=1e-3)
    assert command(monkeypatch, *run, "-o", tmp_path / "two", "--no-overlays") == 0
    assert files_below(tmp_path / "two") == ["a.png", "uncertainty/a.png"]
    assert command(monkeypatch, *run, "-o", tmp_path / "three", "--outputs", "mask,probs") == 2
    assert "Did you mean 'prob'" in capsys.readouterr().err
    (tmp_path / "out" / "a.png").unlink()
    (tmp_path / "out" / "overlays" / "a.png").unlink()
    assert command(monkeypatch, *run, "-o", tmp_path / "out", "--outputs", "prob") == 2
    assert "probabilities/a.npz already exists" in capsys.readouterr().err


def test_probabilities_of_volumes_keep_their_geometry(tmp_path: Path, monkeypatch):
    """Read by nibabel, ITK and tifffile."""
    segmenter = tiny_segmenter(dims=3, channels=1, size=None, normalize="zscore", window=(8, 8, 8))
    segmenter.save(tmp_path / "m.safetensors")
    values = np.random.default_rng(0).integers(0, 255, (9, 10, 11), dtype=np.uint8)  # (z, y, x)
    affine = np.array([[0, -1.5, 0, 7], [0.5, 0, 0, -3], [0, 0, 2, 11], [0, 0, 0, 1.0]])
    (tmp_path / "new").mkdir()
    nibabel.save(nibabel.Nifti1Image(values.T, affine), tmp_path / "new" / "n.nii.gz")
    scan = sitk.GetImageFromArray(values)
    scan.SetSpacing((0.5, 1.5, 2.0))
    scan.SetOrigin((1.0, 2.0, 3.0))
    scan.SetDirection((0, 1, 0, -1, 0, 0, 0, 0, 1))
    sitk.WriteImage(scan, str(tmp_path / "new" / "i.nrrd"))
    tifffile.imwrite(tmp_path / "new" / "t.tif", values, photometric="minisblack", resolution=(25, 50))
    out = tmp_path / "out"
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", tmp_path / "new", "-o", out, "--outputs", "prob") == 0
    nifti = nibabel.load(out / "probabilities" / "n.nii.gz")
    wanted = segmenter.probabilities(tmp_path / "new" / "n.nii.gz").numpy()
    assert np.array_equal(nifti.affine, affine) and nifti.get_data_dtype() == np.float32
    assert np.allclose(np.moveaxis(np.asarray(nifti.dataobj), -1, 0), wanted, atol=1e-6)
    itk = sitk.ReadImage(str(out / "probabilities" / "i.nii.gz"))
    first = itk[:, :, :, 0]
    assert np.allclose(first.GetSpacing(), scan.GetSpacing()) and np.allclose(first.GetOrigin(), scan.GetOrigin())
    assert np.allclose(first.GetDirection(), scan.GetDirection())
    wanted = segmenter.probabilities(tmp_path / "new" / "i.nrrd").numpy()
    assert np.allclose(sitk.GetArrayFromImage(itk), wanted, atol=1e-6)
    with tifffile.TiffFile(out / "probabilities" / "t.tif") as file:
        assert file.series[0].axes == "CZYX" and file.pages[0].tags["XResolution"].value == (25, 1)
        assert np.allclose(file.asarray(), segmenter.probabilities(tmp_path / "new" / "t.tif").numpy(), atol=1e-6)
