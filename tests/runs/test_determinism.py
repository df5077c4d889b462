"""The same seed on the same machine gives the same bytes; with another number of threads, the same numbers up to rounding."""

import csv
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hebbseg import Segmenter
from tests.tiny import bright_folder

SETTINGS = {
    "labelled": "3", "size": (32, 32), "features": (4, 8, 16), "updates": 8, "labelled_batch": 2, "unlabelled_batch": 2,
    "pretrain_epochs": 1, "pretrain_batch": 4, "method": "uamt", "seed": 5, "precision": "bf16-mixed",
}  # fmt: skip
FILES = ("model.safetensors", "metrics.csv", "history.csv", "split.json", "pretrained.safetensors", "summary.json")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bright_folder(tmp_path_factory.mktemp("data"), "abcdefghij")


def trained(data: Path, out: Path, *, threads: int = 1, **changes: object) -> Segmenter:
    torch.set_num_threads(threads)
    return Segmenter.train(str(data), out, quiet=True, **(SETTINGS | changes))


@pytest.fixture(scope="module")
def first(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "first"
    trained(data, out)
    return out


def test_the_same_seed_gives_the_same_bytes(data: Path, first: Path, tmp_path: Path) -> None:
    again = trained(data, tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (first / name).read_bytes(), name
    for image in sorted((data / "images").iterdir()):
        assert (Segmenter.load(first).predict(image) == again.predict(image)).all()
    trained(data, tmp_path / "other", seed=6)
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != (first / "model.safetensors").read_bytes()


def test_two_threads_change_the_rounding_only(data: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "one", tmp_path / "two"]
    for threads, out in enumerate(outs, start=1):
        trained(data, out, threads=threads, precision="32-true")  # bfloat16 rounds to three digits
    assert outs[0].joinpath("split.json").read_bytes() == outs[1].joinpath("split.json").read_bytes()
    ours, theirs = (load_file(out / "model.safetensors") for out in outs)
    for name, weights in ours.items():
        torch.testing.assert_close(theirs[name], weights, rtol=1e-3, atol=1e-4)
    losses = []
    for out in outs:
        with (out / "history.csv").open(encoding="utf-8", newline="") as file:
            losses.append([float(row["loss"]) for row in csv.DictReader(file) if row.get("loss")])
    assert losses[0] and losses[0] == pytest.approx(losses[1], rel=1e-3)
