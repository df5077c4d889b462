"""Object ids of masks, and the border of objects."""

from pathlib import Path

import numpy as np
import pytest

from hebbseg.data.labels.instances import border_of, connected_objects, objects_of
from hebbseg.data.sources import open_source
from tests.data.trees import picture, save
from tests.literal import objects as literal
from tests.realdata import real

TOUCHING = np.zeros((12, 20), np.uint8)
TOUCHING[2:9, 2:9], TOUCHING[2:9, 9:15] = 3, 7


def folder(root: Path, masks: dict[str, np.ndarray]) -> Path:
    for name, mask in masks.items():
        save(root / "images" / f"{name.partition('/')[0]}.png", picture(0, *mask.shape[:2], 3))
        save(root / "masks" / f"{name}.png", mask)
    return root


def test_ids_of_one_file(tmp_path: Path):
    data = folder(tmp_path, {"a": TOUCHING, "b": TOUCHING[::-1].copy()})
    source = open_source(data, instances=True)
    objects, annotated = objects_of(source, source.cases[0])
    assert annotated and len(objects) == 2 and list(objects.classes) == [1, 1]
    assert np.array_equal(objects.labels, np.where(TOUCHING == 3, 1, np.where(TOUCHING == 7, 2, 0)))
    assert np.array_equal(objects.labels > 0, source.mask(source.cases[0]) > 0)


def test_colors_are_ids(tmp_path: Path):
    color = np.zeros((*TOUCHING.shape, 3), np.uint8)
    color[TOUCHING == 3], color[TOUCHING == 7] = (10, 0, 0), (0, 200, 30)
    source = open_source(folder(tmp_path, {"a": color}), instances=True)
    objects, _ = objects_of(source, source.cases[0])
    assert len(objects) == 2 and len(set(objects.labels[TOUCHING == 7])) == 1


def test_one_file_per_object(tmp_path: Path):
    parts = {f"a/{n}": np.where(value == TOUCHING, 255, 0).astype(np.uint8) for n, value in enumerate((3, 7))}
    parts["a/2"] = np.zeros_like(TOUCHING)
    parts["a/2"][8:11, 2:9] = 255  # overlaps the first one in a row, which keeps it
    source = open_source(folder(tmp_path, parts))
    objects, annotated = objects_of(source, source.cases[0])
    assert annotated and np.bincount(objects.labels.ravel())[1:].tolist() == [49, 42, 14]


def test_without_ids_connected_areas_are_objects(tmp_path: Path):
    classes = np.zeros((10, 12), np.uint8)
    classes[1:4, 1:4], classes[4:6, 4:6], classes[1:4, 6:9], classes[8:, :] = 1, 1, 2, 2
    source = open_source(folder(tmp_path, {"a": classes}), label_map="background=0;a=1;b=2")
    objects, annotated = objects_of(source, source.cases[0])
    assert not annotated and sorted(objects.classes) == [1, 1, 2, 2]  # a diagonal is no connection
    assert np.array_equal(objects.of_class(2) > 0, classes == 2)
    phantom = open_source("phantom:glands?n=2&size=32")
    assert not objects_of(phantom, phantom.cases[0])[1]
    assert len(connected_objects(np.zeros((4, 4), np.uint8))) == 0


@pytest.mark.parametrize("seed", range(4))
def test_border_equals_the_slow_version(seed: int):
    draw = np.random.default_rng(seed)
    shape = (24, 26) if seed % 2 else (9, 10, 11)
    ids = np.zeros(shape, np.int32)
    for value in range(1, 7):
        start = [int(draw.integers(-2, side - 3)) for side in shape]
        ids[tuple(slice(max(a, 0), a + int(draw.integers(3, 12))) for a in start)] = value
    for width in (1, 2, 3):
        assert np.array_equal(border_of(ids, width), literal.border(ids, width))


def test_border_is_part_of_the_mask_and_every_object_keeps_an_inside():
    ids = np.zeros((30, 30), np.int32)
    for number, side in enumerate((1, 2, 3, 4, 7, 9), start=1):
        ids[2 : 2 + side, sum(range(number)) + 2 * number : sum(range(number)) + 2 * number + side] = number
    border = border_of(ids)
    assert not border[ids == 0].any() and border.any()
    assert all((~border & (ids == value)).any() for value in np.unique(ids[ids > 0]))
    touching = border_of(TOUCHING.astype(np.int32))
    inside = connected_objects((~touching & (TOUCHING > 0)).astype(np.uint8))
    assert len(inside) == 2 and len(connected_objects((TOUCHING > 0).astype(np.uint8))) == 1
    assert not border_of(np.ones((8, 8), np.int32)).any()  # the image border is no outline


@pytest.mark.real
def test_glas_and_nuclei():
    glas = open_source(f"glas:{real('glas')}")
    case = next(case for case in glas.cases if case.id == "train_1")
    objects, annotated = objects_of(glas, case)
    assert annotated and np.array_equal(objects.labels > 0, glas.mask(case) > 0) and len(objects) > 3
    nuclei = open_source(f"dsb2018:{real('dsb2018')}")
    case = min((case for case in nuclei.cases if case.has_mask), key=lambda case: len(case.mask))
    objects, annotated = objects_of(nuclei, case)
    assert annotated and len(objects) == len(case.mask)
