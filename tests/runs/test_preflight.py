"""What is wrong with a run is said before its images are read, and nothing is left behind."""

from pathlib import Path

import numpy as np
import pytest

from hebbseg import Segmenter
from hebbseg.atomic_files import refuse_unwritable
from hebbseg.config import make_settings
from hebbseg.data.sources import open_source
from hebbseg.errors import HebbsegError
from hebbseg.runs import dataset as opening
from hebbseg.runs.train import pretrain_only
from tests.data.trees import save
from tests.tiny import TINY, bright_folder, command

GIVEN = {"size": (32, 32), "features": (4, 8), "updates": 2, "labelled_batch": 2, "pretrain_epochs": 1}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six cases with masks that nobody may read."""
    monkeypatch.setattr(opening, "examine", lambda *_, **__: pytest.fail("images were read"))
    return bright_folder(tmp_path / "data")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labelled": "1.5"}, r"labelled='1\.5'.*such as 10% or 0\.1"),
        ({"labelled": "ten"}, r"labelled='ten'.*such as 10% or 0\.1.*such as 8\)\.$"),
        ({"labelled": "50"}, "labelled=50, but the training set has 5 cases"),
        ({"labelled": "0"}, "labelled=0: no training case has a usable mask"),
        ({"levels": "7-9"}, "levels='7-9': a network of 2 levels has none"),
        ({"levels": "3-2"}, "levels='3-2'"),
        ({"test": "official"}, "test='official', but the data set has no published test set"),
        ({"test": "offical"}, "test='offical': allowed are auto, official"),
        ({"test": "1.5"}, "test=1.5: allowed is a fraction"),
        ({"folds": 3, "fold": 3}, "folds=3, fold=3: allowed"),
        ({"folds": 1}, "folds=1"),
        ({"folds": 30}, "Use folds=6 or fewer"),
        ({"fold": 2}, "fold=2 is given without folds"),
        ({"accelerator": "gpuu"}, "accelerator='gpuu'.*'cuda'"),
        ({"dropout": "1.5"}, "dropout='1.5'.*less than 1"),
        ({"dropout": "-0.1"}, "dropout='-0.1'.*greater than or equal to 0"),
        ({"dropout": "much"}, "dropout='much'"),
        ({"dropout": "nan"}, "dropout='nan'.*finite"),
        ({"learning_rate": "inf"}, "learning_rate='inf'.*finite"),
        ({"mask_threshold": "nan"}, "mask_threshold='nan'.*finite"),
        ({"features": "16"}, "features=.*at least 2"),
        ({"features": "0,8"}, "Option features=0"),
        ({"size": "0x32"}, "Option size=0"),
        ({"size": "32x32x32"}, "size=32x32x32: 3 numbers, but the images of data are 2D"),
        ({"size": "native", "patch": (8, 8, 8)}, "patch=8x8x8: 3 numbers"),
    ],
)
def test_wrong_options_are_named_before_images_are_read(options: dict, words: str, data: Path, tmp_path: Path):
    with pytest.raises(HebbsegError, match=words):
        Segmenter.train(data, tmp_path / "run", quiet=True, **(GIVEN | options))
    assert not (tmp_path / "run").exists()


def test_stage_1_draws_its_split_first_too(data: Path, tmp_path: Path):
    with pytest.raises(HebbsegError, match="Use folds=6 or fewer"):
        pretrain_only(make_settings(data, GIVEN | {"folds": 30}), tmp_path / "run")
    weights = tmp_path / "some.safetensors"
    weights.write_bytes(b"")
    with pytest.raises(HebbsegError, match=r"stage 1 does not start from a file of weights"):
        pretrain_only(make_settings(data, GIVEN | {"init": str(weights)}), tmp_path / "run")


def test_levels_do_not_matter_where_nothing_learns_in_stage_1():
    assert make_settings("x", {"features": (4, 8), "levels": "5", "init": "random"}).pretrain.levels == "5"
    with pytest.raises(HebbsegError, match="levels='5'"):
        make_settings("x", {"features": (4, 8), "levels": "5", "init": "random-rescaled"})


def test_a_folder_that_is_taken_is_said_before_images_are_read(data: Path, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(HebbsegError, match="is not empty and contains no run"):
        Segmenter.train(data, tmp_path / "run", quiet=True, **GIVEN)
    (tmp_path / "run" / "run.json").write_text('{"status": "done"}')
    with pytest.raises(HebbsegError, match=r"already contains a run \(done\)"):
        Segmenter.train(data, tmp_path / "run", quiet=True, **GIVEN)


def test_an_accelerator_that_is_not_there(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *TINY, "--accelerator", "cuda") == 2
    err = capsys.readouterr().err
    assert "accelerator='cuda', devices=1: not available on this machine" in err and "Traceback" not in err


@pytest.mark.parametrize("place", ["a_file/run", "a_file/deep/run", "a_file"])
def test_nothing_can_be_written_below_a_file(place: str, data: Path, tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "a_file").write_text("")
    for arguments in (["train", data, *TINY], ["pretrain", data], ["predict", "model", data]):
        assert command(monkeypatch, *arguments, "-o", tmp_path / place) == 2
        err = capsys.readouterr().err
        assert "a_file is a file" in err and "Traceback" not in err
    with pytest.raises(HebbsegError, match="a_file is a file"):
        Segmenter.train(data, tmp_path / place, quiet=True, **GIVEN)


def test_pages_and_sheets_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    data = bright_folder(tmp_path / "data")
    (tmp_path / "a_file").write_text("")
    below = tmp_path / "a_file" / "x"
    for arguments in (
        ["check", data, "--sheet", below],
        ["report", data, "-o", below],
        ["report", data, "--tables", below],
    ):
        assert command(monkeypatch, *arguments) == 2
        out, err = capsys.readouterr()
        assert "a_file is a file" in err and "Traceback" not in err and out == ""


def test_a_place_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    refuse_unwritable(tmp_path / "new" / "run")
    assert not list(tmp_path.iterdir())

    def refused(**options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    with pytest.raises(HebbsegError, match=r"run: the folder is not writable \(Read-only file system\)"):
        refuse_unwritable(tmp_path / "run")


def test_a_damaged_npz_is_left_out_and_said(tmp_path: Path):
    for name in "abc":
        np.savez(tmp_path / f"{name}.npz", image=np.zeros((8, 8), np.uint8), label=np.eye(8, dtype=np.uint8))
    whole = (tmp_path / "b.npz").read_bytes()
    (tmp_path / "b.npz").write_bytes(whole[: len(whole) // 2])
    source = open_source(tmp_path)
    assert [case.has_mask for case in source.cases] == [True, False, True]
    with pytest.raises(HebbsegError, match=r"b\.npz: truncated, damaged"):
        source.image(source.cases[1])


def test_masks_that_belong_to_no_image_are_named_where_masks_are_missing(tmp_path: Path):
    data = bright_folder(tmp_path / "data")
    for mask in (data / "masks").iterdir():
        mask.rename(mask.with_name(f"drawn{ord(mask.stem)}.png"))
    with pytest.raises(
        HebbsegError, match=r"(?s)none of the 6 cases has a mask.*6 problems.*drawn\d+\.png: mask with no matching image"
    ):
        Segmenter.train(data, tmp_path / "run", quiet=True, **GIVEN)


def test_wide_soft_edges_are_told_of_the_threshold(tmp_path: Path):
    data = bright_folder(tmp_path / "data", names="a")
    fading = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (24, 1))
    save(data / "masks" / "a.png", fading)
    with pytest.raises(HebbsegError, match=r"--instances.*--mask-threshold 128"):
        _ = open_source(data).classes
