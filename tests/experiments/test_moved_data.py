"""A grid whose data lie elsewhere than when it was begun."""

import json
from pathlib import Path

import pytest

from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import Recipe
from hebbseg.experiments.scheduler import tasks_of
from hebbseg.experiments.tasks import Outcome, Task, carry_out
from tests.experiments.tinygrid import SETTINGS, tiny
from tests.tiny import bright_folder


def cut_run(out: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Ended before its test by a full memory; its data are in the folder ``mine`` of ``root``."""
    task = of_my_data(out, root)
    with monkeypatch.context() as patch:
        patch.setattr("hebbseg.runs.train._test", lambda *parts: (_ for _ in ()).throw(MemoryError("full")))
        assert carry_out(task).status == "failed"
    assert (task.folder / "checkpoint.pt").exists()
    return task


def of_my_data(out: Path, root: Path) -> Task:
    changes = {"labelled": "2", "checkpoint_every_s": 0.0}
    recipe = tiny(settings=SETTINGS | changes, axes={"seed": [3]}, baseline=None, data={"mine": {"source": "mine"}},
                  arms=[{"name": "S", "init": "random"}])  # fmt: skip
    (task,) = tasks_of(plan(Recipe(**recipe), [root]), out)
    return task


def test_a_run_that_was_cut_goes_on_where_its_data_have_been_moved_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bright_folder(tmp_path / "here" / "mine")
    cut = cut_run(tmp_path / "out", tmp_path / "here", monkeypatch)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = of_my_data(tmp_path / "out", tmp_path / "there")
    assert moved.id == cut.id
    assert carry_out(moved) == Outcome(status="done", seconds=pytest.approx(0, abs=99))
    settings = json.loads((moved.folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert settings["data"] == str(tmp_path / "there" / "mine")


def test_a_run_that_was_cut_does_not_go_on_with_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bright_folder(tmp_path / "here" / "mine")
    bright_folder(tmp_path / "there" / "mine", names="uvwxyz")
    cut_run(tmp_path / "out", tmp_path / "here", monkeypatch)
    outcome = carry_out(of_my_data(tmp_path / "out", tmp_path / "there"))
    assert outcome.status == "failed" and "another split" in outcome.message
