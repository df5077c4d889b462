"""Runs with another network than the UNet: both stages, the model file, and what is refused before data are read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.errors import HebbsegError
from hebbseg.networks.factory import default_options
from hebbseg.runs import train
from hebbseg.runs.preflight import check_settings
from hebbseg.segmenter import Segmenter
from tests.tiny import GLANDS, command

BASIC = "monai.networks.nets.BasicUNet"
DYN = "monai.networks.nets.DynUNet"
RES = "monai.networks.nets.SegResNet"
SMALL = {
    "size": (32, 32), "labelled": 4, "updates": 2, "labelled_batch": 2, "unlabelled_batch": 2, "pretrain_batch": 4,
    "pretrain_epochs": 1, "quiet": True,
}  # fmt: skip
TINY = {"network": BASIC, "features": (4, 4, 8, 8, 8)}
MINE = "tests.networks.test_factory.make_network"


def test_basic_unet_from_images_to_a_prediction(tmp_path: Path) -> None:
    trained = Segmenter.train(GLANDS, tmp_path / "run", method="fixmatch", **SMALL, **TINY)
    assert type(trained.network).__name__ == "BasicUNet"
    learned = json.loads((tmp_path / "run" / "pretrain.json").read_text())
    assert "down_1.convs.conv_0.conv" in learned and "final_conv" not in learned
    image = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    loaded = Segmenter.load(tmp_path / "run")
    assert torch.equal(loaded.probabilities(image), trained.probabilities(image))
    assert loaded.network_options["options"] == default_options(BASIC, TINY["features"])
    again = Segmenter.train(GLANDS, tmp_path / "again", method="fixmatch", **SMALL, **TINY)
    assert torch.equal(again.probabilities(image), trained.probabilities(image)), "the same seed"
    third = Segmenter.train(
        GLANDS, tmp_path / "third", init=str(tmp_path / "run" / "pretrained.safetensors"), method="cps", **SMALL, **TINY
    )
    assert third.predict(image).shape == (40, 50)
    with pytest.raises(HebbsegError, match=r"its weights are for another network \(network=.*BasicUNet"):
        Segmenter.train(GLANDS, tmp_path / "x", init=str(tmp_path / "run" / "pretrained.safetensors"), network=RES, **SMALL)


@pytest.mark.parametrize("network", [DYN, RES])
def test_other_networks_of_monai_train(network: str, tmp_path: Path) -> None:
    trained = Segmenter.train(GLANDS, tmp_path / "run", network=network, features=(8, 8, 8), method="supervised", **SMALL)
    assert Segmenter.load(tmp_path / "run").predict(np.zeros((20, 30, 3), np.uint8)).shape == (20, 30)
    assert type(trained.network).__name__ == network.rsplit(".", 1)[1]


def test_a_network_in_3d_with_auto(tmp_path: Path) -> None:
    options = {**SMALL, "size": "native", "patch": (32, 32, 32), "labelled": 2}
    Segmenter.train("phantom:atrium?n=8&size=32", tmp_path / "run", **options, **TINY, layers="conv_0*,down_*")
    described = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert described["method"] == "fixmatch"
    assert all(name.startswith(("conv_0", "down_")) for name in json.loads((tmp_path / "run/pretrain.json").read_text()))


def test_a_network_of_ones_own_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Segmenter.train(GLANDS, tmp_path / "run", network=MINE, method="supervised", **SMALL)
    with pytest.raises(HebbsegError, match=rf"'{MINE}'; only unet and monai.networks.nets.* --trust"):
        Segmenter.load(tmp_path / "run")
    image = np.zeros((20, 30, 3), np.uint8)
    np.save(tmp_path / "image.npy", image)
    assert Segmenter.load(tmp_path / "run", trust=True).predict(image).shape == (20, 30)
    assert command(monkeypatch, "train", "--resume", "-o", tmp_path / "run") == 2
    assert f"repeat --network {MINE}" in capsys.readouterr().err
    assert command(monkeypatch, "train", "--resume", "-o", tmp_path / "run", "--network", MINE) == 0
    arguments = ("evaluate", tmp_path / "run", GLANDS, "-o", tmp_path / "measured", "--json")
    assert command(monkeypatch, *arguments) == 2
    assert command(monkeypatch, *arguments, "--trust") == 0
    resumed = train.run(make_settings(GLANDS, _settings(network=MINE)), tmp_path / "run", resume=True)
    assert resumed.spatial_dims == 2


def _settings(**options: object) -> dict[str, object]:
    return {"method": "supervised", **{k: v for k, v in SMALL.items() if k != "quiet"}, **options}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "cct"}, "Method cct uses feature maps of the UNet's encoder"),
        ({"init": "vae"}, "init=vae trains the UNet's encoder and decoder"),
        ({"network": "monai.networks.nets.Nothing"}, "cannot be imported"),
        ({"norm": "batch"}, r"norm: only the UNet has this setting.*network_options"),
        ({"levels": "all"}, r"levels: only the UNet has this setting.*Set layers"),
        ({"network": MINE}, "features: only the UNet has this setting"),
        ({"network": "unet", "network_options": {"norm": "batch"}}, "the UNet has none"),
    ],
)
def test_what_cannot_work_is_said_before_data_are_read(options: dict, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(train, "list_cases", lambda *_, **__: pytest.fail("data were read"))
    settings = make_settings(GLANDS, TINY | options)
    with pytest.raises(HebbsegError, match=said):
        train.run(settings, tmp_path / "run", reporter=Quiet())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": (40, 40)}, r"DynUNet: it failed on images of shape \(2, 3, 40, 40\).*--size 32x32"),
        ({"size": "native", "patch": "none"}, r"DynUNet: it failed on images of shape \(2, 3, 61, 47\)"),
        ({"network_options": {"deep_supervision": True}}, "Turn off deep supervision"),
        ({"network_options": {"strides": [1, 2]}}, "DynUNet: building it with .* failed"),
    ],
)
def test_sizes_and_outputs_are_checked_on_listed_cases(options: dict, said: str, tmp_path: Path) -> None:
    settings = make_settings(GLANDS, {"network": DYN, "size": (32, 32), "features": (4, 4, 4, 4, 4)} | options)
    check_settings(settings)
    with pytest.raises(HebbsegError, match=said):
        train.run(settings, tmp_path / "run", reporter=Quiet())
    assert not (tmp_path / "run" / "run.json").exists()


def test_network_options_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["train", GLANDS, "-o", tmp_path / "run", "--network", BASIC, "--size", "32x32", "--updates", "2"]
    arguments += ["--set", "network_options.features=[4,4,4,4,4,4]", "--init", "random", "--set", "labelled_batch=2"]
    assert command(monkeypatch, *arguments) == 0
    assert Segmenter.load(tmp_path / "run").network_options["options"] == {"features": [4] * 6}
