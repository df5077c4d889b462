"""Folders as public data sets have them: which files are masks, which are not used, and what is asked."""

from pathlib import Path

import numpy as np
import pytest

from hebbseg.data.cases import DataError, Source
from hebbseg.data.inspect import examine
from hebbseg.data.sources import open_source
from hebbseg.errors import HebbsegError
from tests.data.trees import disc, picture, plain_folder, save


def smooth(seed: int) -> np.ndarray:
    """A picture 24 × 32 in color."""
    return picture(seed, 24, 32, 3)


def square(n: int) -> np.ndarray:
    mask = np.zeros((24, 32), np.uint8)
    mask[1 + n : 9 + n, 2 * n : 8 + 2 * n] = 255
    return mask


def drive_tree(root: Path) -> Path:
    """As the retina set DRIVE: vessels in 1st_manual, fields of view in mask, and names that differ in their endings."""
    for n in range(8):
        side = "training" if n < 4 else "test"
        save(root / side / "images" / f"{n + 21}_{side}.tif", smooth(n))
        save(root / side / "1st_manual" / f"{n + 21}_manual1.gif", square(n))
        save(root / side / "mask" / f"{n + 21}_{side}_mask.gif", disc(24, 32, 11) * 255)
    return root


def masks_of(source: Source) -> dict[str, list[str]]:
    return {case.id: [path.name for path in case.mask or ()] for case in source.cases}


def test_two_folders_of_masks_are_asked_about(tmp_path: Path):
    drive_tree(tmp_path)
    with pytest.raises(DataError) as asked:
        open_source(tmp_path)
    message = str(asked.value)
    assert (
        "2 folders could contain the masks: 1st_manual (8 files: masks with the values 0, 1); mask (8 files: nearly" in message
    )
    assert "field of view" in message and "--masks 1st_manual" in message


def test_fields_of_view_are_recognized_in_images_of_different_sizes(tmp_path: Path):
    for n, (height, width) in enumerate([(48, 60), (44, 56), (48, 60), (66, 52)]):
        y, x = np.ogrid[:height, :width]
        inside = ((2 * y / height - 1) ** 2 + (2 * x / width - 1) ** 2 < 0.9).astype(np.uint8) * 255
        vessels = np.zeros((height, width), np.uint8)
        vessels[:, 10 * n : 10 * n + 12] = 255
        save(tmp_path / "images" / f"{n}.png", picture(n, height, width, 3))
        save(tmp_path / "mask" / f"{n}.png", inside)
        save(tmp_path / "1st_manual" / f"{n}.png", vessels)
    with pytest.raises(DataError) as asked:
        open_source(tmp_path)
    assert "1st_manual (4 files: masks with the values 0, 255); mask (4 files: nearly the same" in str(asked.value)


def test_the_named_folder_is_read_and_the_other_is_listed(tmp_path: Path):
    source = open_source(drive_tree(tmp_path), masks="1st_manual")
    assert masks_of(source)["training/21_training"] == ["21_manual1.gif"]
    assert masks_of(source)["test/28_test"] == ["28_manual1.gif"]
    assert [case.subset for case in source.cases] == ["test"] * 4 + ["train"] * 4
    np.testing.assert_array_equal(source.mask(source.cases[-1]), square(3) > 0)
    unused = examine(source).unused
    assert {(each.place, each.files, each.remedy) for each in unused} == {
        ("test/mask/", 4, "to use them: --masks mask"),
        ("training/mask/", 4, "to use them: --masks mask"),
    }
    assert all("field of view" in each.guess for each in unused)
    assert not any(case.has_mask for case in open_source(tmp_path, masks="none").cases)
    with pytest.raises(DataError, match=r"--masks 1st_manul: no such folder\. Did you mean '1st_manual'"):
        open_source(tmp_path, masks="1st_manul")


def test_fields_of_view_alone_are_suspicious(tmp_path: Path):
    drive_tree(tmp_path)
    (problem,) = examine(open_source(tmp_path, masks="mask")).problems
    assert "suspicious: all 8 masks mark nearly the same area" in problem.finding
    assert "--masks" in problem.remedy
    assert not examine(open_source(tmp_path, masks="1st_manual")).problems


def test_a_folder_with_another_name_is_recognized_by_its_content(tmp_path: Path):
    for n in range(6):
        save(tmp_path / "images" / f"{n}.png", smooth(n))
        save(tmp_path / "vessels" / f"{n}.png", square(n))
        save(tmp_path / "overlays" / f"{n}.png", smooth(n))
    source = open_source(tmp_path)
    assert all(case.has_mask for case in source.cases)
    assert any("read from vessels/: 6 files match 6 images" in note for note in source.notes)
    (overlays,) = examine(source).unused
    assert (overlays.place, overlays.files) == ("overlays/", 6)
    assert "images, with many values" in overlays.guess


def test_masks_are_told_from_images_where_no_folder_has_a_known_name(tmp_path: Path):
    for n in range(6):
        save(tmp_path / "photos" / f"{n}.png", smooth(n))
        save(tmp_path / "truth" / f"{n}.png", square(n))
    source = open_source(tmp_path)
    assert masks_of(source) == {f"photos/{n}": [f"{n}.png"] for n in range(6)}
    assert "read from truth/" in source.notes[0]
    for n in range(6):
        save(tmp_path / "edges" / f"{n}.png", square(n))
    with pytest.raises(DataError, match=r"2 folders could contain the masks: edges .*; truth "):
        open_source(tmp_path)


def test_images_and_masks_in_folders_of_any_name(tmp_path: Path):
    for n in range(3):
        save(tmp_path / "data" / "raw" / f"{n}.png", smooth(n))
        save(tmp_path / "data" / "old" / f"{n}.png", smooth(n))
        save(tmp_path / "elsewhere" / f"{n}.png", square(n))
    source = open_source(tmp_path / "data", images="raw", masks=str(tmp_path / "elsewhere"))
    assert masks_of(source) == {"0": ["0.png"], "1": ["1.png"], "2": ["2.png"]}
    assert [each.place for each in examine(source).unused] == ["old/"]
    with pytest.raises(HebbsegError, match="--images and --masks name folders of a plain folder"):
        open_source(f"glas:{tmp_path / 'data'}", images="raw")


def test_several_masks_of_an_image_are_merged(tmp_path: Path):
    for name in ("benign (1)", "benign (2)", "normal (1)"):
        save(tmp_path / "busi" / f"{name}.png", smooth(1))
    for ending, n in (("1)_mask", 0), ("1)_mask_1", 3), ("1)_mask_2", 6), ("2)_mask", 1)):
        save(tmp_path / "busi" / f"benign ({ending}.png", square(n))
    source = open_source(tmp_path)
    assert [(case.id, len(case.mask or ())) for case in source.cases] == [
        ("benign (1)", 3),
        ("benign (2)", 1),
        ("normal (1)", 0),
    ]
    np.testing.assert_array_equal(source.mask(source.cases[0]), (square(0) | square(3) | square(6)) > 0)
    assert source.classes[1].value == 255
    assert not source.problems
    assert "1 image(s) have several masks, which are merged (benign (1)_mask.png" in source.notes[0]


def test_numbered_files_in_a_mask_folder_are_merged_unless_images_have_numbers(tmp_path: Path):
    for name in ("a", "b"):
        save(tmp_path / "images" / f"{name}.png", smooth(1))
    for name in ("a", "a_1", "b_0", "b_1"):
        save(tmp_path / "masks" / f"{name}.png", square(1))
    assert masks_of(open_source(tmp_path)) == {"a": ["a.png", "a_1.png"], "b": ["b_0.png", "b_1.png"]}
    save(tmp_path / "images" / "b_1.png", smooth(2))
    source = open_source(tmp_path)
    assert masks_of(source) == {"a": ["a.png"], "b": [], "b_1": ["b_1.png"]}
    assert len([problem for problem in source.problems if "no matching image" in problem.finding]) == 2


def test_files_that_accompany_images_are_no_images(tmp_path: Path):
    for n in range(3):
        save(tmp_path / "ISIC_Training_Data" / f"ISIC_{n}.jpg", smooth(n))
        save(tmp_path / "ISIC_Training_Data" / f"ISIC_{n}_superpixels.png", smooth(n))
        save(tmp_path / "ISIC_Training_Part1_GroundTruth" / f"ISIC_{n}_segmentation.png", square(n))
    (tmp_path / "LICENSE.txt").write_text("CC-0")
    source = open_source(tmp_path)
    assert [case.has_mask for case in source.cases] == [True] * 3
    unused = {each.place: each.guess for each in examine(source).unused}
    assert unused["LICENSE.txt"] == "not images (.txt)"
    assert any("superpixels.png" in place for place in unused) and len(unused) == 2


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "Test"), ("training", "testing"), ("Set_Training_Data", "Set_Test_Data")]
)
def test_train_and_test_folders_are_the_split(tmp_path: Path, train: str, test: str):
    plain_folder(tmp_path / train, "abc")
    plain_folder(tmp_path / test, "de")
    source = open_source(tmp_path)
    assert [case.subset for case in source.cases].count("test") == 2
    assert "the train and test folders are used as the split (2 test images)" in source.notes[0]
    for mask in (tmp_path / test / "masks").iterdir():
        mask.unlink()
    source = open_source(tmp_path)
    assert {case.subset for case in source.cases} == {None}
    assert "the 2 images of the test folder have no masks" in source.notes[0]


@pytest.mark.parametrize(
    ("names", "group"),
    [
        (["patient001_frame01", "patient001_frame12", "patient002_frame01"], r"'^(patient\d+)'"),
        (["P001_a", "P001_b", "P002_a"], r"'^(P\d+)'"),
        (["sub-01_T1", "sub-01_T2", "sub-02_T1"], r"'^(sub-\d+)'"),
        (["x/sub-a1_T1", "x/sub-a1_T2", "y/sub-b2_T1"], r"'(?:^|/)(sub-[0-9A-Za-z]+)'"),
        (["13_Left_1", "13_Left_2", "14_Left_1"], r"'^(\d+)[-_ ]'"),
    ],
)
def test_patients_in_names_are_proposed_as_groups(tmp_path: Path, names: list[str], group: str):
    plain_folder(tmp_path, names)
    (problem,) = [p for p in examine(open_source(tmp_path)).problems if "patient ids" in p.finding]
    assert f"--group {group}" in problem.remedy
    assert "2 patients with up to 2 images" in problem.finding
    grouped = open_source(tmp_path, group=group.strip("'"))
    assert len({case.group for case in grouped.cases}) == 2
    assert not any("patient ids" in p.finding for p in examine(grouped).problems)


@pytest.mark.parametrize("names", [["a", "b", "c"], ["patient1", "patient2", "patient3"], ["p1_a", "p1_b", "other"]])
def test_names_without_several_images_per_patient_propose_nothing(tmp_path: Path, names: list[str]):
    plain_folder(tmp_path, names)
    assert not examine(open_source(tmp_path)).problems


def chase_tree(root: Path, endings: tuple[str, ...] = ("_1stHO", "_2ndHO")) -> Path:
    """As the retina set CHASE: images and the masks of two observers in one folder."""
    for n in range(4):
        save(root / f"Image_0{n}L.jpg", smooth(n))
        for ending in endings:
            save(root / f"Image_0{n}L{ending}.png", square(n))
    return root


def test_masks_beside_their_images_with_an_ending_of_their_own(tmp_path: Path):
    source = open_source(chase_tree(tmp_path / "one", ("_1stHO",)))
    assert masks_of(source) == {f"Image_0{n}L": [f"Image_0{n}L_1stHO.png"] for n in range(4)}
    assert any("ending in _1stHO" in note for note in examine(source).notes)


@pytest.mark.parametrize("given", ["_1stHO", "1stHO"])
def test_two_endings_of_masks_are_asked_about(given: str, tmp_path: Path):
    chase_tree(tmp_path)
    with pytest.raises(DataError, match=r"2 endings could be the masks: _1stHO \(4 files.*--masks _1stHO"):
        open_source(tmp_path)
    source = open_source(tmp_path, masks=given)
    assert masks_of(source) == {f"Image_0{n}L": [f"Image_0{n}L_1stHO.png"] for n in range(4)}
    (unused,) = examine(source).unused
    assert unused.files == 4 and "masks with the values" in unused.guess
    with pytest.raises(DataError, match="--masks 3rdHO: no such folder"):
        open_source(tmp_path, masks="3rdHO")
    assert not any(masks_of(open_source(tmp_path, masks="none")).values())


def test_numbered_images_are_no_masks(tmp_path: Path):
    for name in ("a", "a_1", "a_2", "b", "b_1"):
        save(tmp_path / f"{name}.png", smooth(len(name)))
    assert set(masks_of(open_source(tmp_path))) == {"a", "a_1", "a_2", "b", "b_1"}
