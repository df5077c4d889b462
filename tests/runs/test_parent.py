"""``hebbseg train --from RUN``: weights with the output layer, network and split of an earlier run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hebbseg.data.cases import ClassInfo
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.networks.factory import build_network
from hebbseg.networks.model_file import load_model
from hebbseg.runs.parent import grown_weights, match_classes
from hebbseg.segmenter import Segmenter
from tests.data.trees import save
from tests.tiny import bright_folder, command

SMALL = {"size": "16x16", "features": "4,8", "pretrain_epochs": 1, "labelled_batch": 2, "unlabelled_batch": 2}
QUICK = ("--updates", "2", "--set", "labelled_batch=2", "--set", "unlabelled_batch=2")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on six cases, two of them without a mask, beside its data."""
    root = tmp_path_factory.mktemp("parent")
    bright_folder(root / "data", masks="abcd")
    Segmenter.train(root / "data", root / "run", quiet=True, updates=2, norm="instance", **SMALL)
    return root


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, without the line breaks of the terminal."""
    out = capsys.readouterr()
    return " ".join((out.out + out.err).split())


def data_with(parent: Path, folder: Path, third: bool = False) -> Path:
    """The data of the parent with masks of e and f, and new cases g (with a mask) and h (without)."""
    bright_folder(folder, "abcdefgh", masks="abcdefg")
    for path in (parent / "data" / "images").iterdir():
        (folder / "images" / path.name).write_bytes(path.read_bytes())
    if third:
        mask = np.zeros((24, 32), np.uint8)
        mask[2:9, 5:12], mask[12:20, 20:30] = 255, 100
        save(folder / "masks" / "g.png", mask)
    return folder


def test_new_masks_continue_the_run(tmp_path: Path, parent: Path, monkeypatch, capsys):
    data, run = data_with(parent, tmp_path / "more"), tmp_path / "run2"
    assert command(monkeypatch, "train", data, "-o", run, "--from", parent / "run", *QUICK) == 0
    assert "The output layer is kept" in said(capsys)
    earlier, split = Split.load(parent / "run" / "split.json"), Split.load(run / "split.json")
    assert split.test == earlier.test != ()
    assert not set(split.test) & set(split.training.images)
    assert set(split.training.labelled) == set("abcdefg") - set(split.test) and split.training.unlabelled == ("h",)
    note = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert note["parent"] == str(parent / "run") == note["settings"]["from_run"]
    assert (note["settings"]["features"], note["settings"]["norm"]) == ([4, 8], "instance")
    # The weights that stage 2 started from, output layer included.
    started, _ = load_model(run / "pretrained.safetensors")
    trained, _ = load_model(parent / "run" / "model.safetensors")
    assert started.keys() == trained.keys() and all(torch.equal(started[name], trained[name]) for name in trained)
    assert not torch.equal(load_model(run / "model.safetensors")[0]["head.weight"], trained["head.weight"])


def test_an_interrupted_run_resumes_with_its_parent(tmp_path: Path, parent: Path, monkeypatch):
    data, run = data_with(parent, tmp_path / "more"), tmp_path / "run2"
    assert command(monkeypatch, "train", data, "-o", run, "--from", parent / "run", *QUICK) == 0
    first = load_model(run / "model.safetensors")[0]
    note = json.loads((run / "run.json").read_text(encoding="utf-8"))
    (run / "run.json").write_text(json.dumps(note | {"status": "running"}), encoding="utf-8")
    (run / "model.safetensors").unlink()
    assert command(monkeypatch, "train", "--resume", "-o", run) == 0
    again = load_model(run / "model.safetensors")[0]
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_more_classes_grow_the_output_layer(tmp_path: Path, parent: Path, capsys):
    data = data_with(parent, tmp_path / "more", third=True)
    Segmenter.train(
        data, tmp_path / "run2", from_run=parent / "run", updates=2, labelled_batch=2, unlabelled_batch=2,
        label_map="background=0;scar=100;foreground=255",
    )  # fmt: skip
    assert "grows by scar (100); the weights of background (0), foreground (255) are kept" in said(capsys)
    started, trained = (
        load_model(tmp_path / "run2" / "pretrained.safetensors")[0],
        load_model(parent / "run" / "model.safetensors")[0],
    )
    for name in ("head.weight", "head.bias"):
        assert torch.equal(started[name][[0, 2]], trained[name]), "old classes keep their weights at their new index"
    assert started["head.weight"].shape[0] == 3 and started["head.weight"][1].abs().sum() > 0
    assert torch.equal(started["encoder.level0.conv1.weight"], trained["encoder.level0.conv1.weight"])


def test_other_classes_and_settings_are_refused(tmp_path: Path, parent: Path, monkeypatch, capsys):
    data = data_with(parent, tmp_path / "more")

    def error(*arguments: str) -> str:
        assert command(monkeypatch, "train", data, "-o", tmp_path / "run2", *arguments) == 2
        return said(capsys)

    continued = ("--from", str(parent / "run"))
    assert "the split comes" in error(*continued, "--folds", "3")
    assert "the initial weights" in error(*continued, "--init", "random")
    assert "that run has features=4,8" in error(*continued, "--features", "4,8,16")
    assert "that run has borders=False" in error(*continued, "--borders")
    assert "that run has size=16x16" in error(*continued, "--size", "20x16")
    assert "run.json, split.json, model.safetensors missing" in error("--from", str(tmp_path / "more"))
    (tmp_path / "half").mkdir()
    for name in ("run.json", "split.json"):
        (tmp_path / "half" / name).write_bytes((parent / "run" / name).read_bytes())
    assert "not complete" in error("--from", str(tmp_path / "half"))
    assert not (tmp_path / "run2").exists()


def test_init_says_that_the_output_layer_is_new(tmp_path: Path, parent: Path, monkeypatch, capsys):
    model = parent / "run" / "model.safetensors"
    small = ("--size", "16x16", "--features", "4,8", "--set", "norm=instance", "--method", "supervised")
    assert command(monkeypatch, "train", parent / "data", "-o", tmp_path / "r", "--init", model, *small, *QUICK) == 0
    assert "the output layer is new; its weights are not used. --from" in said(capsys)


def infos(**values: int) -> list[ClassInfo]:
    return [ClassInfo(index=i, value=value, name=name) for i, (name, value) in enumerate(values.items())]


def test_classes_are_matched_by_name_or_else_by_value():
    old = infos(background=0, tumor=1)
    assert match_classes(old, infos(background=0, tumor=255), run="r", data="d") == {0: 0, 1: 1}
    assert match_classes(old, infos(background=0, edema=1, tumor=2), run="r", data="d") == {0: 0, 1: 2}
    assert match_classes(old, infos(background=0, lesion=1, other=2), run="r", data="d") == {0: 0, 1: 1}
    with pytest.raises(HebbsegError, match=r"tumor \(1\) is missing.*--label-map 'background=0;tumor=1'"):
        match_classes(old, infos(background=0, lesion=2), run="r", data="d")


@pytest.mark.parametrize("name", ["unet", "monai.networks.nets.BasicUNet"])
def test_the_axis_of_classes_is_found_in_other_networks(name: str):
    options = {"name": name, "spatial_dims": 2, "in_channels": 1, "options": {"features": [4] * (2 if name == "unet" else 6)}}
    old, new = (build_network(**options, out_channels=k, seed=k).eval() for k in (2, 4))
    new.load_state_dict(grown_weights({**options, "out_channels": 4}, new.state_dict(), old.state_dict(), {0: 0, 1: 3}))
    image = torch.randn(1, 1, 32, 32)
    with torch.no_grad():
        assert torch.allclose(new(image)[:, [0, 3]], old(image), atol=1e-5)
    with pytest.raises(HebbsegError, match="in the earlier model"):
        grown_weights({**options, "out_channels": 4}, new.state_dict(), {}, {0: 0})


def test_a_run_with_borders_continues_with_the_border(tmp_path: Path, monkeypatch, capsys):
    data = bright_folder(tmp_path / "data")
    small = ("--size", "32x32", "--features", "4,8", "--init", "random", "--method", "supervised", "--borders")
    assert command(monkeypatch, "train", data, "-o", tmp_path / "run", *small, *QUICK) == 0
    still = ("--set", "learning_rate=1e-12", "--set", "weight_decay=0", "--set", "ema=0", "--method", "supervised")
    first = ("train", data, "-o", tmp_path / "run2", "--from", tmp_path / "run", *still, *QUICK)
    assert command(monkeypatch, *first) == 0, said(capsys)
    old, new = (load_model(tmp_path / run / "model.safetensors")[0] for run in ("run", "run2"))
    assert {name: tuple(value.shape) for name, value in old.items()} == {name: tuple(v.shape) for name, v in new.items()}
    for name, value in old.items():
        torch.testing.assert_close(new[name], value, atol=1e-6, rtol=0)
