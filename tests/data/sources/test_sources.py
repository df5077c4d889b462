"""Every layout is found and paired as it should be; whatever does not fit is reported with its file and a remedy."""

import os
import re
import shutil
import stat
import time
import unicodedata
import zipfile
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from PIL import Image as Pillow

from hebbseg.data.cases import DataError, Source
from hebbseg.data.inspect import examine
from hebbseg.data.io import formats
from hebbseg.data.sources import open_source
from hebbseg.data.sources.unused import find_unused
from hebbseg.errors import HebbsegError
from tests.data.io.test_formats import write_dicom_series
from tests.data.trees import disc, glas_tree, hmeps_tree, ph2_tree, picture, plain_folder, save


def said(source: Source, *words: str) -> None:
    """Some problem has all the words in its file, finding and remedy."""
    told = [f"{p.file} | {p.finding} | {p.remedy}" for p in source.problems]
    assert any(all(word in line for word in words) for line in told), told
    assert all(p.file and p.finding and p.remedy for p in source.problems)


def arrays(source: Source) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    return {c.id: (source.image(c), source.mask(c) if c.has_mask else None) for c in source.cases}


# ---- folders of one's own


def test_images_and_masks_of_the_same_name(tmp_path: Path):
    source = open_source(plain_folder(tmp_path, "dacb", masks="ab"))
    assert [(c.id, c.has_mask) for c in source.cases] == [("a", True), ("b", True), ("c", False), ("d", False)]
    assert (source.spatial_dims, source.channels, source.problems) == (2, 3, ())
    np.testing.assert_array_equal(source.image(source.cases[3]), np.moveaxis(picture(0, 24, 32, 3), -1, 0))
    np.testing.assert_array_equal(source.mask(source.cases[0]), disc(24, 32))
    assert [(c.value, c.name) for c in source.classes] == [(0, "background"), (255, "foreground")]
    with pytest.raises(HebbsegError, match="Case 'c' has no mask"):
        source.mask(source.cases[2])


@pytest.mark.parametrize("ending", ["_mask", "_masks", "_anno", "_lesion", "_seg", "-label", "_GT"])
def test_flat_folder_with_an_ending(tmp_path: Path, ending: str):
    for name in ("x 1", "x_2", "x3"):
        save(tmp_path / f"{name}.jpg", picture(1, 24, 32))
    for name in ("x 1", "x3"):
        save(tmp_path / f"{name}{ending}.png", disc(24, 32))
    source = open_source(tmp_path)
    assert [(c.id, c.has_mask) for c in source.cases] == [("x 1", True), ("x3", True), ("x_2", False)]
    assert not source.problems
    assert source.channels == 1


def test_endings_and_subfolders_inside_masks(tmp_path: Path):
    for name in ("p1/a", "p2/a", "p2/b"):
        save(tmp_path / "Images" / f"{name}.png", picture(1, 9, 9))
    save(tmp_path / "labels" / "p1" / "a_mask.tif", disc(9, 9, 2))
    save(tmp_path / "labels" / "p2" / "a.png", disc(9, 9, 2))
    save(tmp_path / "labels" / "b.png", disc(9, 9, 3))
    source = open_source(tmp_path, group="^([^/]+)/")
    assert [(c.id, c.mask and c.mask[0].name, c.group) for c in source.cases] == [
        ("p1/a", "a_mask.tif", "p1"),
        ("p2/a", "a.png", "p2"),
        ("p2/b", "b.png", "p2"),
    ]


def test_a_folder_of_objects_is_merged(tmp_path: Path):
    save(tmp_path / "images" / "a.png", picture(1, 20, 20))
    left, right = np.zeros((20, 20), np.uint8), np.zeros((20, 20), np.uint8)
    left[2:8, 2:8] = 255
    right[6:15, 6:15] = 255
    save(tmp_path / "masks" / "a" / "1.png", left)
    save(tmp_path / "masks" / "a" / "2.png", right)
    source = open_source(tmp_path)
    np.testing.assert_array_equal(source.mask(source.cases[0]), (left | right) > 0)
    assert source.classes[1].value == 255


def test_hdf5_with_its_label_inside(tmp_path: Path):
    for name, keys in {"a": ("image", "label"), "b": ("image",)}.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            for key in keys:
                file[key] = (disc(20, 21) * (1 if key == "label" else 7))[..., None].repeat(9, axis=-1)
    source = open_source(tmp_path)
    assert [(c.id, c.has_mask) for c in source.cases] == [("a", True), ("b", False)]
    assert source.mask(source.cases[0]).shape == source.image(source.cases[0]).shape[1:] == (20, 21, 9)


def test_dicom_series_is_one_case(tmp_path: Path):
    for name in ("p1", "p2"):
        write_dicom_series(tmp_path / "images" / name, np.full((5, 8, 9), 3, np.uint16), (2.5, 0.75, 0.5))
    mask = sitk.GetImageFromArray(np.ones((5, 8, 9), np.uint8))
    (tmp_path / "masks").mkdir()
    sitk.WriteImage(mask, str(tmp_path / "masks" / "p1.nii.gz"))
    source = open_source(tmp_path)
    assert [(c.id, c.has_mask) for c in source.cases] == [("p1", True), ("p2", False)]
    assert source.cases[0].spacing_mm == pytest.approx((2.5, 0.75, 0.5))
    # NIfTI lists x first, DICOM z: the mask is turned to its image.
    assert source.mask(source.cases[0]).shape == (5, 8, 9)


def test_nifti_drawn_on_a_picture_is_turned_to_it(tmp_path: Path):
    save(tmp_path / "images" / "a.png", picture(1, 12, 20))
    values = np.zeros((1, 12, 20), np.uint8)
    values[0, 2, 15] = 1
    (tmp_path / "masks").mkdir()
    sitk.WriteImage(sitk.GetImageFromArray(values), str(tmp_path / "masks" / "a.nii.gz"))
    source = open_source(tmp_path)
    np.testing.assert_array_equal(source.mask(source.cases[0]), values[0])


def test_formats_that_order_their_axes_differently_are_made_alike(tmp_path: Path):
    volume = picture(0, 5, 6, 7)
    (tmp_path / "images").mkdir()
    for name in ("a.nii.gz", "b.mha"):
        image = sitk.GetImageFromArray(volume)
        image.SetSpacing((1, 2, 3))
        sitk.WriteImage(image, str(tmp_path / "images" / name))
    source = open_source(tmp_path)
    for case in source.cases:
        np.testing.assert_array_equal(source.image(case)[0], volume)
    alone = open_source(plain_copy(tmp_path / "images" / "a.nii.gz", tmp_path / "alone"))
    np.testing.assert_array_equal(alone.image(alone.cases[0])[0], volume.T)
    assert alone.cases[0].spacing_mm == (1, 2, 3)


def plain_copy(file: Path, folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    shutil.copy(file, folder / "images")
    return folder


def test_grey_colour_and_opacity_in_one_set(tmp_path: Path):
    save(tmp_path / "grey.png", picture(1, 9, 9))
    save(tmp_path / "colour.png", picture(2, 9, 9, 3))
    save(tmp_path / "opacity.png", picture(3, 9, 9, 4))
    source = open_source(tmp_path)
    assert source.channels == 3
    assert {source.image(c).shape for c in source.cases} == {(3, 9, 9)}
    np.testing.assert_array_equal(source.image(source.cases[1]), picture(1, 9, 9)[None].repeat(3, 0))


def test_other_mixtures_are_refused_where_they_are_read(tmp_path: Path):
    for name, shape in {"a": (9, 9), "b": (9, 9), "two": (9, 9, 2), "volume": (9, 9, 9)}.items():
        np.save(tmp_path / f"{name}.npy", np.zeros(shape))
    source = open_source(tmp_path)
    by_id = {c.id: c for c in source.cases}
    assert source.image(by_id["a"]).shape == (1, 9, 9)
    with pytest.raises(DataError, match=r"two\.npy: 2-channel image in a 1-channel data set"):
        source.image(by_id["two"])
    with pytest.raises(DataError, match=r"volume\.npy: 3D image of size 9×9×9 in a 2D data set.*separate folders"):
        source.image(by_id["volume"])


def test_sides_in_folders(tmp_path: Path):
    for n, name in enumerate(("train/images/a", "train/images/b", "val/images/a", "test/images/c")):
        save(tmp_path / f"{name}.png", picture(n, 9, 9))
    for name in ("train/masks/a", "val/masks/a", "test/masks/c_mask"):
        save(tmp_path / f"{name}.png", disc(9, 9, 3))
    save(tmp_path / "preview" / "all.png", picture(1, 9, 9))
    source = open_source(tmp_path)
    assert [(c.id, c.subset, c.has_mask) for c in source.cases] == [
        ("test/c", "test", True),
        ("train/a", "train", True),
        ("train/b", "train", False),
        ("val/a", "train", True),
    ]
    assert not source.problems
    assert [unused.place for unused in examine(source).unused] == ["preview/all.png"]


def test_sides_in_names_of_folders(tmp_path: Path):
    for name in ("train/x", "test/y"):
        save(tmp_path / f"{name}.jpg", picture(1, 9, 9))
    save(tmp_path / "train_masks" / "x_mask.gif", disc(9, 9, 3))
    source = open_source(tmp_path)
    assert [(c.id, c.subset, c.has_mask) for c in source.cases] == [("test/y", None, False), ("train/x", None, True)]
    save(tmp_path / "test_masks" / "y.png", disc(9, 9, 3) * 255)
    source = open_source(tmp_path)
    assert [(c.id, c.subset) for c in source.cases] == [("test/y", "test"), ("train/x", "train")]
    assert not source.problems


def test_masks_among_the_images(tmp_path: Path):
    for name in ("a", "b", "skin_lesion"):
        save(tmp_path / "images" / f"{name}.png", picture(1, 9, 9))
    save(tmp_path / "images" / "a_mask.png", disc(9, 9, 3))
    save(tmp_path / "overlays" / "a.png", picture(1, 9, 9))
    source = open_source(tmp_path)
    assert [(c.id, c.has_mask) for c in source.cases] == [("a", True), ("b", False), ("skin_lesion", False)]
    assert [c.id for c in open_source(tmp_path / "images").cases] == ["a", "b"]


# ---- bad input


def test_empty_and_missing_folders(tmp_path: Path):
    (tmp_path / "images").mkdir()
    with pytest.raises(DataError, match=r"no image found.*images.*\.png"):
        open_source(tmp_path)
    (tmp_path / "images" / "notes.docm").write_text("x")
    with pytest.raises(DataError, match=r"no image found.*notes\.docm"):
        open_source(tmp_path)
    plain_folder(tmp_path / "my_data")
    with pytest.raises(DataError, match=r"my_dta: no such file or folder\. Did you mean '.*my_data'\?"):
        open_source(tmp_path / "my_dta")
    with pytest.raises(DataError, match=r"a\.png: a file, not a folder\. Pass the folder"):
        open_source(tmp_path / "my_data" / "images" / "a.png")


def test_zero_bytes_are_left_out_and_reported(tmp_path: Path):
    plain_folder(tmp_path)
    (tmp_path / "images" / "b.png").write_bytes(b"")
    (tmp_path / "masks" / "c.png").write_bytes(b"")
    source = open_source(tmp_path)
    assert [(c.id, c.has_mask) for c in source.cases] == [("a", True), ("c", False), ("d", True)]
    said(source, "images/b.png", "empty file; skipped", "Copy or export it again")
    said(source, "masks/c.png", "empty file; skipped")
    said(source, "masks/b.png", "mask with no matching image")


def test_truncated_files_are_reported_when_read(tmp_path: Path):
    plain_folder(tmp_path)
    for file in (tmp_path / "images" / "a.png", tmp_path / "masks" / "b.png"):
        file.write_bytes(file.read_bytes()[:80])
    source = open_source(tmp_path)
    with pytest.raises(DataError, match=r"images/a\.png: truncated.*Copy or export it again"):
        source.image(source.cases[0])
    with pytest.raises(DataError, match=r"masks/b\.png: truncated"):
        source.mask(source.cases[1])
    assert source.mask(source.cases[2]).any()


def test_mask_of_another_size(tmp_path: Path):
    plain_folder(tmp_path)
    save(tmp_path / "masks" / "b.png", disc(24, 30) * 255)
    save(tmp_path / "masks" / "c.png", disc(32, 24) * 255)
    source = open_source(tmp_path)
    with pytest.raises(DataError, match=r"masks/b\.png: mask has size 24×30, but image b\.png has size 24×32.*Export the mask"):
        source.mask(source.cases[1])
    with pytest.raises(DataError, match=r"32×24.*axes swapped"):
        source.mask(source.cases[2])


def test_mask_without_image_and_two_masks_for_one_image(tmp_path: Path):
    plain_folder(tmp_path)
    save(tmp_path / "masks" / "zz.png", disc(24, 32))
    save(tmp_path / "masks" / "a.tif", disc(24, 32))
    save(tmp_path / "masks" / "b_mask.png", disc(24, 32))
    source = open_source(tmp_path)
    assert [c.id for c in source.cases if not c.has_mask] == ["a", "b"]
    said(source, "masks/zz.png", "mask with no matching image", "rename the mask")
    said(source, "images/a.png", "several masks for one image (a.png, a.tif)", "Keep one mask")
    said(source, "images/b.png", "b_mask.png")


def test_same_name_twice(tmp_path: Path):
    plain_folder(tmp_path)
    save(tmp_path / "images" / "a.jpg", picture(9, 24, 32))
    source = open_source(tmp_path)
    assert [c.id for c in source.cases] == ["b", "c", "d"]
    said(source, "images/a.", "2 images with the same name (a.jpg, a.png); all skipped", "rename")


def test_names_with_blanks_accents_and_other_bytes(tmp_path: Path):
    names = ["ein bild ", " x", "naïve é", "图像", "a.b.c", "100%", "Ω'\"", "[1]"]
    plain_folder(tmp_path, names)
    decomposed = tmp_path / "masks" / unicodedata.normalize("NFD", "naïve é.png")
    (tmp_path / "masks" / "naïve é.png").rename(decomposed)
    odd = os.fsencode(tmp_path / "images") + b"/\xff\xfe.png"
    shutil.copy(tmp_path / "images" / "100%.png", odd)
    source = open_source(tmp_path)
    assert {c.id for c in source.cases} == {*names, "��"}
    assert sum(c.has_mask for c in source.cases) == len(names)
    assert not source.problems
    for case in source.cases:
        case.id.encode("utf-8")
        assert source.image(case).shape == (3, 24, 32)


def test_links_that_go_in_circles_or_nowhere(tmp_path: Path):
    plain_folder(tmp_path)
    images = tmp_path / "images"
    (images / "loop").symlink_to(images)
    (images / "self.png").symlink_to(images / "self.png")
    (images / "gone.png").symlink_to(tmp_path / "nothing.png")
    (tmp_path / "elsewhere").mkdir()
    save(tmp_path / "elsewhere" / "e.png", picture(5, 24, 32, 3))
    (images / "more").symlink_to(tmp_path / "elsewhere")
    source = open_source(tmp_path)
    assert [c.id for c in source.cases] == ["a", "b", "c", "d", "more/e"]
    said(source, "images/loop", "already listed; not followed", "Remove the link")
    said(source, "images/self.png", "broken or circular link")
    said(source, "images/gone.png", "broken or circular link")
    os.mkfifo(tmp_path / "images" / "pipe.png")
    used = {path for case in source.cases for path in (*case.image, *(case.mask or ()))}
    assert [found.place for found in find_unused(tmp_path, used)] == ["elsewhere/e.png"]  # listed under its link
    examine(open_source(tmp_path))


def test_forbidden_folders_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain_folder(tmp_path)
    (tmp_path / "images" / "secret").mkdir()
    scandir = os.scandir

    def refuse_secret(folder: Path):
        if Path(folder).name == "secret":  # a mode of 0 would not keep root out
            raise PermissionError(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse_secret)
    said(open_source(tmp_path), "secret", "no permission")


def test_files_that_are_no_images_are_counted_and_named(tmp_path: Path):
    plain_folder(tmp_path)
    for name in ("a.svs", "b.svs", "notes.txt", ".hidden.xyz"):
        (tmp_path / "images" / name).write_text("x")
    source = open_source(tmp_path)
    said(source, "images/a.svs", "2 file(s) of unsupported type '.svs'", "convert")
    assert len(source.problems) == 1


def test_the_time_of_listing_grows_linearly(tmp_path: Path):
    one = save(tmp_path / "one.png", picture(1, 4, 4))

    def seconds(count: int) -> float:
        for folder in ("images", "masks"):
            (tmp_path / str(count) / folder).mkdir(parents=True)
            for n in range(count):
                os.link(one, tmp_path / str(count) / folder / f"{n:05d}.png")
        start = time.process_time()
        source = open_source(tmp_path / str(count))
        assert sum(case.has_mask for case in source.cases) == count
        return time.process_time() - start

    assert seconds(8_000) < 24 * seconds(1_000)  # 8 is linear, 64 quadratic


# ---- no mask is opened unless asked for


def test_no_mask_is_opened_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[Path] = []
    real_read = formats._read

    def spy(path: Path, action: object) -> object:
        opened.append(Path(path))
        return real_read(path, action)  # type: ignore[arg-type]

    monkeypatch.setattr(formats, "_read", spy)
    for source in (
        open_source(plain_folder(tmp_path / "p")),
        open_source(f"ph2:{ph2_tree(tmp_path / 'ph2')}"),
        open_source(f"hmeps:{hmeps_tree(tmp_path / 'hmeps')}"),
        open_source(f"glas:{glas_tree(tmp_path / 'glas')}"),
    ):
        masks = {path for case in source.cases for path in case.mask or ()}
        assert masks
        assert source.spatial_dims == 2
        assert source.channels in (1, 3)
        for path in masks:
            path.unlink()
        for case in source.cases:
            source.image(case)
        assert not masks & set(opened)
        with pytest.raises(DataError, match="no such file"):
            source.mask(next(c for c in source.cases if c.has_mask))


def test_sets_without_any_mask_are_listed(tmp_path: Path):
    shutil.rmtree(plain_folder(tmp_path / "p") / "masks")
    assert [c.has_mask for c in open_source(tmp_path / "p").cases] == [False] * 4
    shutil.rmtree(hmeps_tree(tmp_path / "hmeps") / "annotation" / "png")
    source = open_source(f"hmeps:{tmp_path / 'hmeps'}")
    assert [c.has_mask for c in source.cases] == [False] * 6
    for mask in glas_tree(tmp_path / "glas").glob("*_anno.bmp"):
        mask.unlink()
    assert [c.has_mask for c in open_source(f"glas:{tmp_path / 'glas'}").cases] == [False] * 4


# ---- the named sets


@pytest.mark.parametrize("level", ["", "PH2Dataset", "PH2Dataset/PH2 Dataset images", "PH2Dataset/PH2 Dataset images/IMD003"])
def test_ph2_from_any_level_with_its_odd_mask(tmp_path: Path, level: str):
    source = open_source(f"ph2:{ph2_tree(tmp_path / 'x') / level}")
    assert [c.id for c in source.cases] == ["IMD002", "IMD003", "IMD437"]
    assert (source.problems, source.channels, source.spatial_dims) == ((), 3, 2)
    for seed, (case, size) in enumerate(zip(source.cases, [(57, 76), (55, 77), (56, 76)])):
        np.testing.assert_array_equal(source.image(case), np.moveaxis(picture(seed, *size, 3), -1, 0))
        np.testing.assert_array_equal(source.mask(case), disc(*size, radius=9 + seed))
    assert [(c.value, c.name) for c in source.classes] == [(0, "background"), (255, "lesion")]


@pytest.mark.parametrize("level", ["..", "", "fullFrames", "annotation", "annotation/png"])
def test_hmeps_reads_the_red_channel_and_the_subject(tmp_path: Path, level: str):
    source = open_source(f"hmeps:{hmeps_tree(tmp_path / 'x' / 'HMEPS') / level}")
    assert [c.group for c in source.cases] == ["0", "0", "1", "1", "2", "2"]
    assert (source.problems, source.channels) == ((), 1)
    assert not source.mask(source.cases[0]).any()
    for case in source.cases[1:]:
        np.testing.assert_array_equal(source.mask(case), disc(40, 40, 6))
    assert source.classes[1].name == "pupil"
    cut = open_source(f"hmeps:{tmp_path / 'x'}", mask_threshold=200)
    assert cut.classes[1].name == "pupil"
    np.testing.assert_array_equal(cut.mask(cut.cases[1]), disc(40, 40, 6))


def test_hmeps_says_what_is_missing(tmp_path: Path):
    root = hmeps_tree(tmp_path)
    (root / "fullFrames" / "1_Left_2.jpeg").unlink()
    save(root / "fullFrames" / "extra.jpeg", picture(1, 40, 40))
    source = open_source(f"hmeps:{root}")
    said(source, "1_Left_2.png", "mask with no matching frame")
    said(source, "extra.jpeg", "not listed in annotations.csv")
    said(source, "1_Left_2.jpeg", "listed in annotations.csv, but missing")


def test_glas_patients_sides_and_instances(tmp_path: Path):
    source = open_source(f"glas:{glas_tree(tmp_path)}")
    assert [(c.id, c.group, c.subset) for c in source.cases] == [
        ("testA_1", "1", "test"),
        ("testB_1", "2", "test"),
        ("train_1", "1", "train"),
        ("train_2", "2", "train"),
    ]
    for case in source.cases:
        np.testing.assert_array_equal(source.mask(case), disc(24, 32))
    (tmp_path / "Grade.csv").unlink()
    (tmp_path / "train_2.bmp").unlink()
    source = open_source(f"glas:{tmp_path}")
    said(source, "Grade.csv", "patients are unknown")
    said(source, "train_2_anno.bmp", "mask with no matching image")


def test_la_lists_and_missing_volumes(tmp_path: Path):
    root = tmp_path / "2018LA_Seg_Training Set"
    for name in ("A", "B", "C"):
        (root / name).mkdir(parents=True)
        with h5py.File(root / name / "mri_norm2.h5", "w") as file:
            file["image"] = np.full((9, 8, 7), ord(name), np.float32)
            file["label"] = np.ones((9, 8, 7), np.uint8)
    (root / "D").mkdir()
    (tmp_path / "train.list").write_text("A\nB\nX\n")
    (tmp_path / "test.list").write_text("C\r\n")
    for level in (tmp_path, root, root / "A"):
        source = open_source(f"la:{level}")
        assert [(c.id, c.subset, c.has_mask) for c in source.cases] == [
            ("A", "train", True),
            ("B", "train", True),
            ("C", "test", True),
        ]
        assert (source.spatial_dims, source.channels) == (3, 1)
        said(source, "train.list", "lists 1 missing case(s), such as X")
        said(source, "D/mri_norm2.h5", "missing or empty file")


def test_dsb2018_stages_and_merging(tmp_path: Path):
    for stage, name in (("stage1_train", "aa"), ("stage1_train", "bb"), ("stage1_test", "cc")):
        save(tmp_path / stage / name / "images" / f"{name}.png", picture(1, 9, 9, 4))
        for n in range(2 if stage == "stage1_train" else 0):
            nucleus = np.zeros((9, 9), np.uint8)
            nucleus[n * 4 : n * 4 + 3, 2:5] = 255
            save(tmp_path / stage / name / "masks" / f"{n}.png", nucleus)
    source = open_source(f"dsb2018:{tmp_path}")
    assert [(c.id, len(c.mask or ())) for c in source.cases] == [("aa", 2), ("bb", 2), ("cc", 0)]
    assert source.mask(source.cases[0]).sum() == 18
    assert source.channels == 3
    for level in ("stage1_train", "stage1_train/aa", "stage1_train/aa/masks"):
        assert [c.id for c in open_source(f"dsb2018:{tmp_path / level}").cases][:2] == ["aa", "bb"]


def test_nnunet_with_channels_test_side_and_labels(tmp_path: Path):
    rng = np.random.default_rng(0)
    volumes = {name: rng.normal(size=(2, 6, 7, 5)).astype(np.float32) for name in ("c1", "c2", "c3")}
    for folder in ("imagesTr", "labelsTr", "imagesTs", "labelsTs"):
        (tmp_path / "Dataset001_X" / folder).mkdir(parents=True)
    root = tmp_path / "Dataset001_X"
    for name, volume in volumes.items():
        side = "Ts" if name == "c3" else "Tr"
        for channel in range(2):
            image = nibabel.Nifti1Image(volume[channel], np.diag([1, 2, 3, 1]))
            nibabel.save(image, root / f"images{side}" / f"{name}_000{channel}.nii.gz")
        label = nibabel.Nifti1Image((volume[0] > 0).astype(np.uint8) * 2, np.diag([1, 2, 3, 1]))
        nibabel.save(label, root / f"labels{side}" / f"{name}.nii.gz")
    (root / "dataset.json").write_text(
        '{"channel_names": {"0": "T1", "1": "T2"}, "labels": {"background": 0, "edema": 1, "tumour": 2}, '
        '"numTraining": 2, "file_ending": ".nii.gz"}'
    )
    for spec in (root, f"nnunet:{tmp_path}", f"nnunet:{root / 'imagesTr'}"):
        source = open_source(spec)
        assert [(c.id, c.subset, len(c.image)) for c in source.cases] == [
            ("c1", "train", 2),
            ("c2", "train", 2),
            ("c3", "test", 2),
        ]
        assert source.cases[0].spacing_mm == (1, 2, 3)
        assert [c.name for c in source.classes] == ["background", "edema", "tumour"]
        for case in source.cases:
            np.testing.assert_array_equal(source.image(case), volumes[case.id])
            np.testing.assert_array_equal(source.mask(case), (volumes[case.id][0] > 0) * 2)
        assert not examine(source).unused
    shutil.rmtree(root / "labelsTs")
    (root / "imagesTr" / "c1_0001.nii.gz").unlink()
    nibabel.save(nibabel.Nifti1Image(volumes["c1"][0], np.eye(4)), root / "labelsTr" / "zz.nii.gz")
    source = open_source(root)
    assert [(c.id, c.subset, c.has_mask) for c in source.cases] == [("c2", None, True), ("c3", None, False)]
    said(
        source,
        "c1_0000.nii.gz",
        "1 channel file(s), but dataset.json lists 2 channel(s); case skipped",
        "Add the missing c1_000N",
    )
    said(source, "zz.nii.gz", "mask with no matching image")


def test_nnunet_labels_it_cannot_read(tmp_path: Path):
    save(tmp_path / "imagesTr" / "a_0000.png", picture(0, 9, 9))
    for labels, message in {
        '{"labels": {"background": 0, "whole": [1, 2]}}': "regions",
        '{"name": "x"}': "no 'labels'",
        "{": "not valid JSON",
    }.items():
        (tmp_path / "dataset.json").write_text(labels)
        with pytest.raises(DataError, match=rf"dataset\.json: {message}"):
            open_source(tmp_path)


def test_nnunet_regions_name_the_label_map_that_reads_them(tmp_path: Path):
    save(tmp_path / "imagesTr" / "a_0000.png", picture(0, 9, 9))
    values = np.zeros((9, 9), np.uint8)
    values[1:8, 1:8], values[2:7, 2:7], values[3:5, 3:5], values[6, 6] = 1, 2, 3, 4
    save(tmp_path / "labelsTr" / "a.png", values)
    labels = '{"background": 0, "whole tumor": [1, 2, 3, 4], "core": [2, 3], "enhancing": 3}'
    (tmp_path / "dataset.json").write_text(f'{{"labels": {labels}, "regions_class_order": [1, 2, 3]}}')
    with pytest.raises(DataError, match="Overlapping regions") as caught:
        open_source(tmp_path)
    label_map = re.search(r"--label-map '(.*?)'", str(caught.value)).group(1)
    source = open_source(tmp_path, label_map=label_map)
    assert [info.name for info in source.classes] == ["background", "whole tumor", "core", "enhancing"]
    # A region is the union of the classes inside it.
    mask = source.mask(source.cases[0])
    for classes, region in (((1, 2, 3), (1, 2, 3, 4)), ((2, 3), (2, 3)), ((3,), (3,))):
        np.testing.assert_array_equal(np.isin(mask, classes), np.isin(values, region))


def test_nnunet_ignore_label(tmp_path: Path):
    save(tmp_path / "imagesTr" / "a_0000.png", picture(0, 9, 9))
    mask = np.zeros((9, 9), np.uint8)
    mask[3:6], mask[6:] = 1, 2
    save(tmp_path / "labelsTr" / "a.png", mask)
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0, "a": 1, "ignore": 2}}')
    source = open_source(tmp_path)
    assert [c.name for c in source.classes] == ["background", "a"]
    np.testing.assert_array_equal(np.unique(source.mask(source.cases[0])), [0, 1, 255])
    with pytest.raises(HebbsegError, match=r"ignore=1: this mask value is class 'a'"):
        open_source(tmp_path, ignore=1)


def test_plain_paths_of_known_sets_say_how_to_name_them(tmp_path: Path):
    for name, make in {"glas": glas_tree, "ph2": ph2_tree, "hmeps": hmeps_tree}.items():
        root = make(tmp_path / name)
        with pytest.raises(DataError, match=rf"looks like {name} as downloaded\. Write {name}:"):
            open_source(root)
    assert len(open_source(f"folder:{tmp_path / 'glas'}").cases) == 4


def test_unknown_sources_and_options(tmp_path: Path):
    with pytest.raises(HebbsegError, match=r"Unknown data source 'gals'.*Did you mean 'glas'"):
        open_source("gals:somewhere")
    with pytest.raises(HebbsegError, match="nothing follows the colon"):
        open_source("glas:")
    with pytest.raises(HebbsegError, match=r"Unknown option 'lable_map'.*Did you mean 'label_map'"):
        open_source(plain_folder(tmp_path), lable_map="a=1")
    with pytest.raises(HebbsegError, match="cannot be combined"):
        open_source(tmp_path, label_map="a=1", mask_threshold=3)
    with pytest.raises(HebbsegError, match="do not apply to generated data"):
        open_source("phantom:glands", group="x")
    for name in ("ph2", "hmeps", "la", "dsb2018", "glas", "nnunet"):
        with pytest.raises(DataError, match=r"Pass the (downloaded )?folder"):
            open_source(f"{name}:{tmp_path / 'images'}")


def test_a_folder_with_a_colon_in_its_name(tmp_path: Path):
    assert len(open_source(str(plain_folder(tmp_path / "la:x"))).cases) == 4


# ---- groups


def test_groups_from_a_table_or_a_pattern(tmp_path: Path):
    names = ["p1_a", "p1_b", "p2_a"]
    plain_folder(tmp_path, names)
    (tmp_path / "who.csv").write_text("\ufeffimage;Patient\np1_a.png;Anna\np1_b;Anna\np2_a.png;Ben\n", encoding="utf-8")
    assert [c.group for c in open_source(tmp_path, group="who.csv:patient").cases] == ["Anna", "Anna", "Ben"]
    assert [c.group for c in open_source(tmp_path, group=r"^(p\d)_").cases] == ["p1", "p1", "p2"]
    assert [c.group for c in open_source(tmp_path, group=r"p\d").cases] == ["p1", "p1", "p2"]
    for group, message in {
        "who.csv:doctor": "no column 'doctor'.*Allowed: 'Patient', 'image'",
        "nobody.csv:x": "table 'nobody.csv' not found",
        "who.csv": "names no column",
        "^(p2)": "does not match case 'p1_a'",
        "(": "not a valid regular expression",
    }.items():
        with pytest.raises(HebbsegError, match=message):
            open_source(tmp_path, group=group)
    (tmp_path / "who.csv").write_text("image,patient\np1_a,Anna\n")
    with pytest.raises(HebbsegError, match="no 'patient' for case 'p1_b'"):
        open_source(tmp_path, group="who.csv:patient")


# ---- zips


def zipped(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder.parent))
        file.writestr("__MACOSX/junk.png", b"junk")
    return archive


def test_zips_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "cache"))
    plain, ph2 = open_source(plain_folder(tmp_path / "p")), open_source(f"ph2:{ph2_tree(tmp_path / 'q')}")
    for spec, unzipped in {
        str(zipped(tmp_path / "p", tmp_path / "p.zip")): plain,
        f"ph2:{zipped(tmp_path / 'q', tmp_path / 'PH2.zip')}": ph2,
    }.items():
        source = open_source(spec)
        assert not source.problems
        for id, (image, mask) in arrays(unzipped).items():
            np.testing.assert_array_equal(arrays(source)[id][0], image)
            np.testing.assert_array_equal(arrays(source)[id][1], mask)
    (unpacked, other) = (tmp_path / "cache" / "zips").iterdir()
    before = unpacked.stat().st_mtime_ns, other.stat().st_mtime_ns
    open_source(tmp_path / "p.zip")
    assert (unpacked.stat().st_mtime_ns, other.stat().st_mtime_ns) == before


def test_zips_that_reach_outside_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "cache"))
    for name in ("../evil.png", "/evil.png", "a/../../evil.png", "..\\evil.png"):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
            file.writestr(name, b"x")
        with pytest.raises(DataError, match=r"x\.zip: member '.*evil\.png' would be extracted outside"):
            open_source(tmp_path / "x.zip")
    link = zipfile.ZipInfo("images/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr(link, "/etc")
    with pytest.raises(DataError, match=r"member 'images/link' is a symbolic link"):
        open_source(tmp_path / "x.zip")
    (tmp_path / "x.zip").write_bytes(b"PK no zip")
    with pytest.raises(DataError, match=r"not a readable zip archive.*Download it again"):
        open_source(tmp_path / "x.zip")
    (tmp_path / "x.7z").write_bytes(b"x")
    with pytest.raises(DataError, match=r"a \.7z archive.*Extract it"):
        open_source(tmp_path / "x.7z")
    assert not list((tmp_path / "cache" / "zips").iterdir())
    assert not list(tmp_path.rglob("evil*"))


def test_pictures_survive_pillows_own_reader(tmp_path: Path):
    """The tree helpers write what they say: the check on the checks."""
    root = ph2_tree(tmp_path)
    modes = {p.name: Pillow.open(p).mode for p in root.rglob("*_lesion.bmp")}
    assert modes == {"IMD002_lesion.bmp": "RGB", "IMD003_lesion.bmp": "1", "IMD437_lesion.bmp": "1"}


def test_spacing_is_in_the_order_of_the_axes_when_formats_disagree(tmp_path: Path) -> None:
    import nibabel
    import SimpleITK

    (tmp_path / "images").mkdir()
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6), np.float32), np.diag([1, 2, 3, 1])), tmp_path / "images" / "a.nii.gz")
    image = SimpleITK.GetImageFromArray(np.zeros((6, 5, 4), np.float32))
    image.SetSpacing((1, 2, 3))
    SimpleITK.WriteImage(image, str(tmp_path / "images" / "b.nrrd"))
    source = open_source(tmp_path)
    assert [(source.image(case).shape, case.spacing_mm) for case in source.cases] == [((1, 6, 5, 4), (3, 2, 1))] * 2
