"""Resampling to a spacing: sizes, values and limits."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from hebbseg.data.cases import IGNORE
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.resampling import resampled_image, resized_mask
from hebbseg.errors import HebbsegError
from tests.literal import resampling as literal


def resampling(*spacing: float, normalize: str = "unit") -> Preprocessing:
    return Preprocessing(size=None, normalize=normalize, spacing=spacing)


@pytest.mark.parametrize("size", [(3, 5, 4), (9, 5, 4), (4, 7, 9), (6, 3, 2), (2, 11, 4)])
def test_volumes_are_resampled_as_the_equation_says(size: tuple[int, ...]) -> None:
    image = torch.rand((2, 6, 5, 4), generator=torch.Generator().manual_seed(0))
    expected = np.stack([literal.resampled_image(channel.numpy(), size) for channel in image])
    np.testing.assert_allclose(resampled_image(image, size).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("spacing", [(0.5, 2.0, 1.3), (3.0, 0.7, 1.0)])
def test_positions_in_millimeters_stay(spacing: tuple[float, ...]) -> None:
    """A ramp over the position in mm is the same ramp on the new grid, inside the volume."""
    step, shape = (1.0, 1.0, 1.0), (24, 30, 26)
    axes = [(np.arange(n) + 0.5) * s for n, s in zip(shape, step, strict=True)]
    ramp = sum(weight * axis for weight, axis in zip((1.0, 0.5, -0.3), np.meshgrid(*axes, indexing="ij"), strict=True))
    new = resampling(*spacing).working_size(shape, step)
    found = resampled_image(torch.from_numpy(ramp[None].astype(np.float32)), new)[0].numpy()
    axes = [(np.arange(n) + 0.5) * (old / n) for n, old in zip(new, shape, strict=True)]
    expected = sum(weight * axis for weight, axis in zip((1.0, 0.5, -0.3), np.meshgrid(*axes, indexing="ij"), strict=True))
    inside = (slice(3, -3),) * 3
    assert found[inside].size
    np.testing.assert_allclose(found[inside], expected[inside], atol=0.03)


def test_shrinking_does_not_alias() -> None:
    stripes = torch.zeros(1, 8, 8, 64)
    stripes[..., ::2] = 1
    assert float((resampled_image(stripes, (8, 8, 20))[..., 2:-2] - 0.5).abs().max()) < 0.1


@pytest.mark.parametrize(
    ("shape", "own", "wanted", "expected"),
    [
        ((10, 20), (1.0, 1.0), (2.0, 0.5), (5, 40)),
        ((10, 20, 30), (0.6, 0.6, 1.2), (0.6, 0.6, 1.2), (10, 20, 30)),
        ((3, 7, 9), (1.0, 1.0, 1.0), (40.0, 1.1, 0.9), (1, 6, 10)),
    ],
)
def test_the_working_size_keeps_the_extent(shape: tuple, own: tuple, wanted: tuple, expected: tuple) -> None:
    assert resampling(*wanted).working_size(shape, own) == expected
    assert resampling(*wanted).working_size(shape) == shape, "without a spacing, nothing is resampled"


def test_images_and_masks_are_resampled_alike() -> None:
    rng = np.random.default_rng(0)
    mask = (gaussian_filter(rng.normal(size=(12, 14, 10)), 2) > 0).astype(np.uint8)
    kept = resampling(2.0, 0.7, 1.0)
    image = kept.image(mask[None] * np.uint8(200), (1.0, 1.0, 1.0))
    small = kept.mask(mask, (1.0, 1.0, 1.0))
    assert image.shape[1:] == small.shape == (6, 20, 10)
    assert torch.equal(small, resized_mask(torch.from_numpy(mask), (6, 20, 10), 2))
    assert float(((image[0] > 100) == (small > 0)).float().mean()) > 0.9
    ids = kept.ids(mask.astype(np.int32) * 7, (1.0, 1.0, 1.0))
    assert ids.shape == small.shape and set(ids.unique().tolist()) == {0, 7}
    partial = np.where(rng.random(mask.shape) < 0.5, IGNORE, mask).astype(np.uint8)
    assert IGNORE in kept.mask(partial, (1.0, 1.0, 1.0)).unique().tolist()


def test_images_of_the_same_spacing_are_stored_as_they_are() -> None:
    volume = np.random.default_rng(0).random((1, 5, 6, 7)).astype(np.float32)
    plain = Preprocessing(size=None, normalize="zscore").image(volume)
    assert torch.equal(resampling(1.0, 1.0, 2.0, normalize="zscore").image(volume, (1.0, 1.0, 2.0)), plain)


def test_the_spacing_is_described_only_if_there_is_one() -> None:
    assert "spacing" not in Preprocessing(size=None, normalize="unit").describe(), "keys of earlier caches and models"
    kept = resampling(0.5, 1.0)
    assert Preprocessing.from_description(kept.describe()) == kept
    assert kept.grid == "spacing 0.5×1 mm" and kept.resizes


@pytest.mark.parametrize(
    ("spacing", "size", "word"),
    [
        ((0.0, 1.0), None, "positive"),
        ((-1.0, 1.0, 1.0), None, "positive"),
        ((float("nan"), 1.0), None, "positive"),
        ((float("inf"), 1.0), None, "positive"),
        ((1.0,), None, "2 or 3"),
        ((1.0, 1.0), (8, 8), "choose one"),
    ],
)
def test_bad_spacings(spacing: tuple, size: tuple | None, word: str) -> None:
    with pytest.raises(HebbsegError, match=word):
        Preprocessing(size=size, normalize="unit", spacing=spacing)


def test_a_resampled_volume_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HebbsegError, match=r"from 60×60×60 mm to 0.6×0.6×0.6 mm.*2000×2000×2000.*HEBBSEG_MAX_PIXELS"):
        resampling(0.6, 0.6, 0.6).image(np.zeros((1, 20, 20, 20), np.uint8), (60.0, 60.0, 60.0))
    monkeypatch.setenv("HEBBSEG_MAX_PIXELS", "1000")
    assert resampling(1.0, 1.0).working_size((100, 100), (1.0, 1.0)) == (100, 100), "as large as its file"


def test_a_resampled_image_is_not_preprocessed_in_parts() -> None:
    with pytest.raises(HebbsegError, match="in parts"):
        resampling(1.0, 1.0).of_parts(np.zeros((1, 4, 4), np.uint8))
