"""Objects found part by part are those of the whole image."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from hebbseg.data.io import tiles
from hebbseg.data.io.volume_map import new_map
from hebbseg.inference import areas
from hebbseg.inference.object_parts import LargeObjects, find_in_parts
from hebbseg.inference.objects import ObjectOptions, find_objects, merged_border


def blobs(shape: tuple[int, ...], classes: int, seed: int) -> np.ndarray:
    """Return class probabilities (K, *S) with blobs, holes, and areas at the edges of the image."""
    noise = np.random.default_rng(seed).normal(size=(classes, *shape))
    smooth = gaussian_filter(noise, (0, *[2.5] * len(shape)))
    odds = np.exp(smooth / smooth.std())
    odds[0] *= 6  # more background, so that areas are small
    return (odds / odds.sum(axis=0)).astype(np.float32)


def in_parts(probabilities: np.ndarray, options: ObjectOptions, folder: Path, *, borders: bool = False) -> LargeObjects:
    classes = merged_border(probabilities) if borders else probabilities
    indices = new_map(folder / "classes", classes.shape[1:], np.uint8)
    indices[...] = classes.argmax(0)
    inside = None
    if borders:
        inside = np.where(probabilities[1] > probabilities[2], probabilities[1], -probabilities[1])
    return find_in_parts(indices, len(classes), options, folder, inside=inside)


def same_objects(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether two label images agree but for the order of numbers, and some pixels at cuts of the watershed.

    Pixels that are equally far from both sides of a cut belong to one of them by the order of skimage's queue.
    """
    pairs, counts = np.unique(np.stack([found.ravel(), expected.ravel()]), axis=1, return_counts=True)
    kept = counts > 0.01 * found.size / found.max()
    one_to_one = all(len(np.unique(side[kept])) == kept.sum() for side in pairs)
    return one_to_one and counts[~kept].sum() < 0.01 * found.size and np.array_equal(found > 0, expected > 0)


@pytest.mark.parametrize("shape", [(150, 170), (24, 30, 28)])
@pytest.mark.parametrize("options", [{}, {"min_size": 30, "fill_holes": False}, {"method": "watershed", "min_size": 5}])
def test_objects_are_those_of_the_whole_image(
    shape: tuple[int, ...], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tiles, "BAND_PIXELS", 700)
    monkeypatch.setattr(areas, "LARGEST", 20000)  # windows contain several objects
    probabilities, wanted = blobs(shape, 3, seed=len(shape)), ObjectOptions(**options)
    expected = find_objects(probabilities, wanted)
    found = in_parts(probabilities, wanted, tmp_path)
    assert not found.whole and len(found) == len(expected) > 5
    assert np.bincount(found.classes).tolist() == np.bincount(expected.classes).tolist()
    assert same_objects(found.labels, expected.labels)
    classes = (np.append(0, each.classes)[each.labels] for each in (found, expected))
    assert np.array_equal(*classes)
    if wanted.method == "components":
        assert np.array_equal(found.labels, expected.labels)
    again = np.zeros(shape, np.int32)
    for window, numbers, objects in found.parts():
        here = objects.labels > 0
        again[window][here] = numbers[objects.labels[here] - 1]
        assert np.array_equal(objects.classes, found.classes[numbers - 1])
    assert np.array_equal(again, found.labels)


def test_touching_objects_of_a_model_of_borders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiles, "BAND_PIXELS", 700)
    monkeypatch.setattr(areas, "LARGEST", 8000)
    probabilities = blobs((90, 110), 3, seed=5)
    for method in ("components", "watershed"):
        options = ObjectOptions(method=method)
        (tmp_path / method).mkdir()
        expected = find_objects(probabilities, options, borders=True)
        found = in_parts(probabilities, options, tmp_path / method, borders=True)
        assert not found.whole and len(found) > 5 and same_objects(found.labels, expected.labels)


def test_one_object_covers_everything_and_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(areas, "LARGEST", 100)
    probabilities = np.zeros((2, 20, 30), np.float32)
    for index in (0, 1):
        probabilities[:] = 0
        probabilities[index] = 1
        (tmp_path / str(index)).mkdir()
        found = in_parts(probabilities, ObjectOptions(method="watershed"), tmp_path / str(index))
        assert len(found) == found.whole == len(found.larger) == index and (found.labels == index).all()
        assert not list(found.parts())
