"""What ``hebbseg check`` says is what is there; every fault is found in one go, and no other case suffers for it."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from PIL import Image as Pillow

from hebbseg.cli.check_table import show
from hebbseg.data.cases import DataError
from hebbseg.data.inspect import Examination, examine
from hebbseg.data.inspect_report import failed_report, report
from hebbseg.data.sources import open_source
from hebbseg.data.sources.files import FileSource
from hebbseg.reporting.plots.contact_sheet import choose, contact_sheet, overlay
from tests.data.trees import disc, glas_tree, hmeps_tree, picture, plain_folder, save


def problems(examination: Examination) -> list[str]:
    return [f"{p.file} | {p.finding} | {p.remedy}" for p in examination.problems]


def test_report_counts_and_shares(tmp_path: Path):
    plain_folder(tmp_path, "abcd", masks="ab")
    summary = report(examine(open_source(tmp_path)))
    assert (summary["cases"], summary["with_mask"], summary["without_mask"], summary["left_out"]) == (4, 2, 2, 0)
    share = disc(24, 32).mean()
    assert [(c["index"], c["value"], c["name"]) for c in summary["classes"]] == [
        (0, 0, "background"),
        (1, 255, "foreground"),
    ]
    assert [c["share"] for c in summary["classes"]] == pytest.approx([1 - share, share])
    assert summary["sizes"] == {"24×32": 4}
    assert (summary["groups"], summary["problems"], summary["notes"]) == (0, [], [])
    assert json.loads(json.dumps(summary)) == summary


def test_groups_and_subsets(tmp_path: Path):
    hmeps = report(examine(open_source(f"hmeps:{hmeps_tree(tmp_path / 'h')}")))
    assert (hmeps["groups"], hmeps["group_sizes"]) == (3, {"0": 2, "1": 2, "2": 2})
    glas = report(examine(open_source(f"glas:{glas_tree(tmp_path / 'g')}")))
    assert (glas["groups"], glas["subsets"]) == (2, {"test": 2, "train": 2})


def test_every_fault_is_found_in_one_go(tmp_path: Path):
    plain_folder(tmp_path, "abcdefgh")
    images, masks = tmp_path / "images", tmp_path / "masks"
    (images / "a.png").write_bytes((images / "a.png").read_bytes()[:90])
    (images / "b.png").write_bytes(b"")
    save(masks / "c.png", disc(20, 20) * 255)
    (masks / "d.png").write_bytes(b"nonsense")
    save(images / "f.png", picture(4, 24, 32, 3))  # the very picture of e
    save(images / "g.png", np.full((24, 32, 3), 9, np.uint8))
    save(masks / "lonely.png", disc(24, 32) * 255)
    examination = examine(open_source(tmp_path))
    told = problems(examination)
    for words in (
        ("images/a.png", "truncated", "; image skipped", "Copy or export it again"),
        ("images/b.png", "empty file"),
        ("masks/c.png", "mask has size 20×20, but image c.png has size 24×32", "; used as an unlabelled image"),
        ("masks/d.png", "damaged", "; used as an unlabelled image"),
        ("images/f.png", "identical to", "e.png", "--group"),
        ("images/g.png", "every pixel is 9"),
        ("masks/lonely.png", "mask with no matching image"),
    ):
        assert any(all(word in line for word in words) for line in told), (words, told)
    summary = report(examination)
    assert (summary["cases"], summary["with_mask"], summary["without_mask"], summary["left_out"]) == (6, 4, 2, 1)
    assert [c.id for c in examination.usable] == list("cdefgh")
    source = examination.source
    assert isinstance(source, FileSource)
    fixed = examine(source.with_cases(examination.usable))
    assert not [p for p in fixed.problems if "skipped" in p.finding and "images/a.png" in p.file]
    assert report(fixed)["with_mask"] == 4


def test_soft_masks_leave_the_images_checked(tmp_path: Path):
    plain_folder(tmp_path, "ab", masks="")
    (tmp_path / "masks").mkdir()
    blurred = np.tile(np.linspace(0, 255, 32).astype(np.uint8), (24, 1))
    Pillow.fromarray(blurred).save(tmp_path / "masks" / "a.jpg")
    examination = examine(open_source(tmp_path))
    (problem,) = examination.fatal
    assert "soft edges" in problem.finding
    assert "--mask-threshold 128" in problem.remedy
    summary = report(examination)
    assert (summary["cases"], summary["with_mask"], summary["classes"]) == (2, 1, [])
    told = report(examine(open_source(tmp_path, mask_threshold=128)))
    assert told["problems"] == []
    assert told["classes"][1]["share"] == pytest.approx(0.5, abs=0.05)


def test_empty_masks_absent_classes_and_no_masks(tmp_path: Path):
    plain_folder(tmp_path / "empty", "ab", masks="")
    for name in "ab":
        save(tmp_path / "empty" / "masks" / f"{name}.png", np.zeros((24, 32), np.uint8))
    assert any("all 2 masks are empty" in p.finding for p in examine(open_source(tmp_path / "empty")).fatal)
    named = examine(open_source(tmp_path / "empty", label_map="a=0;b=1"))
    assert any("all 2 masks are empty" in p.finding for p in named.fatal)
    plain_folder(tmp_path / "absent")
    absent = examine(open_source(tmp_path / "absent", label_map="background=0;gland=255;cyst=7"))
    assert any("no mask contains class 2 (cyst, value 7)" in p.finding for p in absent.problems)
    none = examine(open_source(plain_folder(tmp_path / "none", "ab", masks="")))
    assert any("no case has a usable mask" in p.finding for p in none.problems)
    assert not none.fatal


def test_not_a_number_is_fatal(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=(20, 20))
    values[3, 4] = np.nan
    np.save(tmp_path / "a.npy", values)
    (problem,) = examine(open_source(tmp_path)).fatal
    assert "NaN or infinite values in 1 pixel(s)" in problem.finding


def test_masks_that_say_they_lie_elsewhere_are_reported(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=(6, 7, 5)).astype(np.float32)
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for name in ("same", "flipped"):
        nibabel.save(nibabel.Nifti1Image(values + len(name), np.eye(4)), tmp_path / "images" / f"{name}.nii.gz")
        affine = np.eye(4) if name == "same" else np.diag([-1, 1, 1, 1])
        nibabel.save(nibabel.Nifti1Image((values > 0).astype(np.uint8), affine), tmp_path / "masks" / f"{name}.nii.gz")
    sitk.WriteImage(sitk.ReadImage(str(tmp_path / "images" / "same.nii.gz")) + 1, str(tmp_path / "images" / "itk.mha"))
    sitk.WriteImage(sitk.ReadImage(str(tmp_path / "masks" / "same.nii.gz")), str(tmp_path / "masks" / "itk.nii.gz"))
    (told,) = problems(examine(open_source(tmp_path)))
    assert "masks/flipped.nii.gz" in told
    assert "origin, orientation or spacing differs from flipped.nii.gz" in told


def test_patients_on_both_sides_are_noted(tmp_path: Path):
    (note,) = examine(open_source(f"glas:{glas_tree(tmp_path)}")).notes
    assert "2 of 2 groups (patients) are in both the training and the test set" in note


def test_notes_tell_what_was_made_alike(tmp_path: Path):
    save(tmp_path / "a.png", picture(1, 9, 9))
    save(tmp_path / "b.png", picture(2, 9, 9, 4))
    Pillow.fromarray(picture(3, 9, 9).astype(np.uint16) * 200).save(tmp_path / "c.png")
    notes = " / ".join(examine(open_source(tmp_path)).notes)
    assert "2 grayscale image(s) are converted to RGB" in notes
    assert "1 image(s) have an alpha channel, which is ignored" in notes
    assert "mixed data types: 2 × uint8, 1 × uint16" in notes


def test_without_masks_none_is_opened(tmp_path: Path):
    source = open_source(plain_folder(tmp_path))
    for mask in (tmp_path / "masks").iterdir():
        mask.unlink()
    examination = examine(source, masks=False)
    assert len(examination.usable) == 4
    assert not examination.problems


def test_data_that_cannot_be_opened_have_the_same_keys(tmp_path: Path):
    summary = failed_report("x", DataError("x", "nothing there", "look elsewhere"))
    for key in ("cases", "with_mask", "without_mask", "classes", "groups", "problems"):
        assert key in summary
    assert summary["problems"] == [{"file": "x", "finding": "nothing there", "remedy": "look elsewhere", "fatal": True}]


def test_table_survives_odd_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plain_folder(tmp_path / "[red]x", ["[bold]", "图"], masks=["[bold]"])
    (tmp_path / "[red]x" / "images" / "[u].png").write_bytes(b"")
    show(report(examine(open_source(tmp_path / "[red]x"))))
    shown = capsys.readouterr().out
    assert "[red]x" in shown
    assert "[u].png" in shown
    assert "1 problem(s), 0 of them must be fixed" in shown


def test_contact_sheet_shows_masks_in_place(tmp_path: Path):
    image = np.full((50, 100), 100, np.uint8)
    mask = np.zeros((50, 100), np.uint8)
    mask[10:40, 60:90] = 1
    drawn = np.asarray(overlay(image, mask, size=200)).astype(int)
    assert drawn.shape == (100, 200, 3)
    assert (drawn[5, 5] == 100).all()
    assert drawn[50, 150, 1] > drawn[50, 150, 0] + 20, "tinted inside"
    assert tuple(drawn[50, 120]) == (0, 230, 118), "outlined at the border"
    source = open_source(plain_folder(tmp_path, [f"{n:02d}" for n in range(30)], masks=["03", "20"]))
    path = contact_sheet(source, source.cases, source.classes, tmp_path / "out" / "sheet.png")
    with Pillow.open(path) as sheet:
        assert sheet.width > 1000


def test_contact_sheet_chooses_some_of_each(tmp_path: Path):
    source = open_source(plain_folder(tmp_path, [f"{n:03d}" for n in range(100)], masks=["003", "020"]))
    chosen = choose(source.cases, 24)
    assert len(chosen) == len({c.id for c in chosen}) == 24
    assert sum(c.has_mask for c in chosen) == 2
    assert choose(source.cases[:5], 24) == sorted(source.cases[:5], key=lambda c: not c.has_mask)


def test_one_object_that_covers_everything_must_be_fixed(tmp_path: Path):
    for seed, name in enumerate("abc"):
        save(tmp_path / "images" / f"{name}.png", picture(seed, 24, 32, 3))
        save(tmp_path / "masks" / f"{name}.png", np.full((24, 32), 1, np.uint8))
    (problem,) = examine(open_source(tmp_path, instances=True)).fatal
    assert "all 3 masks are full: foreground covers every pixel" in problem.finding
    mask = np.full((24, 32), 1, np.uint8)
    mask[0, 0] = 0
    save(tmp_path / "masks" / "a.png", mask)
    assert not examine(open_source(tmp_path, instances=True)).fatal
