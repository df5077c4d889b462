"""Masks of every kind become class indices; those that cannot be understood are refused with the remedy."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image as Pillow

from hebbseg.data.cases import IGNORE, DataError
from hebbseg.data.io.formats import read_labels
from hebbseg.data.labels.classes import find_rule
from hebbseg.data.labels.label_map import parse_label_map
from hebbseg.data.labels.masks import MaskOptions, MaskRule, to_indices
from hebbseg.errors import HebbsegError

NOTHING_SAID = MaskOptions()


def save(path: Path, values: np.ndarray) -> Path:
    Pillow.fromarray(values).save(path)
    return path


def blocks(*values: object, dtype: type = np.uint8) -> np.ndarray:
    """Vertical stripes of 8 × 6 pixels, one per value."""
    return np.concatenate([np.full((8, 6, *np.shape(v)), v, dtype) for v in values], axis=1)


def stripes(*indices: int) -> np.ndarray:
    return blocks(*indices)


def read(path: Path, rule: MaskRule) -> np.ndarray:
    indices = to_indices(read_labels(path), rule, path)
    assert indices.dtype == np.uint8
    return indices


@pytest.mark.parametrize("values", [(0, 1), (0, 255), (0, 7)])
def test_two_values_are_background_and_foreground(tmp_path: Path, values: tuple[int, int]):
    path = save(tmp_path / "a.png", blocks(*values))
    rule = find_rule([path], NOTHING_SAID)
    assert [(c.index, c.value, c.name) for c in rule.classes] == [(0, 0, "background"), (1, values[1], "foreground")]
    np.testing.assert_array_equal(read(path, rule), stripes(0, 1))
    assert not rule.problems


def test_gaps_close_and_empty_masks_add_nothing(tmp_path: Path):
    paths = [save(tmp_path / "a.png", blocks(0, 9, 4)), save(tmp_path / "b.png", blocks(0, 200, 0))]
    paths.append(save(tmp_path / "empty.png", blocks(0, 0, 0)))
    rule = find_rule(paths, NOTHING_SAID)
    assert [c.value for c in rule.classes] == [0, 4, 9, 200]
    np.testing.assert_array_equal(read(paths[0], rule), stripes(0, 2, 1))
    np.testing.assert_array_equal(read(paths[1], rule), stripes(0, 3, 0))


def test_whole_foreground_keeps_its_background_class(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks(255))
    rule = find_rule([path], NOTHING_SAID)
    assert [c.value for c in rule.classes] == [0, 255]
    np.testing.assert_array_equal(read(path, rule), stripes(1))


def test_without_a_zero_the_smallest_value_is_background_and_said(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks(3, 1, 2))
    rule = find_rule([path], NOTHING_SAID)
    np.testing.assert_array_equal(read(path, rule), stripes(2, 0, 1))
    assert "the smallest value, 1, is used as background" in rule.problems[0].finding


def test_one_bit_and_colour_masks_of_the_same_thing_agree(tmp_path: Path):
    one_bit = tmp_path / "a.bmp"
    Pillow.fromarray(blocks(0, 255)).convert("1").save(one_bit)
    colour = save(tmp_path / "b.bmp", blocks((0, 0, 0), (255, 255, 255)))
    rule = find_rule([one_bit, colour], NOTHING_SAID)
    assert [c.value for c in rule.classes] == [0, 255]
    for path in (one_bit, colour):
        np.testing.assert_array_equal(read(path, rule), stripes(0, 1))


def indexed(path: Path, values: np.ndarray, palette: list[int]) -> Path:
    picture = Pillow.fromarray(values)
    picture.putpalette(palette)
    picture.save(path)
    return path


def test_palette_indices_are_the_values_and_keep_their_colours(tmp_path: Path):
    path = indexed(tmp_path / "a.png", blocks(0, 2), [0, 0, 0, 9, 9, 9, 200, 10, 20])
    rule = find_rule([path], NOTHING_SAID)
    assert [(c.value, c.colour) for c in rule.classes] == [(0, (0, 0, 0)), (2, (200, 10, 20))]
    np.testing.assert_array_equal(read(path, rule), stripes(0, 1))


def test_a_threshold_compares_the_colours_of_a_palette_not_their_numbers(tmp_path: Path):
    greys = indexed(tmp_path / "greys.png", blocks(0, 1, 2, 200), [0, 0, 0, 255, 255, 255, 120, 120, 120])
    reds = indexed(tmp_path / "reds.png", blocks(0, 1), [0, 0, 0, 210, 0, 0])
    for path, threshold, expected in ((greys, 128, (0, 1, 0, 0)), (greys, 120, (0, 1, 1, 0)), (reds, 70, (0, 1))):
        rule = MaskOptions(threshold=threshold).rule()
        assert rule is not None
        np.testing.assert_array_equal(read(path, rule), stripes(*expected))
    of_red = MaskOptions(threshold=200, channel=0).rule()
    assert of_red is not None
    np.testing.assert_array_equal(read(reds, of_red), stripes(0, 1))


def test_palettes_that_disagree_are_read_by_colour(tmp_path: Path):
    one = indexed(tmp_path / "a.png", blocks(0, 1, 2), [0, 0, 0, 255, 0, 0, 0, 255, 0])
    other = indexed(tmp_path / "b.png", blocks(0, 1, 2), [0, 0, 0, 0, 255, 0, 255, 0, 0])
    rule = find_rule([one, other], NOTHING_SAID)
    assert [c.name for c in rule.classes] == ["background", "green", "red"]
    np.testing.assert_array_equal(read(one, rule), stripes(0, 2, 1))
    np.testing.assert_array_equal(read(other, rule), stripes(0, 1, 2))


def test_colour_masks_without_a_map_are_understood_and_shown(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks((0, 0, 0), (255, 0, 0), (1, 2, 3)))
    grey = save(tmp_path / "b.png", blocks(0, 0, 0))
    rule = find_rule([grey, path], NOTHING_SAID)
    assert [c.value for c in rule.classes] == [(0, 0, 0), (1, 2, 3), (255, 0, 0)]
    np.testing.assert_array_equal(read(path, rule), stripes(0, 2, 1))
    np.testing.assert_array_equal(read(grey, rule), stripes(0, 0, 0))
    (problem,) = rule.problems
    assert problem.file == str(path)
    assert "no label map; interpreted as background=#000000;#010203=#010203;red=#ff0000" in problem.finding
    assert "--label-map" in problem.remedy and "--ignore '#RRGGBB'" in problem.remedy
    assert not problem.fatal
    (problem,) = find_rule([grey, save(tmp_path / "c.png", blocks((0, 0, 0), (255, 0, 0), (0, 0, 0)))], NOTHING_SAID).problems
    assert "--label-map" in problem.remedy and "--ignore" not in problem.remedy


def test_colour_masks_with_a_map(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks((0, 0, 0), (255, 0, 0), (1, 2, 3)))
    rule = MaskOptions(label_map=parse_label_map("vessel=#010203;tumour=255,0,0")).rule()
    assert rule is not None
    assert [c.name for c in rule.classes] == ["background", "vessel", "tumour"]
    np.testing.assert_array_equal(read(path, rule), stripes(0, 2, 1))
    strange = save(tmp_path / "b.png", blocks((0, 0, 0), (9, 9, 200)))
    with pytest.raises(DataError, match=r"b\.png: mask value #0909c8 belongs to none of the classes .*--label-map"):
        read(strange, rule)


def test_too_many_colours_are_refused(tmp_path: Path):
    path = save(tmp_path / "a.png", np.random.default_rng(0).integers(0, 255, (9, 9, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"a\.png: color mask with \d+ colors.*PNG without smoothing"):
        find_rule([path], NOTHING_SAID)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_soft_edges_are_refused_with_the_remedy_or_cut_when_told(tmp_path: Path, suffix: str):
    across = np.clip((np.arange(64) - 20) * 10, 0, 255).astype(np.uint8)
    path = tmp_path / f"a{suffix}"
    Pillow.fromarray(np.tile(across, (64, 1))).save(path)
    with pytest.raises(DataError, match=rf"a\{suffix}: soft edges: \d+ gray levels.*--mask-threshold 128"):
        find_rule([path], NOTHING_SAID)
    rule = MaskOptions(threshold=128).rule()
    assert rule is not None
    assert rule.classes[1].value == 255
    raw = np.asarray(Pillow.open(path))
    np.testing.assert_array_equal(read(path, rule), raw >= 128)


def test_jpeg_that_happens_to_be_sharp_is_fine(tmp_path: Path):
    path = tmp_path / "a.jpg"
    Pillow.fromarray(np.full((16, 16), 255, np.uint8)).save(path)
    assert [c.value for c in find_rule([path], NOTHING_SAID).classes] == [0, 255]


def test_soft_jpeg_with_a_label_map_points_to_the_threshold(tmp_path: Path):
    path = tmp_path / "a.jpg"
    Pillow.fromarray(np.tile(np.arange(0, 256, 4, dtype=np.uint8), (64, 1))).save(path)
    rule = MaskOptions(label_map=parse_label_map("a=0;b=255")).rule()
    assert rule is not None
    with pytest.raises(DataError, match=r"none of the classes.*--mask-threshold 128"):
        read(path, rule)


def test_probability_maps_are_refused_with_the_remedy(tmp_path: Path):
    np.save(tmp_path / "a.npy", blocks(0, 0.25, 1, dtype=np.float32))
    with pytest.raises(DataError, match=r"such as 0\.25: a probability map.*--mask-threshold 0\.5"):
        find_rule([tmp_path / "a.npy"], NOTHING_SAID)
    rule = MaskOptions(threshold=0.25).rule()
    assert rule is not None
    np.testing.assert_array_equal(read(tmp_path / "a.npy", rule), stripes(0, 1, 1))
    assert rule.classes[1].value == 1


def test_whole_numbers_stored_as_floats_are_classes(tmp_path: Path):
    nibabel.save(nibabel.Nifti1Image(blocks(0, 2, dtype=np.float64)[..., None], np.eye(4)), tmp_path / "a.nii.gz")
    rule = find_rule([tmp_path / "a.nii.gz"], NOTHING_SAID)
    assert [c.value for c in rule.classes] == [0, 2]
    np.testing.assert_array_equal(read(tmp_path / "a.nii.gz", rule), stripes(0, 1))


def test_many_values_ask_whether_they_are_objects(tmp_path: Path):
    path = save(tmp_path / "a.png", blocks(*range(40)))
    with pytest.raises(DataError, match=r"a\.png: values up to 39.*object numbers.*--instances.*--no-instances.*--label-map"):
        find_rule([path], NOTHING_SAID)
    with pytest.raises(DataError, match=r"b\.png: 40 different values.*--instances.*--label-map"):
        find_rule([save(tmp_path / "b.png", np.tile(np.arange(40, dtype=np.uint8), (5, 4)))], NOTHING_SAID)
    rule = MaskOptions(instances=True).rule()
    assert rule is not None
    np.testing.assert_array_equal(read(path, rule), stripes(*range(40)) > 0)
    assert len(find_rule([path], MaskOptions(instances=False)).classes) == 40


def test_few_values_that_number_objects_must_be_confirmed(tmp_path: Path):
    paths = [save(tmp_path / f"{n}.png", blocks(*range(n + 1))) for n in (1, 3, 5, 11)]
    (problem,) = find_rule(paths, NOTHING_SAID).problems
    assert problem.fatal
    assert "values up to 11, 1 to 11 of them per mask" in problem.finding
    assert "--instances" in problem.remedy and "--no-instances" in problem.remedy
    rule = find_rule(paths, MaskOptions(instances=False))
    assert (len(rule.classes), rule.problems) == (12, ())


def test_an_ignore_value_is_no_class(tmp_path: Path):
    paths = [save(tmp_path / "a.png", blocks(0, 1, 2, 255)), save(tmp_path / "b.png", blocks(0, 2, 1))]
    (problem,) = find_rule(paths, NOTHING_SAID).problems
    assert problem.fatal and "255 beside 0 … 2 in 1 of 2 masks: probably an ignore label" in problem.finding
    assert "--label-map 'background=0;class 1=1;class 2=2;background=255'" in problem.remedy
    told = MaskOptions(label_map=parse_label_map("background=0;class 1=1;class 2=2;background=255")).rule()
    assert told is not None
    np.testing.assert_array_equal(read(paths[0], told), stripes(0, 1, 2, 0))
    assert "pass --ignore 255" in problem.remedy
    for given in ("background=0;gland=1;tumor=2;ignore=255", {"background": 0, "gland": 1, "tumor": 2, "Ignore": 255}):
        rule = MaskOptions(label_map=parse_label_map(given)).rule()
        assert rule is not None
        assert [c.name for c in rule.classes] == ["background", "gland", "tumor"]
        np.testing.assert_array_equal(read(paths[0], rule), stripes(0, 1, 2, IGNORE))
    assert parse_label_map("void=0;gland=1").classes[0].name == "void", "a background of this name is one"


def test_two_values_for_one_foreground_are_asked_about(tmp_path: Path):
    paths = [save(tmp_path / "a.png", blocks(0, 1)), save(tmp_path / "b.png", blocks(0, 255))]
    (problem,) = find_rule(paths, NOTHING_SAID).problems
    assert problem.fatal and "foreground is 255 in 1 mask and 1 in 1 others" in problem.finding
    assert "'background=0;foreground=1;foreground=255'" in problem.remedy and "--ignore 255" in problem.remedy


def test_all_empty_masks_are_a_fatal_problem(tmp_path: Path):
    paths = [save(tmp_path / f"{n}.png", blocks(0)) for n in range(3)]
    (problem,) = find_rule(paths, NOTHING_SAID).problems
    assert (problem.fatal, problem.file) == (True, str(tmp_path))
    assert "all 3 masks are empty" in problem.finding


def test_one_unreadable_mask_does_not_hide_the_others(tmp_path: Path):
    good = save(tmp_path / "a.png", blocks(0, 5))
    (tmp_path / "b.png").write_bytes(b"nonsense")
    assert [c.value for c in find_rule([good, tmp_path / "b.png"], NOTHING_SAID).classes] == [0, 5]
    with pytest.raises(DataError, match=r"b\.png: truncated"):
        find_rule([tmp_path / "b.png"], NOTHING_SAID)


def test_unknown_number_is_named(tmp_path: Path):
    rule = MaskOptions(label_map=parse_label_map({"background": 0, "gland": 1})).rule()
    assert rule is not None
    with pytest.raises(DataError, match=r"mask value 3, 255 belongs to none of the classes \(background=0, gland=1\)"):
        read(save(tmp_path / "a.png", blocks(0, 1, 255, 3)), rule)


def test_label_maps_in_every_spelling(tmp_path: Path):
    (tmp_path / "map.json").write_text(json.dumps({"labels": {"background": 0, "gland": 255}}))
    spellings = [
        "background=0;gland=255",
        "gland=255",
        {"background": 0, "gland": 255},
        {"0": "background", "255": "gland"},
    ]
    for given in [*spellings, tmp_path / "map.json", "background=0, gland=255"]:
        parsed = parse_label_map(given)
        assert [(c.index, c.value, c.name) for c in parsed.classes] == [(0, 0, "background"), (1, 255, "gland")]
    merged = parse_label_map("gland=1;gland=2;other=7")
    assert dict(merged.index_of) == {0: 0, 1: 1, 2: 1, 7: 2}
    assert [c.value for c in merged.classes] == [0, 1, 7]
    colours = parse_label_map("a=255,0,0,b=#00ff00")
    assert [c.value for c in colours.classes] == [(0, 0, 0), (255, 0, 0), (0, 255, 0)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gland", "'gland' is not name=value"),
        ("a=1;b=1", "value 1 is given twice"),
        ("a=1;b=#ff0000", "numbers and colors are mixed"),
        ("a=blue", "'blue' is neither an integer nor a color"),
        ("a=1,2,300", "outside 0 … 255"),
        ("", "no class found"),
        ("not there.json", "no such file"),
    ],
)
def test_label_maps_that_make_no_sense(given: str, message: str):
    with pytest.raises(HebbsegError, match=message):
        parse_label_map(given)
