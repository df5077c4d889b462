"""hebbseg plan: the table, and the JSON other programs read."""

import json
import shlex
from pathlib import Path

import pytest

from tests.runs.test_planned import wide_folder
from tests.tiny import bright_folder, command

NETWORK = ("--features", "4,8", "--set", "pretrain_max_batches=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wide_folder(tmp_path_factory.mktemp("plan") / "data")


def test_the_plan_as_json(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--labelled", "2", "--size", "32x48", *NETWORK, "--set", "labelled_batch=2")
    assert command(monkeypatch, "plan", data, "--json", *options) == 0
    out = json.loads(capsys.readouterr().out)
    assert out.keys() == {"data", "fingerprint", "choices", "resampled_to", "method", "time", "time_budgets"}
    fingerprint, choices = out["fingerprint"], out["choices"]
    assert (fingerprint["images"], fingerprint["labelled"], fingerprint["test"]) == (8, 2, 2)
    assert fingerprint["median_size"] == [140, 230]
    assert choices.keys() == {
        "size", "patch", "spacing", "features", "labelled_batch", "unlabelled_batch", "pretrain_batch", "updates", "precision",
    }  # fmt: skip
    assert all(choice.keys() == {"value", "reason", "given"} and choice["reason"] for choice in choices.values())
    assert {name for name, choice in choices.items() if choice["given"]} == {"size", "features", "labelled_batch"}
    assert choices["size"]["value"] == [32, 48]
    time = out["time"]
    assert time.keys() == {"reading_s", "stage1_s", "update_s", "stage2_s", "test_s", "total_s", "updates"}
    assert time["updates"] == 2000 and time["total_s"] > time["stage2_s"] > time["update_s"] > 0
    assert [budget["budget_s"] for budget in out["time_budgets"]] == [300, 600, 1800]
    updates = [budget["updates"] for budget in out["time_budgets"]]
    assert updates == sorted(updates) and updates[-1] > updates[0]


def test_the_plan_as_text(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "plan", data, "--no-timing") == 0
    out = capsys.readouterr().out
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["data", "split", "size", "patch", "spacing", "features", "batch", "updates", "precision", "method"]
    assert "8 images of 140×230 pixels" in out and "128x208" in out and "keep a Dice of" in out
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_the_next_command_has_the_options_and_unreadable_images_are_reported(tmp_path: Path, monkeypatch, capsys) -> None:
    data = bright_folder(tmp_path / "my data", "abcd", masks="abc")
    (data / "images" / "broken.png").write_bytes(b"no image")
    options = ("--size", "16", "--features", "4,8", "--init", "random", "--group", "^(.)")
    assert command(monkeypatch, "plan", data, *options) == 0
    said = capsys.readouterr()
    following = shlex.split(said.out.splitlines()[-1].removeprefix("next"))
    assert following == ["hebbseg", "train", str(data), *options, "-o", "run1"]
    assert "left out: " in said.err and "broken.png" in said.err
    assert "4 images of " in said.out, "images that cannot be read are not counted"


def test_a_given_budget_replaces_the_usual_ones(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--labelled", "1", "--size", "16", *NETWORK, "--method", "supervised", "--init", "random")
    assert command(monkeypatch, "plan", data, "--time-budget", "1h", *options) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.strip().startswith("--time-budget")]
    assert len(lines) == 1 and "--time-budget 60m" in lines[0]
    assert "on this machine" in out and "s per update" in out
    assert "as many as fit" in out and "into the time budget of 3600 s" in out
    fitting = int(lines[0].split("about ")[1].split()[0])
    assert fitting > 2000, "not the default number of updates"
    assert command(monkeypatch, "plan", data, "--time-budget", "1h", "--updates", "9", *options) == 0
    assert "--time-budget 60m: about 9 updates" in capsys.readouterr().out


def test_typos_are_errors(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "plan", data, "--method", "unimatsch") == 2
    assert "Did you mean 'unimatch'" in capsys.readouterr().err
    assert command(monkeypatch, "plan", data, "--size", "32", "--set", "size=64") == 2
    assert "set twice" in capsys.readouterr().err


def test_images_without_masks_have_a_plan_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = wide_folder(tmp_path / "data", "abc") / "images"
    assert command(monkeypatch, "plan", f"folder:{images}", "--labelled", "0") == 0
    out = capsys.readouterr().out
    assert "no labelled mask" in out and "hebbseg pretrain" in out
