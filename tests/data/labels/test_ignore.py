"""Pixels that are not annotated: their value or color in masks of every kind, and what fills them."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hebbseg.data.cases import IGNORE
from hebbseg.data.io.formats import read_labels
from hebbseg.data.labels.classes import find_rule
from hebbseg.data.labels.ignore import annotated_part, completed
from hebbseg.data.labels.label_map import parse_label_map, parse_value
from hebbseg.data.labels.masks import MaskOptions, merged, to_indices
from hebbseg.data.sources import open_source
from hebbseg.errors import HebbsegError
from tests.data.labels.test_masks import blocks, indexed, read, save, stripes
from tests.data.trees import disc, plain_folder
from tests.data.trees import save as save_in_folder


@pytest.mark.parametrize("ignore", [255, 0, 7])
def test_numbers(tmp_path: Path, ignore: int):
    others = sorted({0, 3, 9} - {ignore})[:2]
    path = save(tmp_path / "a.png", blocks(others[0], ignore, others[1]))
    rule = find_rule([path], MaskOptions(ignore=ignore))
    assert [c.value for c in rule.classes] == others
    np.testing.assert_array_equal(read(path, rule), stripes(0, IGNORE, 1))
    # With the background ignored, the choice of another one is reported.
    assert [problem.fatal for problem in rule.problems] == ([False] if ignore == 0 else [])


def test_colors(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks((0, 0, 0), (255, 0, 0), (128, 128, 128)))
    for ignore in (parse_value("#808080"), 128):
        rule = find_rule([path], MaskOptions(ignore=ignore))
        assert [c.name for c in rule.classes] == ["background", "red"]
        np.testing.assert_array_equal(read(path, rule), stripes(0, 1, IGNORE))
    given = MaskOptions(label_map=parse_label_map("background=#000000;gland=#ff0000"), ignore=(128, 128, 128)).rule()
    assert given is not None
    np.testing.assert_array_equal(read(path, given), stripes(0, 1, IGNORE))
    palette = indexed(tmp_path / "b.png", blocks(0, 1, 2), [0, 0, 0, 255, 0, 0, 128, 128, 128])
    rule = find_rule([palette], MaskOptions(ignore=(128, 128, 128)))
    assert [c.value for c in rule.classes] == [0, 1]
    np.testing.assert_array_equal(read(palette, rule), stripes(0, 1, IGNORE))


def test_object_numbers_and_thresholds(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks(0, 1, 2, 255))
    for options, expected in ({"instances": True}, (0, 1, 1, IGNORE)), ({"threshold": 2}, (0, 0, 1, IGNORE)):
        rule = MaskOptions(ignore=255, **options).rule()
        assert rule is not None
        np.testing.assert_array_equal(read(path, rule), stripes(*expected))
        assert rule.describe() != MaskOptions(**options).rule().describe(), "another key in the cache"
    color = save(tmp_path / "b.png", blocks((0, 0, 0), (9, 0, 0), (255, 255, 255)))
    np.testing.assert_array_equal(read(color, MaskOptions(ignore=255, instances=True).rule()), stripes(0, 1, IGNORE))
    reds = MaskOptions(ignore=9, instances=True, channel=0).rule()
    np.testing.assert_array_equal(to_indices(read_labels(color), reds, color), stripes(0, IGNORE, 1))


def test_object_numbers_are_recognized_beside_an_ignored_value(tmp_path: Path):
    paths = []
    for name, count in zip("abc", (4, 6, 5)):
        values = blocks(*(value for n in range(1, count + 1) for value in (0, n, 255)))
        paths.append(save(tmp_path / f"{name}.png", values))
    (problem,) = find_rule(paths, MaskOptions(ignore=255)).problems
    assert problem.fatal and "object numbers" in problem.finding


def test_what_is_wrong_with_an_ignored_value_is_said(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks(0, 1))
    (problem,) = find_rule([path], MaskOptions(ignore=255)).problems
    assert not problem.fatal and "ignore=255: no mask contains this value" in problem.finding
    (problem,) = find_rule([save(tmp_path / "b.png", blocks(255))], MaskOptions(ignore=255)).problems
    assert problem.fatal and "nothing is annotated in all 1 masks" in problem.finding
    rgb = save(tmp_path / "c.png", blocks((9, 9, 9)))
    (problem,) = find_rule([rgb], MaskOptions(ignore=(9, 9, 9))).problems
    assert problem.fatal and "nothing is annotated" in problem.finding
    with pytest.raises(HebbsegError, match=r"ignore='gray': allowed are a mask value such as 255, or a color"):
        parse_value("gray")
    numbers = parse_label_map("background=0;gland=1")
    with pytest.raises(HebbsegError, match=r"ignore=#ff0000: the classes are defined by numbers"):
        MaskOptions(label_map=numbers, ignore=(255, 0, 0)).rule()
    with pytest.raises(HebbsegError, match=r"ignore=1: this mask value is class 'gland'"):
        MaskOptions(label_map=numbers, ignore=1).rule()
    with pytest.raises(HebbsegError, match=r"value 0 are not annotated, and no class is named background"):
        parse_label_map("ignore=0;gland=1")
    with pytest.raises(HebbsegError, match="no class found besides 'ignore'"):
        parse_label_map("ignore=255")
    with pytest.raises(HebbsegError, match="256 classes; at most 255"):
        parse_label_map({f"c{n}": n for n in range(256)})


def test_zero_can_be_ignored_if_the_background_is_named(tmp_path: Path):
    rule = MaskOptions(label_map=parse_label_map("ignore=0;background=1;gland=2;void=3")).rule()
    assert rule is not None
    np.testing.assert_array_equal(read(save(tmp_path / "a.png", blocks(0, 1, 2, 3)), rule), stripes(IGNORE, 0, 1, IGNORE))


def test_of_several_masks_of_an_image_the_annotated_one_counts(tmp_path: Path):
    first, second = np.array([0, 0, 0, 1, 1, IGNORE], np.uint8), np.array([0, 1, IGNORE, IGNORE, 2, IGNORE], np.uint8)
    for one, other in ((first, second), (second, first)):
        np.testing.assert_array_equal(merged(one, other), [0, 1, IGNORE, 1, 2, IGNORE])
    root = plain_folder(tmp_path, "ab", masks="")
    for number in (1, 2):
        mask = disc(24, 32, 3 + number) * 255
        mask[:5] = 100
        save_in_folder(root / "masks" / "a" / f"{number}.png", mask)
    mask = open_source(root, ignore=100).mask(open_source(root).cases[0])
    np.testing.assert_array_equal(mask[5:], disc(24, 32, 5)[5:])
    assert (mask[:5] == IGNORE).all()


@pytest.mark.parametrize("shape", [(9, 7), (4, 5, 6)])
def test_completed_masks_take_the_nearest_annotated_class(shape: tuple[int, ...]):
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 3, shape).astype(np.uint8)
    mask[rng.random(shape) < 0.8] = IGNORE
    found = completed(mask)
    cells = list(product(*(range(n) for n in shape)))
    known = [cell for cell in cells if mask[cell] != IGNORE]
    for cell in cells:
        least = min(math.dist(cell, other) for other in known)
        assert found[cell] in {mask[other] for other in known if math.dist(cell, other) == least}
    full = np.where(mask == IGNORE, 0, mask)
    assert completed(full) is full
    assert not completed(np.full(shape, IGNORE, np.uint8)).any()


def test_nothing_to_compare_with_is_an_error_with_the_name():
    target = np.full((3, 3), IGNORE, np.uint8)
    with pytest.raises(HebbsegError, match=r"case7: every pixel has the value to ignore.*Annotate some pixels"):
        annotated_part(np.zeros((3, 3), int), target, "case7")
