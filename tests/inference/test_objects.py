"""Objects from class probabilities, their table, and the network whose border counts as foreground."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from hebbseg.data.cases import ClassInfo
from hebbseg.data.labels.masks import two_classes
from hebbseg.errors import HebbsegError
from hebbseg.inference.object_table import object_rows
from hebbseg.inference.objects import MergedBorder, ObjectOptions, find_objects, merged_border
from tests.data.trees import picture, save
from tests.tiny import tiny_segmenter

COMPONENTS, WATERSHED = ObjectOptions(), ObjectOptions(method="watershed")


def probabilities(mask: np.ndarray) -> np.ndarray:
    return np.stack([(mask == k) * 0.8 + 0.1 for k in range(max(2, int(mask.max()) + 1))]).astype(np.float32)


def ball(shape: tuple[int, ...], center: tuple[float, ...], radius: float, spacing: tuple[float, ...] | None = None):
    grid = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    return sum(((g - c) * s) ** 2 for g, c, s in zip(grid, center, spacing or (1,) * len(shape))) <= radius**2


def test_components_share_faces_and_are_numbered_class_by_class():
    mask = np.zeros((8, 12), int)
    mask[0:2, 0:2], mask[2:4, 2:4], mask[6:8, 0:3], mask[0:3, 8:11] = 2, 2, 1, 1
    objects = find_objects(probabilities(mask), COMPONENTS)
    assert list(objects.classes) == [1, 1, 2, 2] and np.array_equal(objects.labels > 0, mask > 0)
    assert set(np.unique(objects.of_class(2))) == {0, 3, 4}
    by_scipy = ndimage.label(mask == 1)[1] + ndimage.label(mask == 2)[1]
    assert len(objects) == by_scipy == 4


@pytest.mark.parametrize("dims", [2, 3])
def test_watershed_cuts_touching_balls_at_the_neck_and_nothing_else(dims: int):
    shape = (26, 42) if dims == 2 else (24, 24, 40)
    middle = tuple(n // 2 for n in shape[:-1])
    mask = ball(shape, (*middle, 10), 9) | ball(shape, (*middle, 26), 9)
    assert len(find_objects(probabilities(mask), COMPONENTS)) == 1
    cut = find_objects(probabilities(mask), WATERSHED)
    assert len(cut) == 2 and np.array_equal(cut.labels > 0, mask)
    assert set(np.unique(cut.labels[..., :16])) == {0, 1} and set(np.unique(cut.labels[..., 21:])) == {0, 2}
    bar = np.zeros(shape, bool)
    bar[(*(slice(4, 12),) * (dims - 1), slice(2, 38))] = True
    assert len(find_objects(probabilities(bar), WATERSHED)) == 1  # no neck


@pytest.mark.parametrize("shape", [(30, 40), (9, 12, 15)])
def test_watershed_covers_the_mask_of_any_shape(shape: tuple[int, ...]):
    """In noise, areas touch by corners, and every area needs a seed of its own."""
    mask = (np.random.default_rng(0).random(shape) < 0.5).astype(int)
    objects = find_objects(probabilities(mask), ObjectOptions(method="watershed", fill_holes=False))
    assert np.array_equal(objects.labels > 0, mask > 0)
    areas = ndimage.label(mask)[0]
    assert len(objects) >= areas.max()
    assert all(len(np.unique(areas[objects.labels == number])) == 1 for number in range(1, len(objects) + 1))


def test_watershed_measures_in_space():
    """A ball in space, sampled five times coarser along the first axis, is no row of disks."""
    spacing = (5.0, 1.0, 1.0)
    shape = (9, 40, 60)
    mask = ball(shape, (4, 20, 17), 15, spacing) | ball(shape, (4, 20, 42), 15, spacing)
    assert len(find_objects(probabilities(mask), WATERSHED, spacing=spacing)) == 2


def test_borders_separate_what_touches():
    """Inside areas are seeds; border pixels and foreground without inside belong to objects, too."""
    inside, border = np.zeros((2, 14, 30), bool)
    inside[3:10, 3:9], inside[3:10, 12:20] = True, True
    border[2:11, 2:21] = True
    border &= ~inside
    border[12, 25:27] = True  # no inside: one object
    p = np.stack([~(inside | border), inside, border]).astype(np.float32) * 0.8 + 0.1
    objects = find_objects(p, COMPONENTS, borders=True)
    assert len(objects) == 3 and np.array_equal(objects.labels > 0, inside | border)
    assert len({*objects.labels[3:10, 3:9].flat}) == 1 and objects.labels[5, 5] != objects.labels[5, 15]
    assert len(find_objects(merged_border(p), COMPONENTS)) == 2
    # Inside areas that are predicted as one are cut at their neck; the border goes to the nearer side.
    joined = p.copy()
    joined[1:, 6:7, 9:12] = p[1:, 5:6, 5:6]
    assert len(find_objects(joined, COMPONENTS, borders=True)) == 2
    cut = find_objects(joined, WATERSHED, borders=True)
    assert len(cut) == 3 and np.array_equal(cut.labels > 0, inside | border) and cut.labels[5, 5] != cut.labels[5, 15]


def test_holes_and_small_objects():
    mask = np.zeros((20, 20), int)
    mask[2:12, 2:12], mask[4:9, 4:9], mask[6, 6], mask[15, 15] = 1, 0, 2, 1
    filled = find_objects(probabilities(mask), ObjectOptions(min_size=2))
    assert len(filled) == 1 and (filled.labels == 1).sum() == 99 and filled.labels[6, 6] == 0
    # The pixel of class 2 is too small; it is a hole only of class 1, which does not take it.
    kept = find_objects(probabilities(mask), ObjectOptions(min_size=1, fill_holes=False))
    assert np.bincount(kept.labels.ravel())[1:].tolist() == [75, 1, 1] and list(kept.classes) == [1, 1, 2]


@pytest.mark.parametrize("options", [COMPONENTS, WATERSHED])
def test_nothing_everything_and_70000_objects(options: ObjectOptions):
    nothing = find_objects(probabilities(np.zeros((9, 9), int)), options)
    assert len(nothing) == 0 and nothing.labels.shape == (9, 9) and not nothing.labels.any()
    assert object_rows(nothing, np.zeros((1, 9, 9)), two_classes(1)) == []
    everything = find_objects(probabilities(np.ones((9, 9), int)), options)
    assert len(everything) == 1 and everything.labels.all()
    dots = np.zeros((531, 531), int)
    dots[::2, ::2] = 1
    many = find_objects(probabilities(dots), options)
    assert len(many) == many.labels.max() == 266**2 > 70_000


def test_mistakes():
    with pytest.raises(HebbsegError, match="--min-size 82 is larger than the image"):
        find_objects(probabilities(np.ones((9, 9), int)), ObjectOptions(min_size=82))
    with pytest.raises(HebbsegError, match="Did you mean 'watershed'"):
        ObjectOptions(method="watersheed")
    with pytest.raises(HebbsegError, match="--min-size -1"):
        ObjectOptions(min_size=-1)


def test_rows_of_a_rectangle_and_a_disk():
    labels = np.zeros((40, 60), np.int32)
    labels[5:9, 10:30], labels[ball((40, 60), (25, 40), 10)] = 1, 2
    image = np.stack([labels * 10.0, np.arange(2400.0).reshape(40, 60)])
    objects = find_objects(probabilities((labels > 0).astype(int)), COMPONENTS)
    rectangle, disk = object_rows(objects, image, two_classes(255, ("background", "cell")), case="a", spacing_mm=(0.5, 0.5))
    assert (rectangle["case"], rectangle["object"], rectangle["class_name"]) == ("a", 1, "cell")
    assert rectangle["area_px"] == 80 and rectangle["area_mm2"] == 20 and math.isclose(rectangle["area_um2"], 2e7)
    assert (rectangle["centroid_y_px"], rectangle["centroid_x_px"], rectangle["centroid_x_mm"]) == (6.5, 19.5, 9.75)
    assert [rectangle[f"box_{side}"] for side in ("y_min", "y_max", "x_min", "x_max")] == [5, 9, 10, 30]
    assert rectangle["mean_intensity_0"] == 10 and rectangle["mean_intensity_1"] == image[1][5:9, 10:30].mean()
    # n pixels in a row have the variance (n² − 1) / 12, an ellipse of major axis a has a² / 16.
    assert math.isclose(rectangle["major_axis_px"], 4 * (399 / 12) ** 0.5)
    assert math.isclose(rectangle["major_axis_mm"], rectangle["major_axis_px"] / 2)
    # Through the centers of the outermost pixels.
    assert math.isclose(rectangle["perimeter_px"], 2 * (19 + 3)) and math.isclose(rectangle["perimeter_um"], 22e3)
    assert math.isclose(disk["major_axis_px"], 20, rel_tol=0.03)
    assert math.isclose(disk["perimeter_px"], 20 * math.pi, rel_tol=0.05)


def test_rows_of_a_volume_with_anisotropic_voxels():
    labels = np.zeros((6, 20, 30), int)
    labels[1:3, 4:12, 5:25], labels[5, 0, 0] = 1, 1
    objects = find_objects(probabilities(labels), COMPONENTS)
    box, voxel = object_rows(objects, labels[None], two_classes(1), spacing_mm=(5.0, 1.0, 0.5), axes="xyz")
    assert box["volume_px"] == 320 and box["volume_mm3"] == 800 and "perimeter_px" not in box and "area_px" not in box
    assert (box["centroid_x_px"], box["centroid_x_mm"], box["centroid_z_mm"]) == (1.5, 7.5, 14.5 * 0.5)
    assert box["major_axis_px"] > box["major_axis_mm"] > 0
    assert voxel["volume_px"] == 1 and voxel["major_axis_px"] == voxel["minor_axis_mm"] == 0
    plain = object_rows(objects, labels[None], two_classes(1))[0]
    assert not [name for name in plain if name.endswith(("mm", "mm3", "um3"))]


def test_the_border_of_a_network_counts_as_foreground(tmp_path):
    three = tuple(ClassInfo(index=k, value=k) for k in range(3))
    raw = tiny_segmenter(classes=three)
    merged = raw.__class__(**{**vars(raw), "classes": two_classes(255), "borders": True})
    image = picture(0, 20, 28, 3)
    p = raw.probabilities(image)
    torch.testing.assert_close(merged.probabilities(image), torch.stack([p[0], p[1] + p[2]]))
    assert set(np.unique(merged.predict(image))) <= {0, 255}
    objects = merged.objects(image, min_size=3)
    expected = find_objects(p.numpy(), ObjectOptions(min_size=3), borders=True)
    assert np.array_equal(objects.labels, expected.labels)
    assert np.array_equal(merged.objects(save(tmp_path / "a.png", image), min_size=3).labels, expected.labels)
    merged.save(tmp_path / "model.safetensors")
    loaded = raw.__class__.load(tmp_path / "model.safetensors")
    assert loaded.borders and torch.equal(loaded.probabilities(image), merged.probabilities(image))
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    softmax = logits.softmax(1)
    torch.testing.assert_close(MergedBorder(torch.nn.Identity())(logits).softmax(1)[:, 1], softmax[:, 1] + softmax[:, 2])
