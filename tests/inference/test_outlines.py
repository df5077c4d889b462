"""Outlines: rasterized by other programs, they give the mask again, and their rings are valid."""

import json

import numpy as np
import pytest
from matplotlib.path import Path as Polygon
from PIL import Image as Pillow
from PIL import ImageDraw
from skimage.draw import polygon2mask

from hebbseg.data.labels.instances import connected_objects
from hebbseg.data.labels.masks import two_classes
from hebbseg.inference.outlines import as_text, feature_collection, polygons_of

RING_IN_RING = np.zeros((11, 11), bool)
RING_IN_RING[1:10, 1:10], RING_IN_RING[2:9, 2:9], RING_IN_RING[4:7, 4:7] = True, False, True
# A ring that closes by a corner, holes that touch by a corner, and two parts that do.
DIAGONALS = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1], [1, 1, 0, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]], bool)
MASKS = {
    "pixel": np.eye(1, dtype=bool),
    "full": np.ones((5, 7), bool),
    "ring": RING_IN_RING,
    "diagonals": DIAGONALS,
    "open": DIAGONALS[::-1, ::-1],
    **{f"noise {share}": np.random.default_rng(3).random((30, 41)) < share for share in (0.3, 0.5, 0.8)},
}


def rings_of(mask: np.ndarray) -> list[np.ndarray]:
    return [np.array(ring) for polygon in polygons_of(mask) for ring in polygon]


def by_scikit_image(rings: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Pixel centers have integer coordinates there, corners half ones."""
    return sum((polygon2mask(shape, ring[:, ::-1] - 0.5).astype(int) for ring in rings), np.zeros(shape, int)) % 2 == 1


def by_matplotlib(rings: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    rows, columns = np.indices(shape)
    centers = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
    inside = [Polygon(ring).contains_points(centers).reshape(shape) for ring in rings]
    return np.sum(inside, axis=0) % 2 == 1


def by_pillow(rings: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Pillow draws the border, too: in a picture 10 times larger, the centers of pixels are not at a border."""
    total = np.zeros(shape, int)
    for ring in rings:
        picture = Pillow.new("1", (10 * shape[1] + 1, 10 * shape[0] + 1))
        ImageDraw.Draw(picture).polygon([(10 * x, 10 * y) for x, y in ring.tolist()], fill=1)
        total += np.asarray(picture)[5::10, 5::10].astype(int)
    return total % 2 == 1


@pytest.mark.parametrize("raster", [by_scikit_image, by_matplotlib, by_pillow])
@pytest.mark.parametrize("name", MASKS)
def test_the_polygons_are_the_mask(name: str, raster):
    mask = MASKS[name]
    assert np.array_equal(raster(rings_of(mask), mask.shape), mask)


@pytest.mark.parametrize("name", MASKS)
def test_rings_are_valid(name: str):
    area = 0.0
    for polygon in polygons_of(MASKS[name]):
        for number, ring in enumerate(polygon):
            assert ring[0] == ring[-1] and len(ring) >= 5
            assert len({tuple(point) for point in ring[:-1]}) == len(ring) - 1  # simple: no vertex twice
            steps = np.diff(np.array(ring), axis=0)
            assert ((steps == 0).sum(axis=1) == 1).all()  # along rows or columns
            x, y = np.array(ring).T
            signed = (x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2
            assert (signed > 0) == (number == 0)  # the outer ring counterclockwise, holes clockwise
            area += signed
    assert area == MASKS[name].sum()


def test_parts_and_holes():
    outer, inner = polygons_of(RING_IN_RING)
    assert len(outer) == 2 and len(inner) == 1
    assert outer[0] == [[1, 1], [10, 1], [10, 10], [1, 10], [1, 1]]
    assert polygons_of(np.zeros((3, 3), bool)) == []


def test_the_collection_is_json_with_a_feature_per_object():
    mask = np.zeros((20, 30), np.uint8)
    mask[3:9, 4:9], mask[12:18, 20:28] = 1, 1
    objects = connected_objects(mask)
    text = as_text(feature_collection(objects, two_classes(255, ("background", "nucleus")), "detection"))
    read = json.loads(text)
    assert read["type"] == "FeatureCollection" and len(read["features"]) == 2
    for number, feature in enumerate(read["features"], start=1):
        assert feature["type"] == "Feature" and feature["geometry"]["type"] == "Polygon"
        properties = feature["properties"]
        assert properties["objectType"] == "detection" and properties["name"] == str(number)
        assert properties["classification"] == {"name": "nucleus", "color": [240, 228, 66]}
        rings = [np.array(ring) for ring in feature["geometry"]["coordinates"]]
        assert np.array_equal(by_matplotlib(rings, mask.shape), objects.labels == number)
    assert json.loads(as_text({"type": "FeatureCollection", "features": []}))["features"] == []
