"""Prediction in true space: the same object at any spacing, orientation and format, and masks on the grid of their image."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from torch import Tensor, nn

from hebbseg.data.preprocessing import Preprocessing
from hebbseg.errors import HebbsegError
from hebbseg.inference.predictor import Predictor
from hebbseg.segmenter import Segmenter
from tests.data.io.test_orientation import affine_of
from tests.tiny import TWO_CLASSES, command, tiny_segmenter

EXTENT = (48.0, 40.0, 36.0)  # of the phantom, in mm
CENTER, RADII = np.array((22.0, 21.0, 17.5)), np.array((14.0, 11.0, 9.0))
SPACINGS = [(1.0, 1.0, 1.0), (0.8, 0.8, 2.4), (1.6, 1.6, 1.5)]
OBLIQUE = np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]])
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
BARE = ("--no-overlays", "--no-uncertainty")


class Threshold(nn.Module):
    """Foreground where the image is brighter than one half."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x), 40 * (x - 0.5)], dim=1)


def thresholder(spacing: tuple[float, ...] | None, **options) -> Predictor:
    shape = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
    return Predictor(
        network=Threshold(),
        network_options=shape,
        preprocessing=Preprocessing(size=None, normalize="unit", spacing=spacing),
        classes=TWO_CLASSES,
        **options,
    )


def phantom(spacing: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """An ellipsoid whose brightness falls from its center to 0, one half at its surface, and its distance to the surface."""
    size = [round(side / step) for side, step in zip(EXTENT, spacing, strict=True)]
    axes = [(np.arange(n) + 0.5) * side / n for n, side in zip(size, EXTENT, strict=True)]
    place = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    relative = np.linalg.norm((place - CENTER) / RADII, axis=-1)
    distance = np.abs(relative - 1) * RADII.min()  # at most the distance in mm
    return np.clip(255 * (1 - relative / 2), 0, 255).astype(np.uint8), np.where(relative < 1, distance, -distance)


@pytest.mark.parametrize("spacing", SPACINGS)
def test_a_phantom_has_the_same_mask_at_every_spacing_within_a_voxel(spacing: tuple[float, ...]) -> None:
    image, distance = phantom(spacing)
    found = thresholder((1.0, 1.0, 1.0)).probabilities_of_channels(image[None], spacing).argmax(0).numpy()
    voxel = max(*spacing, 1.0)
    wrong = (found > 0) != (distance > 0)
    assert found.shape == image.shape and not (wrong & (np.abs(distance) > voxel)).any()
    volume = found.sum() * np.prod(np.array(EXTENT) / found.shape)
    assert volume == pytest.approx(4 / 3 * np.pi * RADII.prod(), rel=0.05)
    center = (np.argwhere(found).mean(axis=0) + 0.5) * np.array(EXTENT) / found.shape
    np.testing.assert_allclose(center, CENTER, atol=0.15)


def test_arrays_have_the_spacing_of_the_training_images() -> None:
    image, _ = phantom((1.0, 1.0, 1.0))
    ours, plain = thresholder((2.0, 2.0, 2.0)), thresholder(None)
    assert np.array_equal(ours.predict(image), plain.predict(image))


def write(path: Path, array: np.ndarray, code: str, spacing: tuple[float, ...]) -> Path:
    """Write a volume (x, y, z) whose axes are named by ``code``, rotated by an oblique angle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = affine_of(code, spacing)
    affine[:3, :3] = OBLIQUE @ affine[:3, :3]
    if path.name.endswith(".nii.gz"):
        volume = nibabel.Nifti1Image(array, affine)
        volume.header.set_xyzt_units("mm")
        nibabel.save(volume, path)
        return path
    volume, lps = sitk.GetImageFromArray(array.T), LPS_TO_RAS @ affine
    steps = np.linalg.norm(lps[:3, :3], axis=0)
    volume.SetSpacing(steps.tolist())
    volume.SetDirection((lps[:3, :3] / steps).ravel().tolist())
    volume.SetOrigin(lps[:3, 3].tolist())
    sitk.WriteImage(volume, str(path))
    return path


def geometry(path: Path) -> list[object]:
    """Read by the library of the format, not by hebbseg: affine or direction, origin and spacing, bit for bit."""
    if path.name.endswith(".nii.gz"):
        header = nibabel.load(path).header
        names = ("pixdim", "qform_code", "sform_code", "srow_x", "srow_y", "srow_z", "quatern_b", "quatern_c", "quatern_d",
                 "qoffset_x", "qoffset_y", "qoffset_z", "xyzt_units")  # fmt: skip
        return [header[name].tobytes() for name in names] + [nibabel.load(path).affine.tobytes()]
    volume = sitk.ReadImage(str(path))
    return [volume.GetOrigin(), volume.GetSpacing(), volume.GetDirection(), volume.GetSize()]


def voxels(path: Path) -> np.ndarray:
    """Return the voxels (x, y, z)."""
    if path.name.endswith(".nii.gz"):
        return np.asarray(nibabel.load(path).dataobj)
    return sitk.GetArrayFromImage(sitk.ReadImage(str(path))).T


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of volumes RAS at 1 × 1 × 2 mm; its mask depends on everything."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    segmenter = tiny_segmenter(dims=3, channels=1, size=None, axes="xyz", orientation="RAS", window=(8, 8, 8))
    kept = Preprocessing(size=None, normalize="zscore", spacing=(1.0, 1.0, 2.0))
    Segmenter(**{**vars(segmenter), "preprocessing": kept}).save(path)
    return path


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha", ".nrrd"])
def test_masks_have_the_geometry_of_their_image_bit_for_bit(suffix: str, tmp_path: Path, model: Path, monkeypatch) -> None:
    array = (255 * np.random.default_rng(0).random((9, 10, 7))).astype(np.int16)
    for code in ("RAS", "LPI", "ASR"):
        write(tmp_path / "in" / f"{code}{suffix}", array, code, (0.7, 1.3, 2.1))
    assert command(monkeypatch, "predict", model, tmp_path / "in", "-o", tmp_path / "out", *BARE) == 0
    for code in ("RAS", "LPI", "ASR"):
        name = f"{code}{suffix}"
        assert geometry(tmp_path / "out" / name) == geometry(tmp_path / "in" / name)
        assert voxels(tmp_path / "out" / name).shape == array.shape


def test_turned_volumes_have_the_same_mask_in_every_format(tmp_path: Path, model: Path, monkeypatch) -> None:
    array = (255 * np.random.default_rng(1).random((9, 10, 7))).astype(np.int16)
    volume = nibabel.Nifti1Image(array, affine_of("RAS", (0.7, 1.3, 2.1)))
    ras = nibabel.orientations.axcodes2ornt("RAS")
    codes = {"RAS": ".nii.gz", "LPS": ".mha", "SRA": ".nrrd", "PIL": ".nii.gz", "IAR": ".mha"}
    for code, suffix in codes.items():
        change = nibabel.orientations.ornt_transform(ras, nibabel.orientations.axcodes2ornt(code))
        turned = volume.as_reoriented(change)
        spacing = tuple(float(step) for step in turned.header.get_zooms())
        write(tmp_path / "in" / f"{code}{suffix}", np.asarray(turned.dataobj), code, spacing)
    assert command(monkeypatch, "predict", model, tmp_path / "in", "-o", tmp_path / "out", *BARE) == 0
    expected = voxels(tmp_path / "out" / "RAS.nii.gz")
    assert 0 < (expected > 0).mean() < 1
    for code, suffix in codes.items():
        found = nibabel.Nifti1Image(voxels(tmp_path / "out" / f"{code}{suffix}"), affine_of(code))
        back = nibabel.orientations.ornt_transform(nibabel.orientations.axcodes2ornt(code), ras)
        assert np.array_equal(np.asarray(found.as_reoriented(back).dataobj), expected), code


def test_a_file_without_spacing_is_noted(tmp_path: Path, model: Path, monkeypatch, capsys) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((8, 8, 8)).astype(np.float32))
    assert command(monkeypatch, "predict", model, tmp_path / "a.npy", "-o", tmp_path / "out", *BARE) == 0
    assert "has no spacing; it is taken to be that of the training images" in capsys.readouterr().err


def test_an_image_that_would_become_too_large_fails_alone(tmp_path: Path, model: Path, monkeypatch, capsys) -> None:
    array = np.zeros((9, 10, 7), np.int16)
    write(tmp_path / "in" / "good.nii.gz", array, "RAS", (1.0, 1.0, 1.0))
    write(tmp_path / "in" / "huge.nii.gz", array, "RAS", (900.0, 900.0, 900.0))
    assert command(monkeypatch, "predict", model, tmp_path / "in", "-o", tmp_path / "out", *BARE) == 1
    said = capsys.readouterr().err
    assert "huge.nii.gz" in said and "Check the spacing in its header" in " ".join(said.split())
    assert (tmp_path / "out" / "good.nii.gz").is_file() and not (tmp_path / "out" / "huge.nii.gz").exists()


def test_the_model_file_keeps_spacing_and_orientation(model: Path) -> None:
    loaded = Segmenter.load(model)
    assert loaded.preprocessing.spacing == (1.0, 1.0, 2.0) and loaded.orientation == "RAS"
    assert "spacing 1×1×2 mm" in repr(loaded)


@pytest.mark.parametrize(
    ("place", "value", "word"),
    [
        ("orientation", "RAR", "R or L, A or P, and S or I"),
        ("spacing", [0.0, 1.0, 1.0], "greater than 0"),
        ("spacing", [1.0, 1.0], "does not fit"),
    ],
)
def test_damaged_models_are_refused(place: str, value: object, word: str, model: Path, tmp_path: Path) -> None:
    from hebbseg.networks.model_file import load_model, save_model

    weights, description = load_model(model)
    (description if place == "orientation" else description["preprocessing"])[place] = value
    save_model(tmp_path / "model.safetensors", weights, description)
    with pytest.raises(HebbsegError, match=word):
        Segmenter.load(tmp_path / "model.safetensors")
