"""The real images through their named sources, and the same ones converted to plain and nnU-Net folders."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from PIL import Image as Pillow

from hebbseg.data.cases import Case, Source
from hebbseg.data.io.formats import read_image, read_labels, write_mask
from hebbseg.data.sources import open_source
from tests.realdata import real

pytestmark = pytest.mark.real


def some(source: Source, n: int) -> list[Case]:
    return list(source.cases[:: len(source.cases) // n][:n])


def test_glas_has_165_images_85_and_80_of_16_patients():
    source = open_source(f"glas:{real('glas')}")
    assert len(source.cases) == 165
    assert all(case.has_mask for case in source.cases)
    assert Counter(case.subset for case in source.cases) == {"train": 85, "test": 80}
    assert Counter(case.id.partition("_")[0] for case in source.cases) == {"train": 85, "testA": 60, "testB": 20}
    groups = {side: {c.group for c in source.cases if c.subset == side} for side in ("train", "test")}
    assert groups["train"] & groups["test"], "the published split has patients on both sides"
    assert None not in groups["train"] | groups["test"]
    assert (source.problems, source.channels, source.spatial_dims) == ((), 3, 2)
    for case in some(source, 5):
        anno = np.asarray(Pillow.open(case.mask[0]))
        assert anno.max() > 1, "gland numbers"
        np.testing.assert_array_equal(source.mask(case), anno > 0)
        np.testing.assert_array_equal(source.image(case), np.moveaxis(np.asarray(Pillow.open(case.image[0])), -1, 0))


@pytest.mark.parametrize(("name", "sides"), [("la", {"train": 8, "test": 2}), ("la_half", {"train": 80, "test": 20})])
def test_la_sides(name: str, sides: dict[str, int]):
    source = open_source(f"la:{real(name)}")
    assert Counter(case.subset for case in source.cases) == sides
    assert all(case.has_mask for case in source.cases)
    assert (source.problems, source.channels, source.spatial_dims) == ((), 1, 3)
    for case in some(source, 2):
        with h5py.File(case.image[0]) as file:
            np.testing.assert_array_equal(source.image(case)[0], file["image"][()])
            np.testing.assert_array_equal(source.mask(case), file["label"][()])
        assert source.image(case).dtype == np.float32


def test_pupils_are_840_in_21_groups():
    source = open_source(f"hmeps:{real('pupil_hmeps_layout')}")
    assert (len(source.cases), len({case.group for case in source.cases})) == (840, 21)
    assert all(case.has_mask for case in source.cases)
    assert (source.problems, source.channels) == ((), 1)
    for case in some(source, 10):
        np.testing.assert_array_equal(source.mask(case), np.asarray(Pillow.open(case.mask[0]))[..., 0] > 127)
        assert case.id.startswith(f"{case.group}_")


def test_nuclei_are_120():
    source = open_source(f"dsb2018:{real('dsb2018')}")
    assert len(source.cases) == 120
    assert sum(len(case.mask or ()) for case in source.cases) == 3899
    assert (source.problems, source.channels) == ((), 3)
    for case in some(source, 5):
        merged = np.any([np.asarray(Pillow.open(file)) > 0 for file in case.mask], axis=0)
        np.testing.assert_array_equal(source.mask(case), merged)
        np.testing.assert_array_equal(source.image(case)[0], np.asarray(Pillow.open(case.image[0]))[..., 0])


def as_folder(source: Source, cases: Sequence[Case], root: Path) -> None:
    for case in cases:
        image, mask = source.image(case), source.mask(case)
        if image.ndim == 4:
            for folder, array in (("images", image[0]), ("masks", mask)):
                (root / folder).mkdir(parents=True, exist_ok=True)
                nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), root / folder / f"{case.id}.nii.gz")
        else:
            for folder, array in (("images", np.moveaxis(image, 0, -1).squeeze()), ("masks", mask * 255)):
                (root / folder).mkdir(parents=True, exist_ok=True)
                Pillow.fromarray(array).save(root / folder / f"{case.id}.png")


def as_nnunet(source: Source, cases: Sequence[Case], root: Path) -> None:
    volumes = source.spatial_dims == 3
    for case in cases:
        side = "Ts" if case.subset == "test" else "Tr"
        for folder in (f"images{side}", f"labels{side}"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        image, mask = source.image(case), source.mask(case)
        if volumes:
            nibabel.save(nibabel.Nifti1Image(image[0], np.eye(4)), root / f"images{side}" / f"{case.id}_0000.nii.gz")
            nibabel.save(nibabel.Nifti1Image(mask, np.eye(4)), root / f"labels{side}" / f"{case.id}.nii.gz")
        else:
            for channel, plane in enumerate(image):
                Pillow.fromarray(plane).save(root / f"images{side}" / f"{case.id}_{channel:04d}.png")
            Pillow.fromarray(mask).save(root / f"labels{side}" / f"{case.id}.png")
    description = {
        "channel_names": {str(c): str(c) for c in range(source.channels)},
        "labels": {c.name: c.index for c in source.classes},
        "file_ending": ".nii.gz" if volumes else ".png",
    }
    (root / "dataset.json").write_text(json.dumps(description))


@pytest.mark.parametrize(
    ("spec", "folder", "n"),
    [("glas", "glas", 6), ("dsb2018", "dsb2018", 4), ("la", "la_half", 5), ("hmeps", "pupil_hmeps_layout", 6)],
)
def test_converted_sets_give_identical_arrays(tmp_path: Path, spec: str, folder: str, n: int):
    native = open_source(f"{spec}:{real(folder)}")
    cases = some(native, n)
    as_folder(native, cases, tmp_path / "folder")
    as_nnunet(native, cases, tmp_path / "nnunet")
    for place in ("folder", "nnunet"):
        converted = open_source(tmp_path / place)
        assert not converted.problems
        assert (converted.channels, converted.spatial_dims) == (native.channels, native.spatial_dims)
        assert [case.id for case in converted.cases] == sorted(case.id for case in cases)
        by_id = {case.id: case for case in converted.cases}
        for case in cases:
            image = converted.image(by_id[case.id])
            assert image.dtype == native.image(case).dtype
            np.testing.assert_array_equal(image, native.image(case))
            np.testing.assert_array_equal(converted.mask(by_id[case.id]), native.mask(case))
            if place == "nnunet" and spec in ("glas", "la"):
                assert by_id[case.id].subset == case.subset


def test_masks_written_for_real_images_read_back(tmp_path: Path):
    for spec, folder in (("glas", "glas"), ("la", "la_half"), ("hmeps", "pupil_hmeps_layout")):
        source = open_source(f"{spec}:{real(folder)}")
        case = source.cases[0]
        mask = source.mask(case)
        written = write_mask(tmp_path / spec / case.id, mask, read_image(case.image[0]), source.classes)
        np.testing.assert_array_equal(read_labels(written).values, mask * source.classes[1].value)
