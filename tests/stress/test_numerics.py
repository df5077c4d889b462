"""Extreme but valid numbers: the result is finite, or the run is refused before training."""

import csv
import math
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from safetensors.torch import load_file

from hebbseg import Segmenter
from hebbseg.data.preprocessing import NORMALIZATIONS, Preprocessing
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import asd, hd95
from tests.tiny import tiny_segmenter

SIDE = 24
SETTINGS = {
    "labelled": "3", "size": (SIDE, SIDE), "features": (4, 8, 16), "updates": 3, "labelled_batch": 1, "unlabelled_batch": 1,
    "pretrain_epochs": 1, "pretrain_batch": 4, "seed": 2,
}  # fmt: skip
TINY, HUGE = 1e-37, 3e38  # near the ends of float32
MM = 1e-6, 1e6  # spacings


def noise(seed: int, scale: float = 1.0, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).uniform(-scale, scale, shape or (SIDE, SIDE))).astype(np.float32)


def one_pixel(scale: float = 1.0) -> np.ndarray:
    image = np.zeros((SIDE, SIDE), np.float32)
    image[SIDE // 2, SIDE // 2] = scale
    return image


IMAGES = {
    "constant": np.full((SIDE, SIDE), 7.0, np.float32),
    "constant huge": np.full((SIDE, SIDE), HUGE, np.float32),
    "tiny": noise(0, TINY),
    "huge": noise(1, HUGE),
    "one pixel": one_pixel(),
    "one huge pixel": one_pixel(HUGE),
    "ordinary": noise(2),
    "with NaN": np.where(noise(3) > 0.9, np.nan, noise(4)).astype(np.float32),
    "with infinity": np.where(noise(3) > 0.9, -np.inf, noise(4)).astype(np.float32),
    "only NaN": np.full((SIDE, SIDE), np.nan, np.float32),
}
VALID = [name for name, image in IMAGES.items() if np.isfinite(image).all()]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("size", [None, (SIDE // 2, 2 * SIDE)], ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_network_input_is_finite(name: str, size: tuple[int, int] | None, normalize: str) -> None:
    kept = Preprocessing(size=size, normalize=normalize).image(IMAGES[name][None])
    found = Preprocessing.to_network(kept)
    assert torch.isfinite(found).all()
    if size is None and name in ("tiny", "huge", "ordinary", "one pixel"):
        assert found.std() > 1e-3, "and it is not blank"


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", IMAGES)
def test_prediction_is_finite(name: str) -> None:
    segmenter = tiny_segmenter(channels=1, normalize="zscore")
    assert np.isfinite(segmenter.probabilities(IMAGES[name]).numpy()).all()


def written(folder: Path, images: dict[str, np.ndarray]) -> Path:
    """Every mask has a single pixel of foreground."""
    mask = one_pixel(255).astype(np.uint8)
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    for number, image in enumerate(images.values()):
        tifffile.imwrite(folder / "images" / f"{number}.tif", image)
        tifffile.imwrite(folder / "masks" / f"{number}.tif", mask)
    return folder


def finite_results(out: Path) -> None:
    for name, weights in load_file(out / "model.safetensors").items():
        assert torch.isfinite(weights).all(), name
    for name in ("metrics.csv", "history.csv"):
        with (out / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                numbers = [
                    float(value) for key, value in row.items() if value and key not in ("case", "class", "class_name", "stage")
                ]
                assert all(math.isfinite(number) for number in numbers), row


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(
    "options",
    [{"precision": "bf16-mixed"}, {"precision": "32-true", "norm": "batch", "normalize": "unit"}],
    ids=["bf16", "batch norm with one image"],
)
def test_training_on_extreme_images_is_finite(options: dict, tmp_path: Path) -> None:
    chosen = {name: IMAGES[name] for name in VALID} | {f"more {n}": noise(10 + n) for n in range(3)}
    data = written(tmp_path / "data", chosen)
    Segmenter.train(str(data), tmp_path / "run", quiet=True, **(SETTINGS | options))
    finite_results(tmp_path / "run")


def test_images_with_values_that_are_not_finite_are_refused_before_training(tmp_path: Path) -> None:
    data = written(tmp_path / "data", {name: IMAGES[name] for name in ("ordinary", "tiny", "one pixel", "with NaN", "huge")})
    with pytest.raises(HebbsegError, match=r"3\.tif: NaN or infinite values in \d+ pixel"):
        Segmenter.train(str(data), tmp_path / "run", quiet=True, **SETTINGS)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("mm", MM)
def test_distances_scale_with_the_spacing(mm: float) -> None:
    one, other = np.zeros((12, 14), bool), np.zeros((12, 14), bool)
    one[3:7, 2:9], other[5:6, 8:9] = True, True
    for metric in (hd95, asd):
        assert metric(one, other, (mm, mm)) == pytest.approx(mm * metric(one, other, (1.0, 1.0)), rel=1e-6)
        assert metric(one, one, (mm, mm)) == 0


@pytest.mark.parametrize("mm", MM)
def test_volumes_of_tiny_and_huge_spacing_are_finite(mm: float, tmp_path: Path) -> None:
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    for number in range(4):
        image = noise(number, 1.0, 16, 16, 8)
        mask = np.zeros((16, 16, 8), np.uint8)
        mask[4 + number, 5, 4] = 1
        for kind, array in (("images", image), ("masks", mask)):
            nibabel.save(nibabel.Nifti1Image(array, np.diag([mm, mm, mm, 1.0])), tmp_path / "data" / kind / f"{number}.nii.gz")
    options = SETTINGS | {"labelled": "2", "size": "native", "patch": (16, 16, 8), "features": (4, 8), "init": "random"}
    Segmenter.train(str(tmp_path / "data"), tmp_path / "run", quiet=True, **options)
    finite_results(tmp_path / "run")
