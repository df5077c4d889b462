import numpy as np
import pytest
from scipy.ndimage import binary_erosion, distance_transform_edt

from hebbseg.evaluation import surface_distance as surfaces
from tests.evaluation.masks import random_mask, random_pairs
from tests.literal import metrics as literal


@pytest.mark.parametrize("n_axes", [2, 3])
def test_surface_is_the_mask_without_its_erosion(n_axes: int) -> None:
    for mask, _, _ in random_pairs(50, n_axes, 12, seed=1):
        before = mask.copy()
        found = surfaces.surface(mask)
        np.testing.assert_array_equal(found, mask ^ binary_erosion(mask))
        assert [tuple(v) for v in np.argwhere(found)] == literal.surface_voxels(mask)
        np.testing.assert_array_equal(mask, before)


def test_box_holds_every_voxel_and_no_empty_border() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        mask = random_mask(rng, (9, 7, 5))
        box = surfaces.bounding_box(mask)
        assert mask[box].sum() == mask.sum()
        for axis in range(3):
            assert mask[box].take(0, axis).any() and mask[box].take(-1, axis).any()


@pytest.mark.parametrize("cost", [0.0, np.inf], ids=["tree", "transform"])
@pytest.mark.parametrize("n_axes", [2, 3])
def test_tree_and_transform_give_the_same_distances(n_axes: int, cost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surfaces, "_voxels_per_query", lambda distance, n_axes: cost)
    for a, b, spacing in random_pairs(100, n_axes, 12, seed=3):
        there, back = surfaces.surface_distances(a, b, spacing)
        for found, source, target in ((there, a, b), (back, b, a)):
            to_target = distance_transform_edt(~surfaces.surface(target), sampling=spacing)
            expected = to_target[surfaces.surface(source)]
            np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-12)


def test_far_surfaces_go_through_the_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tree needs seconds for "everything is foreground" in a volume: every point of the heart sees a whole wall.
    called = []
    transform = surfaces.distance_transform_edt
    monkeypatch.setattr(surfaces, "distance_transform_edt", lambda *a, **k: called.append(1) or transform(*a, **k))
    everything = np.ones((64, 64, 64), dtype=bool)
    centre = np.zeros_like(everything)
    centre[28:36, 28:36, 28:36] = True
    surfaces.surface_distances(centre, everything, (1.0, 1.0, 1.0))
    assert called
    called.clear()
    surfaces.surface_distances(centre, np.roll(centre, 1, 0), (1.0, 1.0, 1.0))
    assert called  # small boxes go through it too
    called.clear()
    large = np.zeros_like(everything)
    large[4:60, 4:60, 4:60] = True
    surfaces.surface_distances(large, np.roll(large, 1, 0), (1.0, 1.0, 1.0))
    assert not called
