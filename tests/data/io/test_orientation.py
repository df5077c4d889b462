"""Turning volumes, against a search for the world position of every voxel and against SimpleITK."""

from itertools import permutations, product
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk

from hebbseg.data.io.formats import read_header, read_image
from hebbseg.data.io.orientation import DIRECTIONS, is_orientation, orientation_of, to_grid, values_to_grid

EVERY = ["".join(letters) for axes in permutations(DIRECTIONS) for letters in product(*axes)]
WORLD = {"R": (0, 1), "L": (0, -1), "A": (1, 1), "P": (1, -1), "S": (2, 1), "I": (2, -1)}


def affine_of(code: str, spacing: tuple[float, ...] = (1.0, 1.0, 1.0)) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = 0
    for index, letter in enumerate(code):
        world, sign = WORLD[letter]
        affine[world, index] = sign * spacing[index]
    affine[:3, 3] = (-7.5, 3.25, 11.0)
    return affine


def turned_by_position(array: np.ndarray, code: str, wanted: str) -> np.ndarray:
    """Each voxel goes to the rank of its world position along each wanted direction."""
    affine, at = affine_of(code), {}
    for index in np.ndindex(*array.shape):
        world = affine[:3, :3] @ index + affine[:3, 3]
        at[tuple(sign * world[axis] for axis, sign in (WORLD[letter] for letter in wanted))] = array[index]
    ranks = [sorted({place[axis] for place in at}) for axis in range(3)]
    result = np.zeros([len(each) for each in ranks], array.dtype)
    for place, value in at.items():
        result[tuple(each.index(p) for each, p in zip(ranks, place, strict=True))] = value
    return result


def test_there_are_48_orientations() -> None:
    assert len(set(EVERY)) == 48 and all(map(is_orientation, EVERY))
    assert not any(map(is_orientation, ("RAR", "RA", "ras", "RASS", "XYZ")))
    assert all(orientation_of(affine_of(code)) == code for code in EVERY)


@pytest.mark.parametrize("wanted", ["RAS", "LPS", "SLP", "AIR"])
def test_every_orientation_is_turned_as_the_positions_of_its_voxels_say(wanted: str) -> None:
    array = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    for code in EVERY:
        expected = turned_by_position(array, code, wanted)
        turned = to_grid(array, ("xyz", code), ("xyz", wanted), dims=3)
        assert np.array_equal(turned, expected), code
        assert values_to_grid(array.shape, ("xyz", code), ("xyz", wanted)) == turned.shape
        reversed_axes = to_grid(array.T, ("zyx", code), ("zyx", wanted), dims=3)
        assert np.array_equal(reversed_axes, expected.T), "the order of stored axes does not matter"
        assert np.array_equal(to_grid(array, ("xyz", code), ("zyx", wanted), dims=3), expected.T)
        back = to_grid(turned, ("xyz", wanted), ("xyz", code), dims=3)
        assert np.array_equal(back, array)


def test_channels_after_the_axes_stay() -> None:
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    turned = to_grid(array, ("zyx", "SPL"), ("xyz", "RAS"), dims=3)
    for channel in range(5):
        assert np.array_equal(turned[..., channel], to_grid(array[..., channel], ("zyx", "SPL"), ("xyz", "RAS"), dims=3))


@pytest.mark.parametrize("grids", [(("xyz", None), ("xyz", "RAS")), (("xyz", "LPS"), ("xyz", None))])
def test_nothing_is_turned_where_an_orientation_is_unknown(grids: tuple) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(to_grid(array, *grids, dims=3), array)
    flat = np.arange(6).reshape(2, 3)
    assert np.array_equal(to_grid(flat, ("xyz", "LPS"), ("xyz", "RAS"), dims=2), flat), "2D images are not turned"


def test_volumes_of_files_are_turned_as_simpleitk_turns_them(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 255, (4, 5, 6)).astype(np.uint8)
    volume = sitk.GetImageFromArray(array)
    volume.SetDirection((0, 0.1, -0.99498744, -1, 0, 0, 0, 0.99498744, 0.1))  # oblique
    sitk.WriteImage(volume, str(tmp_path / "a.nrrd"))
    image, header = read_image(tmp_path / "a.nrrd"), read_header(tmp_path / "a.nrrd")
    assert image.orientation == header.orientation == orientation_of(header.affine)
    expected = sitk.GetArrayFromImage(sitk.DICOMOrient(volume, "RAS"))
    ours = to_grid(image.array[0], (image.axes, image.orientation), ("zyx", _itk_letters("RAS")), dims=3)
    assert np.array_equal(ours, expected)


def _itk_letters(code: str) -> str:
    """SimpleITK names the side that an axis comes from or goes to, depending on its version."""
    identity = sitk.DICOMOrientImageFilter().GetOrientationFromDirectionCosines([1, 0, 0, 0, 1, 0, 0, 0, 1])
    opposite = str.maketrans("RLAPSI", "LRPAIS")
    return code if identity == "LPS" else code.translate(opposite)


def test_a_nifti_without_transform_codes_has_no_orientation(tmp_path: Path) -> None:
    for codes, expected in (((0, 0), None), ((1, 0), "LPS"), ((0, 2), "LPS")):
        volume = nibabel.Nifti1Image(np.zeros((3, 4, 5), np.uint8), None)
        if any(codes):
            volume.set_qform(affine_of("LPS"), code=codes[0])
            volume.set_sform(affine_of("LPS"), code=codes[1])
        path = tmp_path / "a.nii.gz"
        nibabel.save(volume, path)
        assert read_header(path).orientation == read_image(path).orientation == expected


@pytest.mark.parametrize("affine", [None, np.full((4, 4), np.nan), np.zeros((4, 4))])
def test_an_affine_without_directions_has_no_orientation(affine: np.ndarray | None) -> None:
    assert orientation_of(affine) is None
