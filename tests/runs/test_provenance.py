"""Weights of another run: which images they have seen, and whether they are for this network."""

import json
import shutil
from pathlib import Path

import pytest

from hebbseg import Segmenter
from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.errors import HebbsegError
from hebbseg.runs.evaluate import trained_on
from hebbseg.runs.provenance import images_seen
from hebbseg.runs.train import pretrain_only, run
from tests.tiny import bright_folder

TINY = {"size": (32, 32), "features": (4, 8), "updates": 1, "labelled_batch": 2, "pretrain_epochs": 1}


class Listening(Quiet):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, text: str) -> None:
        self.heard.append(text)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bright_folder(tmp_path_factory.mktemp("seen") / "data")


@pytest.fixture(scope="module")
def stage1(data: Path) -> Path:
    """Has seen all six images, as one does who has no masks yet."""
    return pretrain_only(make_settings(data, TINY | {"test": "0"}), data.parent / "stage1")


def trained(data: Path, out: Path, **options) -> tuple[dict, dict, list[str]]:
    """run.json, summary.json and what was said."""
    listening = Listening()
    run(make_settings(data, TINY | options), out, reporter=listening)
    run_json, summary = (json.loads((out / f"{name}.json").read_text(encoding="utf-8")) for name in ("run", "summary"))
    return run_json, summary, [text for text in listening.heard if text.startswith("warning")]


def test_test_cases_that_the_first_weights_have_seen_are_said_everywhere(data: Path, stage1: Path, tmp_path: Path):
    described, summary, heard = trained(data, tmp_path / "run", init=str(stage1), test="0.5")
    assert "3 of the 3 cases have names of images" in described["warning"] and "(0 of them with" in described["warning"]
    assert summary["warning"] == described["warning"] and heard == [f"warning: {described['warning']}"]
    assert described["init_file"] == str(stage1)


def test_a_finished_model_has_seen_masks_and_what_its_own_first_weights_have(data: Path, stage1: Path, tmp_path: Path):
    trained(data, tmp_path / "first", init=str(stage1), test="0.5")
    with_mask, without = images_seen(tmp_path / "first" / "model.safetensors")
    assert len(with_mask) == len(without) == 3 and with_mask | without == set("abcdef")
    described, _, _ = trained(data, tmp_path / "second", init=str(tmp_path / "first" / "model.safetensors"), seed=1)
    assert "1 of the 1 cases" in described["warning"]
    # Of the run's own stage 1 the masks are not seen.
    assert images_seen(tmp_path / "first" / "pretrained.safetensors") == (frozenset(), frozenset("abcdef"))


def test_no_warning_where_the_test_cases_are_new(data: Path, stage1: Path, tmp_path: Path):
    clean = pretrain_only(make_settings(data, TINY), tmp_path / "clean")
    described, summary, heard = trained(data, tmp_path / "run", init=str(clean))
    assert "warning" not in described and "warning" not in summary and not heard
    # Nobody knows what weights without their run have seen.
    alone = shutil.copy(stage1, tmp_path / "alone.safetensors")
    assert images_seen(Path(alone)) == (frozenset(), frozenset())


def test_a_split_beside_the_weights_that_is_not_theirs_is_said_and_does_not_stop_a_run(data, stage1, tmp_path):
    (tmp_path / "odd").mkdir()
    weights = shutil.copy(stage1, tmp_path / "odd" / "weights.safetensors")
    (tmp_path / "odd" / "split.json").write_text("{}")
    described, _, _ = trained(data, tmp_path / "run", init=weights)
    assert "are unknown" in described["warning"] and "not a valid split file" in described["warning"]


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        ({"features": (6, 8)}, r"features=\[4, 8\]", r"features=\[6, 8\]"),
        # All that a network of fewer levels needs is there, and would fit.
        ({"features": (4, 8), "of": (4, 8, 8)}, r"features=\[4, 8, 8\]", r"features=\[4, 8\]"),
        ({"norm": "none"}, "norm=group", "norm=none"),
        ({"norm": "instance"}, "norm=group", "norm=instance"),
        ({"data": "phantom:pupils?n=24&size=32"}, "in_channels=3", "in_channels=1"),
        ({"data": "phantom:atrium?n=4&size=32"}, "spatial_dims=2", "spatial_dims=3"),
    ],
)
def test_weights_of_another_network_are_refused_and_both_are_named(
    options: dict, theirs: str, ours: str, data: Path, stage1: Path, tmp_path: Path
):
    given = TINY | options | {"size": "native"}
    of, chosen = given.pop("of", None), given.pop("data", data)
    weights = pretrain_only(make_settings(data, TINY | {"features": of}), tmp_path / "deep") if of else stage1
    with pytest.raises(HebbsegError, match=f"another network .*{theirs}.* than this run's .*{ours}"):
        Segmenter.train(chosen, tmp_path / "run", quiet=True, init=str(weights), **given)


def test_runs_that_began_with_each_other_are_looked_at_once(data: Path, tmp_path: Path):
    for name, other in ("ab", "ba"):
        trained(data, tmp_path / name)
        file = tmp_path / name / "run.json"
        described = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps(described | {"init_file": str(tmp_path / other / "model.safetensors")}))
    with_mask, without = images_seen(tmp_path / "a")
    assert with_mask and not without & with_mask


def test_an_evaluation_survives_a_damaged_split_of_the_model(data: Path, tmp_path: Path):
    trained(data, tmp_path / "run")
    (tmp_path / "run" / "split.json").write_text("{}")
    assert "are unknown" in str(trained_on(tmp_path / "run", ["a"]))
