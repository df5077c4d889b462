"""The planned spacing and UNet; nnU-Net's loop over poolings as a second version."""

from typing import Any

import pytest

from hebbseg.config import make_settings
from hebbseg.errors import HebbsegError
from hebbseg.networks.factory import build_network
from hebbseg.planning.plan import Plan, make_plan
from hebbseg.planning.true_space import factors, unet_geometry
from tests.planning.test_plan import fingerprint, plan, values, volumes

VARIED: dict[str, Any] = {"spacing_mm": (0.6, 0.6, 1.2), "spacing_ratio": 2.0, "extent_mm": (60.0, 48.0, 96.0)}


def pooled_as_in_nnunet(spacing: list[float], levels: int) -> tuple[list[list[int]], list[list[int]]]:
    """Written from the description of nnU-Net; an axis exactly twice as coarse is pooled here, and is not there."""
    current, kernel, strides, kernels = list(spacing), [1, 1, 1], [], []
    for _ in range(levels - 1):
        pooled = [axis for axis in range(3) if current[axis] / min(current) <= 2.001]
        for axis in pooled:
            kernel[axis] = 3
        kernels.append(list(kernel))
        strides.append([2 if axis in pooled else 1 for axis in range(3)])
        for axis in pooled:
            current[axis] *= 2
    return strides, [*kernels, [3, 3, 3]]


@pytest.mark.parametrize("spacing", [(1, 1, 3), (5, 1, 1), (0.8, 0.8, 1.7), (1, 2.5, 9), (0.3, 0.3, 2.4), (1, 1, 100)])
@pytest.mark.parametrize("levels", [2, 4, 5])
def test_strides_and_kernels(spacing: tuple[float, ...], levels: int) -> None:
    found = unet_geometry(spacing, levels)
    assert found is not None
    strides, kernels = pooled_as_in_nnunet(list(spacing), levels)
    assert [list(axes) for axes in found[0]] == strides and [list(axes) for axes in found[1]] == kernels
    expected = [1, 1, 1]
    for steps in strides:
        expected = [a * b for a, b in zip(expected, steps, strict=True)]
    assert factors(spacing, levels) == expected


@pytest.mark.parametrize("spacing", [(1, 1, 1), (1, 1, 2), (0.6, 0.6, 1.2), (1.0, 1.9)])
def test_voxels_up_to_twice_as_long_as_wide_are_treated_as_cubes(spacing: tuple[float, ...]) -> None:
    assert unet_geometry(spacing, 5) is None
    assert factors(spacing, 5) == [16] * len(spacing)


def test_images_of_different_spacing_are_resampled_to_the_median() -> None:
    made = plan(volumes(100, 80, 60, **VARIED))
    assert made.resampled_to == values(made)["spacing"] == (0.6, 0.6, 1.2)
    assert "factor of 2" in made.choices["spacing"].reason and "resampled" in made.choices["spacing"].reason
    assert values(made)["patch"] == (96, 80, 80), "limited to the resampled median of 100 x 80 x 80"
    applied = made.applied_to(make_settings("data", {}))
    assert applied.data.spacing == (0.6, 0.6, 1.2)
    assert Plan.model_validate(made.model_dump(mode="json")) == made, "run.json keeps it"


@pytest.mark.parametrize(
    ("changes", "given", "word"),
    [
        ({"spacing_ratio": 1.09}, {}, "not resampled"),
        ({}, {"spacing": "native"}, "as given"),
        ({}, {"size": "native"}, "not resampled"),
        ({"without_spacing": 2}, {}, "2 of 50 images have none"),
        ({"spacing_mm": None, "extent_mm": None}, {}, "no spacing"),
    ],
)
def test_images_are_not_resampled(changes: dict, given: dict, word: str) -> None:
    made = plan(volumes(100, 80, 60, **(VARIED | changes)), **given)
    assert made.resampled_to is None and word in made.choices["spacing"].reason
    settings = make_settings("data", given)
    assert made.applied_to(settings).data.spacing == settings.data.spacing


def test_the_papers_preset_does_not_resample() -> None:
    settings = make_settings("la:x", {"preset": "paper"})
    found = volumes(100, 80, 60, spacing_mm=(0.5, 0.5, 3.0), spacing_ratio=2.0, extent_mm=(60.0, 48.0, 180.0))
    made = make_plan(settings, found, precision="32-true")
    assert made.resampled_to is None and "strides" not in made.choices
    assert settings.data.spacing == "auto", "the runs of its recipes keep their ids"


def test_a_given_spacing_is_used_for_the_patch() -> None:
    made = plan(volumes(100, 80, 60, **VARIED), spacing="1.2")
    assert made.resampled_to == (1.2, 1.2, 1.2) and made.choices["spacing"].given
    assert values(made)["patch"] == (50, 40, 80)


@pytest.mark.parametrize("changes", [{"without_spacing": 3}, {"spacing_mm": None, "extent_mm": None}])
def test_a_given_spacing_needs_spacings_in_the_files(changes: dict) -> None:
    with pytest.raises(HebbsegError, match=r"(3|50) of 50 images have no spacing in their files.*--spacing native"):
        plan(volumes(100, 80, 60, **(VARIED | changes)), spacing="0.5,0.5,1")


def test_resampled_2d_images_are_trained_in_patches() -> None:
    different = {"spacing_mm": (0.5, 0.5), "spacing_ratio": 1.6, "extent_mm": (130.0, 200.0)}
    made = plan(fingerprint(**different))
    assert made.resampled_to == (0.5, 0.5) and values(made)["size"] == "native" and values(made)["patch"] == (256, 256)
    whole = plan(fingerprint(**different), patch="none")
    assert whole.resampled_to is None and whole.choices["size"].value == (128, 192)


def test_anisotropic_voxels_get_an_anisotropic_unet() -> None:
    made = plan(volumes(160, 160, 40, spacing_mm=(0.5, 0.5, 3.0), spacing_ratio=1.0, extent_mm=(80.0, 80.0, 120.0)))
    assert made.resampled_to is None, "the same spacing in all files"
    assert made.choices["strides"].value == "2x2x1,2x2x1,2x2x2,2x2x2"
    network = made.applied_to(make_settings("data", {})).network
    assert network.strides == ((2, 2, 1), (2, 2, 1), (2, 2, 2), (2, 2, 2))
    assert network.kernels == ((3, 3, 1), (3, 3, 1), (3, 3, 3), (3, 3, 3), (3, 3, 3))
    options = {"features": network.features, "strides": network.strides, "kernels": network.kernels}
    build_network(spatial_dims=3, in_channels=1, out_channels=2, options=options)
    assert "6x6x10" in made.choices["features"].reason, "of a patch of 96 x 96 x 40"


@pytest.mark.parametrize("given", [{"network": "monai.networks.nets.DynUNet"}, {"strides": "none"}, {"kernels": "none"}])
def test_other_networks_keep_their_geometry(given: dict) -> None:
    made = plan(volumes(160, 160, 40, spacing_mm=(0.5, 0.5, 3.0)), **given)
    assert "strides" not in made.choices and "kernels" not in made.choices


@pytest.mark.parametrize("value", ["0", "-1,1,1", "nan", "1,inf,1", "1,2,3,4", "fine", ""])
def test_bad_spacings_name_the_option(value: str) -> None:
    with pytest.raises(HebbsegError, match="Option spacing="):
        make_settings("data", {"spacing": value})


@pytest.mark.parametrize(("name", "value"), [("strides", "3x1x1"), ("kernels", "2x2x2"), ("strides", "fast")])
def test_bad_geometry_names_the_option(name: str, value: str) -> None:
    with pytest.raises(HebbsegError, match=f"Option {name}="):
        make_settings("data", {name: value})
