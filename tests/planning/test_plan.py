"""The choices of a plan and their reasons; what is given stays."""

from typing import Any

import numpy as np
import pytest

from hebbseg.config import make_settings
from hebbseg.planning.fingerprint import Fingerprint, RoundTrip
from hebbseg.planning.plan import DEEPEST, Plan, make_plan

FINE = (RoundTrip(size=(128, 192), dice=0.99),)


def fingerprint(**changes: Any) -> Fingerprint:
    values: dict[str, Any] = {
        "images": 50, "labelled": 5, "unlabelled": 30, "test": 15, "spatial_dims": 2, "channels": 3, "classes": 2,
        "median_size": (261, 387), "smallest_size": (215, 283), "largest_size": (261, 387), "aspect": 0.67, "size_ratio": 1.3,
        "spacing_mm": None, "masks_tried": 5, "round_trips": FINE,
    }  # fmt: skip
    return Fingerprint(**(values | changes))


def volumes(*size: int, **changes: Any) -> Fingerprint:
    sizes = dict.fromkeys(("median_size", "smallest_size", "largest_size"), size)
    return fingerprint(spatial_dims=3, aspect=1.0, size_ratio=1.0, round_trips=(), **sizes, **changes)


def plan(found: Fingerprint, *, gpu: bool = True, **given: Any) -> Plan:
    return make_plan(make_settings("data", given), found, precision="32-true", gpu=gpu)


def values(made: Plan) -> dict[str, Any]:
    return {name: choice.value for name, choice in made.choices.items()}


def test_images_are_resized_to_the_size_that_keeps_the_masks() -> None:
    made = values(plan(fingerprint()))
    assert made["size"] == (128, 192) and made["patch"] == "none"
    assert made["labelled_batch"] == made["unlabelled_batch"] == 4 * 128 * 128 // (128 * 192)
    assert made["pretrain_batch"] == 8 * 128 * 128 // (128 * 192)
    assert made["features"] == (16, 32, 64, 128, 256) and made["updates"] == 2000 and made["precision"] == "32-true"


def test_patches_at_native_size_where_no_size_keeps_the_masks() -> None:
    lost = (RoundTrip(size=(128, 192), dice=0.6), RoundTrip(size=(256, 368), dice=0.91))
    made = plan(fingerprint(round_trips=lost))
    assert values(made)["size"] == "native" and values(made)["patch"] == (256, 256)
    assert "0.91" in made.choices["size"].reason
    small = fingerprint(round_trips=lost, median_size=(200, 380))
    assert values(plan(small))["patch"] == (192, 256)
    without = values(plan(fingerprint(round_trips=lost), patch="none"))
    assert without["size"] == (256, 368) and without["patch"] == "none", "patches were excluded by the user"


def test_images_of_very_different_sizes_are_not_resized_to_one() -> None:
    made = values(plan(fingerprint(size_ratio=3.4)))
    assert made["size"] == "native" and made["patch"] == (256, 256)


def test_without_masks_the_short_side_has_128_pixels() -> None:
    made = plan(fingerprint(round_trips=(), labelled=0, classes=None))
    assert values(made)["size"] == (128, 192) and "no labelled mask" in made.choices["size"].reason


def test_large_working_sizes_are_trained_in_patches() -> None:
    sizes = {"median_size": (1000, 1000), "aspect": 1.0}
    made = values(plan(fingerprint(round_trips=(RoundTrip(size=(512, 512), dice=0.985),), **sizes)))
    assert made["size"] == (512, 512) and made["patch"] == (256, 256) and made["labelled_batch"] == 2
    whole = values(plan(fingerprint(round_trips=(RoundTrip(size=(320, 320), dice=0.985),), **sizes)))
    assert whole["size"] == (320, 320) and whole["patch"] == "none" and whole["labelled_batch"] == 2


@pytest.mark.parametrize("given", [
    {"size": (64, 64)}, {"size": "native", "patch": (96, 96)}, {"features": (8, 16)}, {"updates": 77}, {"labelled_batch": 3},
    {"unlabelled_batch": 0}, {"pretrain_batch": 5}, {"precision": "32-true"}, {"patch": (64, 64)},
])  # fmt: skip
def test_what_is_given_is_kept_and_said(given: dict) -> None:
    made = plan(fingerprint(), **given)
    for name, value in given.items():
        assert made.choices[name].value == value and made.choices[name].given and made.choices[name].reason == "given"
    settings = make_settings("data", given)
    assert {name: made.applied_to(settings).flat()[name] for name in given} == {name: settings.flat()[name] for name in given}
    others = set(made.choices) - given.keys()
    assert not any(made.choices[name].given for name in others)


def test_what_comes_from_an_earlier_run_says_so() -> None:
    made = plan(fingerprint(), from_run="run1", size=(64, 64), features=(8, 16), updates=77).choices
    assert {name: made[name].reason for name in ("size", "features", "updates")} == {
        "size": "as in the earlier run", "features": "as in the earlier run", "updates": "given",
    }  # fmt: skip
    assert made["patch"].reason != "as in the earlier run", "it was planned"


def test_one_number_stands_for_all_axes() -> None:
    assert plan(fingerprint(), size=(64,)).choices["size"].value == (64, 64)


def test_a_patch_without_a_size_is_cut_from_native_images() -> None:
    assert plan(fingerprint(), patch=(64, 64)).choices["size"].value == "native"


@pytest.mark.parametrize(("side", "levels"), [(128, 5), (64, 5), (63, 4), (32, 4), (31, 3), (16, 3), (8, 2), (4, 2)])
def test_the_deepest_map_has_four_pixels(side: int, levels: int) -> None:
    made = values(plan(fingerprint(), size=(side, 2 * side)))
    assert len(made["features"]) == levels
    assert levels == 2 or side / 2 ** (levels - 1) >= DEEPEST


def test_stage_1_keeps_a_level_to_train() -> None:
    made = plan(fingerprint(), size=(16, 16), levels="4", part="encoder")
    settings = made.applied_to(make_settings("data", {"size": (16, 16), "levels": "4"}))
    assert settings.pretrain.layers(len(settings.network.features))


def test_volumes_are_trained_in_patches_limited_to_their_size() -> None:
    made = values(plan(volumes(185, 143, 88)))
    assert made["size"] == "native" and made["patch"] == (96, 96, 80) and made["labelled_batch"] == 2
    small = values(plan(volumes(35, 51, 36)))
    assert small["patch"] == (35, 51, 36) and len(small["features"]) == 4


@pytest.mark.parametrize(
    ("size", "patch"),
    [
        ((185, 143, 88), (48, 48, 48)),
        ((35, 51, 36), (35, 51, 36)),
        ((10, 256, 216), (10, 96, 80)),
        ((40, 40, 300), (40, 40, 64)),
    ],
)
def test_without_a_gpu_patches_of_volumes_are_smaller(size: tuple[int, ...], patch: tuple[int, ...]) -> None:
    """Thin volumes keep all slices and get wider patches."""
    found = values(plan(volumes(*size), gpu=False))["patch"]
    assert found == patch and np.prod(found) <= 48**3


def test_a_thin_axis_of_a_volume_does_not_limit_the_depth() -> None:
    assert len(values(plan(volumes(10, 256, 216)))["features"]) == 5


def test_spacing_follows_the_size() -> None:
    made = values(plan(fingerprint(spacing_mm=(0.5, 0.5), median_size=(256, 384))))
    assert made["spacing"] == (1.0, 1.0)
    assert values(plan(volumes(100, 100, 90, spacing_mm=(0.6, 0.6, 1.2))))["spacing"] == (0.6, 0.6, 1.2)


@pytest.mark.parametrize("data", ["glas:x", "la:x"])
def test_the_papers_preset_is_not_changed(data: str) -> None:
    settings = make_settings(data, {"preset": "paper"})
    found = volumes(40, 40, 40) if data == "la:x" else fingerprint()
    made = make_plan(settings, found, precision="32-true")
    applied, before = made.applied_to(settings).flat(), settings.flat()
    different = {name for name in before if applied[name] != before[name]}
    assert different <= ({"size"} if data == "la:x" else set()), "volumes: auto is written as native"


def test_it_survives_json_and_depends_on_nothing_else() -> None:
    made = plan(fingerprint(), size=(64, 64))
    assert Plan.model_validate_json(made.model_dump_json()) == made == plan(fingerprint(), size=(64, 64))


def test_a_line_for_each_choice() -> None:
    lines = list(plan(fingerprint(), labelled_batch=3).lines())
    assert [name for name, _, _ in lines] == ["size", "patch", "spacing", "features", "batch", "updates", "precision"]
    assert lines[0][1] == "128x192" and lines[4][1] == "3 labelled + 2 unlabelled" and lines[4][2].startswith("given; ")
    assert all(reason for _, _, reason in lines)
