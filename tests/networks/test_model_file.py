import contextlib
import errno
import json
import pickle
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hebbseg.data.preprocessing import Preprocessing
from hebbseg.errors import HebbsegError
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.model_file import load_model, save_model
from hebbseg.networks.unet import UNet
from hebbseg.pretraining.initializers import check_weights
from hebbseg.runs.checkpoint import load_checkpoint, save_checkpoint
from tests.data.trees import picture
from tests.tiny import tiny_segmenter


def test_round_trips(tmp_path: Path) -> None:
    state = {"step": 3, "tensors": {"w": torch.arange(4.0)}, "rows": [{"loss": 0.5}]}
    save_checkpoint(tmp_path / "c.pt", state)
    back = load_checkpoint(tmp_path / "c.pt")
    assert back["step"] == 3 and back["rows"] == [{"loss": 0.5}] and torch.equal(back["tensors"]["w"], torch.arange(4.0))
    save_model(tmp_path / "m.safetensors", {"w": torch.ones(2, 3).T}, {"a": [1]})
    weights, description = load_model(tmp_path / "m.safetensors")
    assert torch.equal(weights["w"], torch.ones(3, 2)) and description == {"a": [1]}


class Malicious:
    def __reduce__(self) -> tuple:
        return Path.touch, (Path("executed"),)


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, load in (("model.safetensors", load_model), ("checkpoint.pt", load_checkpoint)):
        Path(name).write_bytes(pickle.dumps(Malicious()))
        with pytest.raises(HebbsegError, match=name):
            load(Path(name))
    assert not Path("executed").exists()


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"step": 1})

    def full(state: object, to: Path) -> None:
        Path(to).write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(HebbsegError, match=r"the disk is full.*The previous one is intact"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match=r"nothing\.safetensors: no such file"):
        load_model(tmp_path / "nothing.safetensors")
    (tmp_path / "run.json").write_text('{"status": "running"}')
    with pytest.raises(HebbsegError, match=r"the run is not complete and has no model yet\. Continue it with --resume"):
        load_model(tmp_path / "nothing.safetensors")
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(HebbsegError, match=r"nothing\.safetensors: no such file"):
        load_model(tmp_path / "nothing.safetensors")


def test_a_model_of_version_0_1_still_loads(tmp_path: Path) -> None:
    options = {
        "spatial_dims": 2,
        "in_channels": 3,
        "out_channels": 2,
        "features": [4, 8],
        "dropout": None,
        "norm": "batch",
    }
    network = UNet(**options, seed=3)
    description = {
        "network": options,
        "preprocessing": Preprocessing(size=(16, 16), normalize="unit").describe(),
        "classes": [{"index": 0, "value": 0, "name": "background"}, {"index": 1, "value": 255, "name": "gland"}],
        "window": None,
        "tta": "none",
    }
    save_model(tmp_path / "m.safetensors", network.state_dict(), description)
    loaded = Predictor.load(tmp_path / "m.safetensors")
    assert (loaded.spatial_dims, loaded.in_channels) == (2, 3)
    assert all(torch.equal(a, b) for a, b in zip(loaded.network.parameters(), network.parameters(), strict=True))
    loaded.save(tmp_path / "now.safetensors")
    assert load_model(tmp_path / "now.safetensors")[1]["network"]["name"] == "unet"
    check_weights(tmp_path / "m.safetensors", loaded.network_options)
    other = loaded.network_options | {"options": {"features": [4, 4], "norm": "batch"}}
    with pytest.raises(HebbsegError, match=r"features=\[4, 8\].*features=\[4, 4\]"):
        check_weights(tmp_path / "m.safetensors", other)


@pytest.mark.parametrize("name", ["os.system", "monai.networks.nets.os", "untrusted.make"])
def test_a_name_in_a_model_executes_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("untrusted.py").write_text("import pathlib\npathlib.Path('executed').touch()\nmake = None\n")
    network = {
        "name": name,
        "spatial_dims": 2,
        "in_channels": 1,
        "out_channels": 2,
        "options": {"command": "touch executed"},
    }
    save_model(Path("m.safetensors"), {"w": torch.ones(1)}, {"network": network, "classes": []})
    with pytest.raises(HebbsegError, match=rf"m.safetensors: .*{name}"):
        Predictor.load("m.safetensors")
    assert not Path("executed").exists()


def test_weights_that_are_not_numbers_are_neither_saved_nor_loaded(tmp_path: Path) -> None:
    weights = {"a": torch.ones(3), "b": torch.tensor([1.0, float("nan"), float("inf")])}
    with pytest.raises(HebbsegError, match=r"m\.safetensors: 2 of 3 weights of b are NaN or infinite.*not written"):
        save_model(tmp_path / "m.safetensors", weights, {})
    assert not (tmp_path / "m.safetensors").exists()
    save_file(weights, tmp_path / "m.safetensors", metadata={"hebbseg": "{}"})
    with pytest.raises(HebbsegError, match=r"m\.safetensors: 2 of 3 weights of b are NaN or infinite"):
        load_model(tmp_path / "m.safetensors")


OPTIONS = {"features": [4, 8], "norm": "batch"}
UNET = {"name": "unet", "spatial_dims": 2, "in_channels": 3, "out_channels": 2, "options": OPTIONS}
CLASSES = [{"index": 0, "value": 0, "name": "background"}, {"index": 1, "value": 255, "name": "gland"}]
GOOD = {
    "network": UNET, "preprocessing": {"size": [16, 16], "normalize": "unit"}, "classes": CLASSES, "window": None, "tta": "none"
}  # fmt: skip


def unet(**options: object) -> dict:
    return {"network": UNET | {"options": OPTIONS | options}}


@pytest.mark.parametrize(
    "change",
    [
        unet(dropout=5), unet(dropout="x"), unet(features=[4.5, 8]), unet(features=[30_000, 30_000]), unet(features=[4] * 1000),
        unet(features=7), unet(seed=2**200), unet(norm="layer"), unet(surprise=1), {"network": []}, {"network": 7},
        {"network": UNET | {"name": 5}}, {"network": UNET | {"options": 5}}, {"network": UNET | {"in_channels": 10**9}},
        {"network": UNET | {"out_channels": -1}}, {"network": UNET | {"spatial_dims": "2"}}, {"network": UNET | {"more": 1}},
        {"classes": 5}, {"classes": [1, 2]}, {"classes": CLASSES[:1]}, {"classes": CLASSES[::-1]}, {"classes": {}},
        {"classes": [CLASSES[0], {"index": 1, "value": [1, 2]}]}, {"classes": [CLASSES[0], {"index": 1, "value": 10**30}]},
        *({"preprocessing": {"size": size, "normalize": "unit"}} for size in ([0, 16], [10**6] * 2, [float("nan")] * 2)),
        {"preprocessing": []}, {"window": [16]},
        {"window": "x"}, {"window": [8, 8, 8]}, {"tta": 3}, {"axes": "zzz"}, {"blend": []},
    ],
    ids=lambda change: str(change)[:60],
)  # fmt: skip
def test_hostile_metadata_are_refused_before_the_network_is_built(change: dict, tmp_path: Path) -> None:
    weights = UNet(in_channels=3, out_channels=2, features=(4, 8), norm="batch", seed=0).state_dict()
    save_file(weights, tmp_path / "good.safetensors", metadata={"hebbseg": json.dumps(GOOD)})
    assert Predictor.load(tmp_path / "good.safetensors").spatial_dims == 2
    save_file(weights, tmp_path / "bad.safetensors", metadata={"hebbseg": json.dumps(GOOD | change)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HebbsegError, match=r"bad\.safetensors: "):
        Predictor.load(tmp_path / "bad.safetensors")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
    with contextlib.suppress(HebbsegError):
        check_weights(tmp_path / "bad.safetensors", UNET)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "7", "{", "", '{"network": 1' + "0" * 5000 + "}"], ids=lambda t: t[:9])
def test_metadata_that_are_no_configuration(text: str, tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "bad.safetensors", metadata={"hebbseg": text})
    with pytest.raises(HebbsegError, match=r"bad\.safetensors: "):
        Predictor.load(tmp_path / "bad.safetensors")


def test_integer_weights_and_classes_of_one_value_are_refused(tmp_path: Path) -> None:
    segmenter = tiny_segmenter()
    segmenter.save(tmp_path / "m.safetensors")
    weights, description = load_model(tmp_path / "m.safetensors")
    save_model(tmp_path / "i.safetensors", {name: weight.long() for name, weight in weights.items()}, description)
    with pytest.raises(HebbsegError, match=r"has the type torch\.int64 in its weights"):
        Predictor.load(tmp_path / "i.safetensors")
    same = [info | {"value": 7} for info in description["classes"]]
    save_model(tmp_path / "c.safetensors", weights, description | {"classes": same})
    with pytest.raises(HebbsegError, match="two of the model's classes have the value 7"):
        Predictor.load(tmp_path / "c.safetensors")


def test_a_network_that_computes_nan_predicts_nothing(tmp_path: Path) -> None:
    segmenter = tiny_segmenter()
    with torch.no_grad():
        for weight in segmenter.network.parameters():
            weight.fill_(1e38)
    segmenter.save(tmp_path / "m.safetensors")  # its weights are finite
    with pytest.raises(HebbsegError, match="computes NaN or infinite values"):
        Predictor.load(tmp_path / "m.safetensors").predict(picture(0, 16, 16, 3))


def test_predictions_larger_than_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = picture(0, 16, 16, 3)
    window = tiny_segmenter(size=None, window=(8000, 8000))
    whole = tiny_segmenter(size=(12_000, 12_000))
    monkeypatch.setattr("hebbseg.inference.memory.machine_memory", lambda: 10**9)
    for segmenter in (window, whole):
        with pytest.raises(HebbsegError, match=r"needs at least \d+ GB of memory, and there are 1 GB"):
            segmenter.predict(image)
    assert tiny_segmenter().predict(image).shape == (16, 16)
