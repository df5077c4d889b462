"""Metrics and pictures on real masks and images."""

import h5py
import medpy.metric.binary as medpy
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from hebbseg.evaluation.metrics import all_metrics
from hebbseg.reporting.plots.overlay import PALETTE, TARGET_COLOUR, overlay
from tests.realdata import real

pytestmark = pytest.mark.real


def imperfect(mask: np.ndarray) -> np.ndarray:
    """What a segmenter might have made of it: wavy contours, a speck far away."""
    noise = gaussian_filter(np.random.default_rng(0).standard_normal(mask.shape), 4)
    prediction = gaussian_filter(mask.astype(float), 2) + 0.3 * noise / noise.std() > 0.5
    prediction[(slice(0, 2),) * mask.ndim] = True
    return prediction


def check(image: np.ndarray, mask: np.ndarray, spacing: tuple[float, ...]) -> None:
    prediction = imperfect(mask)
    found = all_metrics(prediction, mask, spacing)
    assert 0.5 < found["dice"] < 1
    assert found["dice"] == pytest.approx(medpy.dc(prediction, mask))
    assert found["hd95"] == pytest.approx(medpy.hd95(prediction, mask, spacing), rel=1e-9)
    assert found["asd"] == pytest.approx(medpy.assd(prediction, mask, spacing), rel=1e-9)
    picture = overlay(image, prediction, target=mask)
    assert min(picture.shape[:2]) > 200
    for colour in (PALETTE[0], TARGET_COLOUR):
        assert 0.0005 < (picture == colour).all(axis=-1).mean() < 0.2


def test_glands() -> None:
    folder = real("glas")
    image = np.moveaxis(np.asarray(Image.open(folder / "testA_5.bmp").convert("RGB")), -1, 0)
    check(image, np.asarray(Image.open(folder / "testA_5_anno.bmp")) > 0, (1.0, 1.0))


def test_heart() -> None:
    with h5py.File(min(real("la_half").rglob("mri_norm2.h5"))) as file:
        check(file["image"][:], file["label"][:] > 0, (1.25, 1.25, 2.5))
