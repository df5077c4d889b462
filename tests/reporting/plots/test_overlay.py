import numpy as np
import pytest

from hebbseg.errors import HebbsegError
from hebbseg.reporting.plots.overlay import PALETTE, TARGET_COLOUR, overlay


def square(size: tuple[int, ...], low: int, high: int, value: int = 1) -> np.ndarray:
    mask = np.zeros(size, dtype=np.uint8)
    mask[(slice(low, high),) * len(size)] = value
    return mask


def is_colour(picture: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    return (picture == colour).all(axis=-1)


def test_contour_lies_on_the_rim_of_the_mask_and_the_rest_is_the_image() -> None:
    image = np.random.default_rng(0).integers(100, 200, (3, 60, 80), dtype=np.uint8)
    mask = square((60, 80), 20, 40)
    before = image.copy(), mask.copy()
    picture = overlay(image, mask, longer_side=1)
    assert picture.shape == (60, 80, 3) and picture.dtype == np.uint8
    rim = mask.astype(bool) & ~square((60, 80), 22, 38).astype(bool)
    np.testing.assert_array_equal(is_colour(picture, PALETTE[0]), rim)
    edge = is_colour(picture, (0, 0, 0))
    assert edge.any() and not (edge & mask.astype(bool)).any()
    rest = ~rim & ~edge
    np.testing.assert_array_equal(picture[rest], np.moveaxis(image, 0, -1)[rest])
    np.testing.assert_array_equal(image, before[0])
    np.testing.assert_array_equal(mask, before[1])


def test_each_class_has_its_colour_and_colours_repeat() -> None:
    mask = square((64, 64), 5, 25, 1) + square((64, 64), 35, 55, len(PALETTE) + 2)
    picture = overlay(np.zeros((64, 64)), mask, longer_side=1)
    assert is_colour(picture, PALETTE[0])[5:25, 5:25].any()
    assert is_colour(picture, PALETTE[1])[35:55, 35:55].any()
    assert is_colour(overlay(np.zeros((64, 64)), mask > 0, [(1, 2, 3)], longer_side=1), (1, 2, 3)).any()


def test_target_lies_below_the_prediction() -> None:
    mask, target = square((64, 64), 10, 40), square((64, 64), 20, 50)
    picture = overlay(np.zeros((64, 64)), mask, target=target, longer_side=1)
    assert is_colour(picture, TARGET_COLOUR).any()
    np.testing.assert_array_equal(
        is_colour(picture, PALETTE[0]), is_colour(overlay(np.zeros((64, 64)), mask, longer_side=1), PALETTE[0])
    )


def test_a_class_that_meets_the_border_of_the_image_has_no_contour_there() -> None:
    picture = overlay(np.zeros((32, 32)), np.ones((32, 32), dtype=int), longer_side=1)
    assert not picture.any()


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint16])
def test_other_types_are_stretched(dtype: type) -> None:
    image = np.arange(1000, 2000).reshape(1, 20, 50).astype(dtype)
    picture = overlay(image, np.zeros((20, 50), dtype=int), longer_side=1)
    assert (picture.min(), picture.max()) == (0, 255)
    assert (picture[..., 0] == picture[..., 2]).all()
    assert not overlay(np.full((4, 4), np.nan), np.zeros((4, 4), int)).any()


def test_small_images_are_enlarged_by_a_whole_factor() -> None:
    image = np.random.default_rng(0).integers(0, 255, (3, 30, 50), dtype=np.uint8)
    picture = overlay(image, np.zeros((30, 50), int), longer_side=120)
    assert picture.shape == (90, 150, 3)
    np.testing.assert_array_equal(picture[::3, ::3], np.moveaxis(image, 0, -1))


def test_volume_shows_three_slices_through_the_mask_in_true_proportion() -> None:
    volume = np.random.default_rng(0).random((40, 30, 10)).astype(np.float32)
    mask = np.zeros(volume.shape, dtype=np.uint8)
    mask[5:15, 5:15, 7:9] = 1
    plain = overlay(volume, mask, longer_side=1)
    assert plain.shape == (40, 10 + 4 + 10 + 4 + 30, 3)
    true = overlay(volume[None], mask, spacing=(1, 1, 4), longer_side=1)
    assert true.shape == (40, 40 + 4 + 40 + 4 + 30, 3)
    # The slices are those through the mask, not those through the middle of the volume, which miss it.
    for left, width in ((0, 10), (14, 10), (28, 30)):
        assert is_colour(plain[:, left : left + width], PALETTE[0]).any()
    overlay(volume, np.zeros_like(mask), target=mask)
    overlay(volume, np.zeros_like(mask))


def test_shapes_must_match() -> None:
    with pytest.raises(HebbsegError, match=r"image has shape \(8, 9, 3\) and mask \(8, 9\).*channels in front"):
        overlay(np.zeros((8, 9, 3)), np.zeros((8, 9), int))
    with pytest.raises(HebbsegError, match="target has shape"):
        overlay(np.zeros((8, 9)), np.zeros((8, 9), int), target=np.zeros((9, 8), int))
