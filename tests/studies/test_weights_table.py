"""What fine-tuning does to the weights: measures that can be told by hand, and layers in their places."""

import csv
import sys
from pathlib import Path

import pytest
import torch

from studies import weights
from tests.experiments.tinygrid import InThisProcess, run_all, tiny_tasks


def test_filters_that_keep_their_direction_are_kept_and_move_by_their_length() -> None:
    old = torch.eye(3, 5, dtype=torch.float64)
    found = weights.measure(old, 1.5 * old)
    assert found["moved"] == pytest.approx(0.5) and found["kept"] == pytest.approx(1.0)
    assert found["rank_before"] == found["rank_after"] == pytest.approx(1.0)
    assert found["alike_before"] == found["alike_after"] == 0


def test_filters_that_become_one_lose_their_rank() -> None:
    old, new = torch.eye(2, 4, dtype=torch.float64), torch.ones(2, 4, dtype=torch.float64)
    found = weights.measure(old, new)
    assert found["rank_after"] == pytest.approx(0.5, abs=1e-6) and found["alike_after"] == pytest.approx(1.0)
    assert found["kept"] == pytest.approx(0.5)


def test_filters_of_transposed_layers_belong_to_output_channels() -> None:
    bank = torch.arange(24.0).reshape(2, 3, 2, 2)
    assert torch.equal(weights.as_filters(bank, transposed=True)[1], bank[:, 1].flatten().double())
    assert weights.place("decoder.level1.up") == "up 1" and weights.place("encoder.level0.conv2") == "encoder 0"


def test_every_convolution_of_every_run_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [{"name": "Supervised", "init": "random"}, {"name": "Hebbian SWTA", "init": "hebbian", "levels": "all"}]
    run_all(tiny_tasks(tmp_path / "out", arms=arms, axes={"labelled": ["4"], "seed": [0, 1]}), InThisProcess())
    monkeypatch.setattr(sys, "argv", ["weights", str(tmp_path / "w.csv"), str(tmp_path / "out"), "--labelled", "4"])
    weights.main()
    rows = list(csv.DictReader((tmp_path / "w.csv").open()))
    layers = {row["layer"] for row in rows}
    assert len(layers) == 7 and "decoder.level0.up" in layers  # two levels: 4 + 2 convolutions and a transposed one
    assert len(rows) == 4 * len(layers) and {row["arm"] for row in rows} == {"scratch", "hebbian"}
    assert all(float(row["moved"]) > 0 for row in rows)
    assert "encoder 0" in capsys.readouterr().out
