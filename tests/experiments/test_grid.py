"""Grids: shared weights of stage 1, what is skipped and resumed, failures, probes, and the command."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hebbseg import Segmenter, methods
from hebbseg.config import FinetuneSettings, PretrainSettings, Settings
from hebbseg.experiments.scheduler import RETRIES, left_of
from hebbseg.experiments.tasks import Outcome, Task, carry_out
from hebbseg.training.interrupt import Interrupted
from tests.experiments.tinygrid import SETTINGS, InThisProcess, run_all, tiny_tasks
from tests.tiny import command

ONE = {"labelled": ["4"], "seed": [3]}


def runs(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if task.kind != "stage1"]


@pytest.mark.parametrize("init", ["hebbian", "vae", "superpix"])
def test_shared_weights_end_in_the_weights_of_a_run_that_does_its_own_stage_1(tmp_path: Path, init: str) -> None:
    methods = ("supervised", "cps") if init == "hebbian" else ("supervised",)
    arms = [{"name": method, "init": init, "method": method} for method in methods]
    tasks = tiny_tasks(tmp_path / "grid", axes=ONE, arms=arms, baseline=None)
    assert [task.kind for task in tasks].count("stage1") == (2 if init == "hebbian" else 1)
    result = run_all(tasks, InThisProcess())
    assert not result.failed and result.now == len(tasks)
    for task in runs(tasks):
        alone = tmp_path / task.settings.finetune.method
        options = task.settings.flat()
        Segmenter.train(options.pop("data"), alone, quiet=True, **options)
        ours, theirs = load_file(task.folder / "model.safetensors"), load_file(alone / "model.safetensors")
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        same = [
            "history.csv",
            "metrics.csv",
            "pretrained.safetensors",
            *(["pretrain.json"] if init == "hebbian" else []),
        ]
        for name in same:
            assert (task.folder / name).read_bytes() == (alone / name).read_bytes(), name


@pytest.mark.parametrize("name, kept", [("weight_decay", set()), ("temperature", {"random", "random-rescaled"})])
def test_a_default_that_changed_makes_another_run_of_all_that_read_it(
    name: str, kept: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = [{"name": init, "init": init} for init in ("random", "random-rescaled", "hebbian")]
    before = {task.id: task.settings.pretrain.init for task in runs(tiny_tasks(tmp_path, arms=arms, baseline=None))}
    section = {"weight_decay": FinetuneSettings, "temperature": PretrainSettings}[name]
    monkeypatch.setattr(section.model_fields[name], "default", 0.5)
    try:
        section.model_rebuild(force=True)
        Settings.model_rebuild(force=True)
        same = set(before) & {task.id for task in tiny_tasks(tmp_path, arms=arms, baseline=None)}
    finally:
        monkeypatch.undo()
        section.model_rebuild(force=True)
        Settings.model_rebuild(force=True)
    assert same == {identity for identity, init in before.items() if init in kept}


def test_what_auto_stands_for_is_part_of_a_run_and_not_of_its_stage_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = [{"name": method, "init": "hebbian", "method": method} for method in ("auto", "supervised")]
    before = tiny_tasks(tmp_path, arms=arms, baseline=None)
    monkeypatch.setitem(methods.AUTO_OPTIONS, "dice_gated", False)
    changed = {task.id for task in before} - {task.id for task in tiny_tasks(tmp_path, arms=arms, baseline=None)}
    assert changed == {task.id for task in runs(before) if task.settings.finetune.method == "auto"}


def test_a_probe_does_not_care_what_auto_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = {"kind": "probe", "table": "probe", "arms": [{"name": "Hebbian", "init": "hebbian"}], "baseline": None}
    before = {task.id for task in tiny_tasks(tmp_path, **probe)}
    monkeypatch.setitem(methods.AUTO_OPTIONS, "dice_gated", False)
    assert {task.id for task in tiny_tasks(tmp_path, **probe)} == before


def test_what_is_done_is_skipped_and_the_note_is_in_run_json(tmp_path: Path) -> None:
    tasks = tiny_tasks(tmp_path, axes=ONE)
    assert run_all(tasks, InThisProcess()).now == 3
    note = json.loads((tasks[-1].folder / "run.json").read_text(encoding="utf-8"))["grid"]
    assert note == {
        "recipe": "tiny", "title": "", "kind": "train", "table": "sota", "dataset": "glands", "arm": "Hebbian",
        "gain_over": "Supervised", "baseline": "Supervised", "axes": {"labelled": "4", "seed": 3}, "order": 1,
    }  # fmt: skip
    again = InThisProcess()
    result = run_all(tasks, again)
    assert again.begun == [] and again.closed and result.before == 2
    more = tiny_tasks(tmp_path, axes={"labelled": ["4"], "seed": [3, 4]})
    assert {task.settings.seed for task in left_of(more)} == {4}


def test_a_run_that_another_recipe_has_done_counts_for_the_one_that_asks_now(tmp_path: Path) -> None:
    run_all(tiny_tasks(tmp_path, axes=ONE), InThisProcess())
    tasks = tiny_tasks(tmp_path, axes=ONE, name="other", baseline=None)
    again = InThisProcess()
    metrics = {task.id: (task.folder / "metrics.csv").read_bytes() for task in tasks if task.kind == "train"}
    run_all(tasks, again)
    assert again.begun == []
    for task in tasks:
        if task.kind == "train":
            description = json.loads((task.folder / "run.json").read_text(encoding="utf-8"))
            assert description["grid"] == task.note and task.note["recipe"] == "other"
            assert description["status"] == "done" and description["settings"]["seed"] == 3
            assert (task.folder / "metrics.csv").read_bytes() == metrics[task.id]


def test_one_failure_stops_nothing_and_its_log_tells(tmp_path: Path) -> None:
    arms = [{"name": "Bad", "init": "random", "labelled": "500"}, {"name": "Good", "init": "random", "labelled": "4"}]
    tasks = tiny_tasks(tmp_path, axes={"seed": [0]}, arms=arms, baseline=None)
    result = run_all(tasks, InThisProcess())
    ((task, outcome),) = result.failed.values()
    assert task.note["arm"] == "Bad" and "500" in outcome.message and result.now == 1
    assert "Traceback" in task.log.read_text(encoding="utf-8") and outcome.message in task.log.read_text(encoding="utf-8")
    assert [left.note["arm"] for left in left_of(tasks)] == ["Bad"], "tried again by the same command"


def test_a_regime_too_large_for_the_data_fails_only_the_runs_that_ask_for_it(tmp_path: Path) -> None:
    tasks = tiny_tasks(tmp_path, axes={"labelled": ["500", "4"], "seed": [0]}, settings=SETTINGS | {"updates": 1})
    assert [task.kind for task in tasks].count("stage1") == 1
    result = run_all(tasks, InThisProcess())
    assert {(task.note["arm"], task.settings.data.labelled) for task, _ in result.failed.values()} == {
        ("Supervised", "500"),
        ("Hebbian", "500"),
    }
    assert all("labelled=500" in outcome.message for _, outcome in result.failed.values()), result.failed


def test_runs_whose_stage_1_fails_fail_with_it(tmp_path: Path) -> None:
    tasks = tiny_tasks(tmp_path, axes={"labelled": ["2", "4"], "seed": [0]}, settings=SETTINGS | {"updates": 1})
    (fit,) = [task.id for task in tasks if task.kind == "stage1"]
    result = run_all(tasks, InThisProcess(lose={fit: RETRIES + 1}))
    failed = {task.note.get("arm", "stage 1") for task, _ in result.failed.values()}
    assert failed == {"stage 1", "Hebbian"} and len(result.failed) == 3
    assert sum("stage 1 failed" in outcome.message for _, outcome in result.failed.values()) == 2


def test_a_grid_ends_when_all_that_is_left_waits_for_what_failed(tmp_path: Path) -> None:
    tasks = tiny_tasks(tmp_path, axes=ONE, arms=[{"name": "Hebbian"}], baseline=None)
    assert len(run_all(tasks, InThisProcess(lose={tasks[0].id: RETRIES + 1})).failed) == 2


def test_a_task_whose_worker_is_lost_is_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    tasks = tiny_tasks(tmp_path, axes=ONE)
    first = tasks[0].id
    executor = InThisProcess(lose={first: RETRIES})
    assert not run_all(tasks, executor).failed
    assert executor.begun.count(first) == RETRIES + 1 and len(executor.begun) == len(tasks) + RETRIES


def test_a_task_that_somebody_else_stopped_is_lost_and_never_counts_as_done(tmp_path: Path) -> None:
    class Stopped(InThisProcess):
        def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
            ((task, outcome),) = super().wait(timeout_s)
            return [(task, Outcome(status="stopped", message="saved") if outcome.status == "lost" else outcome)]

    tasks = tiny_tasks(tmp_path, axes=ONE)
    fit, run = tasks[1].id, tasks[0].id
    executor = Stopped(lose={fit: RETRIES, run: RETRIES + 1})
    result = run_all(tasks, executor)
    assert executor.begun.count(fit) == RETRIES + 1 == executor.begun.count(run)
    ((task, outcome),) = result.failed.values()
    assert task.id == run and "received SIGTERM" in outcome.message and result.now == 2


def test_a_run_that_was_cut_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = tiny_tasks(tmp_path / "whole", axes=ONE, arms=[{"name": "S", "init": "random"}], baseline=None)
    (cut,) = tiny_tasks(
        tmp_path / "cut", axes=ONE, settings=SETTINGS | {"checkpoint_every_s": 0.0}, arms=[{"name": "S", "init": "random"}],
        baseline=None,
    )  # fmt: skip
    assert cut.id == whole.id
    carry_out(whole)
    with monkeypatch.context() as patch:
        patch.setattr("hebbseg.runs.train._test", lambda *parts: (_ for _ in ()).throw(MemoryError("full")))
        assert carry_out(cut) == Outcome(status="failed", message="MemoryError: full", seconds=pytest.approx(0, abs=99))
    assert (cut.folder / "checkpoint.pt").exists()
    assert carry_out(cut).status == "done"
    for name in ("model.safetensors", "metrics.csv"):
        assert (cut.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_a_folder_that_was_only_just_made_is_no_obstacle(tmp_path: Path) -> None:
    (task,) = tiny_tasks(tmp_path, axes=ONE, arms=[{"name": "S", "init": "random"}], baseline=None)
    task.folder.mkdir(parents=True)
    (task.folder / ".writing-abc.json").write_text("half of ru")
    assert carry_out(task).status == "done"


def test_weights_of_other_images_are_refused(tmp_path: Path) -> None:
    fit, run = tiny_tasks(tmp_path, axes=ONE, arms=[{"name": "H"}], baseline=None)
    other = fit.settings.changed(data="phantom:glands?n=16&size=32")
    assert carry_out(Task(**(vars(fit) | {"settings": other}))).status == "done"
    outcome = carry_out(run)
    assert outcome.status == "failed" and "trained on different training images" in outcome.message


def test_ctrl_c_stops_what_is_under_way_and_says_what_is_left(tmp_path: Path) -> None:
    class Interrupting(InThisProcess):
        asked = False

        def wait(self, timeout_s: float) -> list[tuple[Task, Outcome]]:
            if self.asked:
                return [(self._waiting.pop(), Outcome(status="stopped"))]
            os.kill(os.getpid(), 2)
            return super().wait(timeout_s)

        def ask_to_stop(self) -> None:
            self.asked = True

    executor = Interrupting()
    with pytest.raises(Interrupted, match=r"Stopped: 1 done, 2 left"):
        run_all(tiny_tasks(tmp_path, axes=ONE), executor)
    assert executor.asked and executor.closed


def test_a_probe_measures_every_level(tmp_path: Path) -> None:
    tasks = tiny_tasks(tmp_path, kind="probe", axes=ONE)
    assert not run_all(tasks, InThisProcess()).failed
    supervised, hebbian = (json.loads((task.folder / "summary.json").read_text(encoding="utf-8")) for task in runs(tasks))
    assert hebbian["kind"] == "probe" and hebbian["n"] == 4 and hebbian["fitted"] == 4
    assert list(hebbian["levels"]) == ["encoder.level0", "encoder.level1", "decoder.level0"]
    assert all(0 <= level["dice"] <= 1 for level in hebbian["levels"].values())
    assert hebbian["levels"] != supervised["levels"]
    described = json.loads((runs(tasks)[1].folder / "run.json").read_text(encoding="utf-8"))
    assert described["status"] == "done" and described["grid"]["kind"] == "probe" and described["seconds"] >= 0


RECIPE = """
name = "tiny"
[settings]
size = [32, 32]
features = [4, 8]
updates = 2
labelled = "4"
[data.glands]
source = "phantom:glands?n=12&size=32"
[axes]
seed = [0]
[[arms]]
name = "Supervised"
init = "random"
[[arms]]
name = "Hebbian"
pretrain_epochs = 1
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, out = tmp_path / "tiny.toml", tmp_path / "out"
    recipe.write_text(RECIPE)
    monkeypatch.setattr("hebbseg.experiments.executors.executor.make_executor", lambda *names, **options: InThisProcess())
    assert command(monkeypatch, "grid", recipe, "-o", out, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "2 (2 left)" in shown and "1 fits for 1 networks" in shown and "about" in shown
    assert not out.exists(), "a dry run leaves nothing"
    assert command(monkeypatch, "grid", recipe, "-o", out, "--only", "Sup") == 0
    assert len(list((out / "runs").iterdir())) == 1 and (out / "recipe.toml").read_text(encoding="utf-8") == RECIPE
    recipe.write_text(RECIPE.replace('labelled = "4"', 'labelled = "500"'))
    capsys.readouterr()
    assert command(monkeypatch, "grid", recipe, "-o", out, "--only", "Sup") == 1
    shown = capsys.readouterr()
    assert "1 runs in" in shown.err and "do not belong to the current recipe" in shown.err
    assert "failed" in shown.out and "log:" in shown.out and "retry" in shown.out
    monkeypatch.undo()
    recipe.write_text(RECIPE)
    kept = (out / "recipe.toml").read_text(encoding="utf-8")
    assert command(monkeypatch, "grid", recipe, "-o", out, "--executor", "ray", "--address", "127.0.0.1:1") == 2
    assert (out / "recipe.toml").read_text(encoding="utf-8") == kept != RECIPE, "nothing was started, so nothing is replaced"
    assert command(monkeypatch, "grid", recipe, "--only", "Nobody") == 2
    assert command(monkeypatch, "grid", recipe, "--data", "nothing") == 2
    assert command(monkeypatch, "grid", recipe, "--executor", "slurm") == 2
    assert "'local', 'ray'" in capsys.readouterr().err


def test_the_former_name_of_an_option_is_the_same_run(tmp_path: Path) -> None:
    def ids(option: str) -> set[str]:
        options = {"pseudo_loss": "dice", option: True}
        arms = [{"name": "UniMatch", "init": "random", "method": "unimatch", "method_options": options}]
        return {task.id for task in tiny_tasks(tmp_path, arms=arms, baseline=None)}

    assert ids("earned") == ids("dice_gated")
