"""Run folders and models of version 0.1 still work."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hebbseg import Segmenter
from hebbseg.config import OLD_NAMES, make_settings, settings_of_run
from hebbseg.training import loop
from hebbseg.training.interrupt import Interrupted

DATA = "phantom:glands?n=12&size=32"
OPTIONS = {
    "method": "unimatch", "method_options": {"dice_gated": True}, "normalize": "unit", "center": False, "standardize": False,
    "optimizer": "sgd", "pretrain_optimizer": "adam", "labelled": "4", "size": (32, 32), "features": (4, 8), "updates": 4,
    "labelled_batch": 2, "pretrain_epochs": 1, "checkpoint_every_s": 0.0,
}  # fmt: skip


def train(out: Path, *, resume: bool = False) -> Segmenter:
    return Segmenter.train(DATA, out, quiet=True, resume=resume, **OPTIONS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "new"
    train(out)
    return out


def with_old_names(run_json: Path) -> dict:
    """Rewrites run.json with the setting names of version 0.1; returns its settings."""
    run = json.loads(run_json.read_text(encoding="utf-8"))
    settings = run["settings"]
    for old, new in OLD_NAMES.items():
        settings[old] = settings.pop(new)
    settings["method_options"] = {"earned": settings["method_options"].pop("dice_gated"), **settings["method_options"]}
    run_json.write_text(json.dumps(run), encoding="utf-8")
    return settings


def test_settings_under_their_old_names_are_the_same_settings(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run.json"
    copy.write_text((finished / "run.json").read_text(encoding="utf-8"), encoding="utf-8")
    stored = with_old_names(copy)
    assert {"normalise", "centre", "standardise", "optimiser", "pretrain_optimiser"} <= stored.keys()
    assert stored["method_options"] == {"earned": True}
    assert settings_of_run(stored) == make_settings(DATA, OPTIONS)


def test_a_run_of_version_0_1_resumes_to_the_same_weights(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, updates = tmp_path / "old", []

    def stop_after_two(*_: object) -> None:
        updates.append(1)
        if len(updates) == 3:
            raise Interrupted("Stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_refuse_divergence", stop_after_two)
        with pytest.raises(Interrupted):
            train(out)
    assert (out / "checkpoint.pt").exists()
    with_old_names(out / "run.json")
    train(out, resume=True)
    new, old = (load_file(folder / "model.safetensors") for folder in (finished, out))
    assert all(torch.equal(value, old[name]) for name, value in new.items())


def test_a_model_of_version_0_1_loads_and_predicts_the_same(finished: Path, tmp_path: Path) -> None:
    model = finished / "model.safetensors"
    with safe_open(model, framework="pt") as file:
        description = json.loads(file.metadata()["hebbseg"])
    preprocessing = description.pop("preprocessing")
    preprocessing["normalise"] = preprocessing.pop("normalize")
    description["preparation"] = preprocessing
    network = description["network"]
    assert network.pop("name") == "unet"
    description["network"] = network.pop("options") | network
    save_file(load_file(model), tmp_path / "old.safetensors", metadata={"hebbseg": json.dumps(description)})
    old, new = Segmenter.load(tmp_path / "old.safetensors"), Segmenter.load(model)
    assert old.preprocessing == new.preprocessing and old.network_options == new.network_options
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    assert torch.equal(old.probabilities(image), new.probabilities(image))
