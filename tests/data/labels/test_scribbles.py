"""Scribbles and slices: what is annotated is right, of the size asked for, and a function of the seed."""

import numpy as np
import pytest
from scipy.ndimage import binary_erosion

from hebbseg.data.cases import IGNORE
from hebbseg.data.labels.scribbles import annotated_slices, scribbles
from hebbseg.errors import HebbsegError


def drawing() -> np.ndarray:
    rows, columns = np.indices((120, 160))
    mask = np.zeros((120, 160), np.uint8)
    mask[(rows - 40) ** 2 + (columns - 50) ** 2 < 30**2] = 1
    mask[(rows - 80) ** 2 / 4 + (columns - 120) ** 2 < 15**2] = 2
    return mask


def strokes(seed: int, **options) -> np.ndarray:
    return scribbles(drawing(), np.random.default_rng(seed), **options)


def test_strokes_have_the_class_of_the_mask_and_the_share_of_each_class():
    for seed, share in ((0, 0.02), (1, 0.02), (2, 0.1)):
        drawn = strokes(seed, share=share)
        known = drawn != IGNORE
        np.testing.assert_array_equal(drawn[known], drawing()[known])
        for index in range(3):
            # A stroke ends within one width of the share asked for.
            assert (
                share <= (drawn == index).sum() / (drawing() == index).sum() < share + 3 * 3 / (drawing() == index).sum() + 0.01
            )


def test_strokes_are_a_function_of_the_generator():
    np.testing.assert_array_equal(strokes(3), strokes(3))
    assert (strokes(3) != strokes(4)).any()


def test_strokes_are_as_wide_as_asked_for():
    for width in (1, 3, 5):
        drawn = strokes(0, share=0.05, width=width) == 0
        whole = np.ones((width, width))
        assert binary_erosion(drawn, whole).any() and not binary_erosion(drawn, np.ones((width + 4, width + 4))).any()


def test_every_class_has_a_stroke_and_ignored_pixels_stay():
    mask = np.zeros((30, 30), np.uint8)
    mask[4, 4] = 5
    mask[20:] = IGNORE
    drawn = scribbles(mask, np.random.default_rng(0))
    assert set(np.unique(drawn)) == {0, 5, IGNORE} and (drawn[20:] == IGNORE).all()
    volume = np.zeros((12, 20, 16), np.uint8)
    volume[3:9, 5:15, 4:12] = 1
    drawn = scribbles(volume, np.random.default_rng(0))
    known = drawn != IGNORE
    assert known.mean() < 0.06 and set(np.unique(drawn)) == {0, 1, IGNORE}
    np.testing.assert_array_equal(drawn[known], volume[known])


def test_slices_within_the_extent_of_the_object():
    volume = np.zeros((20, 6, 6), np.uint8)
    volume[5:15, 2:4, 2:4] = 1
    kept = annotated_slices(volume, 3)
    annotated = np.flatnonzero((kept != IGNORE).all(axis=(1, 2)))
    assert annotated.tolist() == [6, 10, 13] and (np.delete(kept, annotated, axis=0) == IGNORE).all()
    np.testing.assert_array_equal(kept[annotated], volume[annotated])
    assert (annotated_slices(volume, 6, axis=-1) != IGNORE).sum() == 2 * 20 * 6
    assert (annotated_slices(np.zeros((8, 4, 4), np.uint8), 2) != IGNORE).sum() == 2 * 16


def test_impossible_wishes_are_named():
    with pytest.raises(HebbsegError, match=r"share=0, width=3: allowed are shares above 0"):
        strokes(0, share=0)
    with pytest.raises(HebbsegError, match="count=21: allowed are 1 to 20 slices"):
        annotated_slices(np.zeros((20, 3, 3), np.uint8), 21)
