import errno
import pickle
from pathlib import Path

import pytest
import torch

from hebbseg.errors import HebbsegError
from hebbseg.networks.model_file import load_model, save_model
from hebbseg.runs.checkpoint import load_checkpoint, save_checkpoint


def test_round_trips(tmp_path: Path) -> None:
    state = {"step": 3, "tensors": {"w": torch.arange(4.0)}, "rows": [{"loss": 0.5}]}
    save_checkpoint(tmp_path / "c.pt", state)
    back = load_checkpoint(tmp_path / "c.pt")
    assert (
        back["step"] == 3 and back["rows"] == [{"loss": 0.5}] and torch.equal(back["tensors"]["w"], torch.arange(4.0))
    )
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
    with pytest.raises(HebbsegError, match=r"the disk is full.*The one before it is whole"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match=r"nothing\.safetensors: there is no such file"):
        load_model(tmp_path / "nothing.safetensors")
