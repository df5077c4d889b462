"""Options of `hebbseg grid` that change or select runs: --small, --set, --where, --done; and arms of some data sets only."""

import json
from pathlib import Path
from typing import Any

import pytest

from hebbseg.errors import HebbsegError
from hebbseg.experiments.grid import notes_of, plan
from hebbseg.experiments.recipe import Recipe, load_recipe, recipe_text
from hebbseg.experiments.recipe_parts import Applied
from hebbseg.experiments.selection import finished_runs, parse_where, where
from hebbseg.reporting.results import read_results
from hebbseg.reporting.tables.tidy import tidy_csv
from tests.experiments.tinygrid import ROOT, InThisProcess, tiny
from tests.tiny import command

RECIPE = """
name = "r"
title = "T"
[settings]
updates = 7
method_options = { weight = 2.0, ramp_share = 0.5 }
method = "em"
labelled = "4"
[data.d]
source = "phantom:glands?n=12&size=32"
size = [32, 32]
[data.e]
source = "phantom:lesions?n=12&size=32"
[axes]
seed = [0, 1, 2]
[[arms]]
name = "A"
init = "random"
skip = { seed = [2] }
[[arms]]
name = "B"
[[arms]]
name = "C"
only_data = ["e"]
part = "all"

[small]
only_data = ["d"]
[small.settings]
features = [4, 8]
updates = 2
pretrain_epochs = 1
[small.axes]
seed = [0, 1]
[small.data.d]
source = "phantom:glands?n=15&size=32"
labelled_batch = 2
[small.arms.B]
pretrain_batch = 3
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "r.toml").write_text(RECIPE)
    return tmp_path / "r.toml"


def test_an_arm_is_run_on_its_data_sets_only(path: Path) -> None:
    runs = plan(load_recipe(path), ROOT)
    assert {run.note["dataset"] for run in runs if run.note["arm"] == "C"} == {"e"}
    assert {run.note["dataset"] for run in runs if run.note["arm"] == "B"} == {"d", "e"}


def test_small_changes_table_by_table(path: Path) -> None:
    recipe = load_recipe(path, Applied(small=True))
    assert (recipe.name, recipe.title, list(recipe.data)) == ("r-small", "T, reduced scale", ["d"])
    assert [arm.name for arm in recipe.arms] == ["A", "B"], "C has no data set left"
    assert recipe.arms[0].skip == {}, "its value is no longer on the axis"
    a, b = plan(recipe, ROOT)[:2]
    assert a.settings.data.source.startswith("phantom:glands?n=15") and a.settings.data.size == (32, 32)
    assert a.settings.finetune.updates == 2 and a.settings.finetune.labelled_batch == 2
    assert (a.settings.pretrain.batch, b.settings.pretrain.batch) == ("auto", 3)
    assert load_recipe(path).settings["updates"] == 7, "not without --small"
    with pytest.raises(HebbsegError, match=r"--small: recipe tiny has no table \[small\]"):
        Recipe(**tiny()).reduced()


def test_other_files_of_a_data_set_are_other_runs(tmp_path: Path) -> None:
    for name in ("la", "la_half"):
        (tmp_path / name).mkdir()
    recipe = Recipe(**tiny(data={"la": {"source": "la:la"}}, small={"data": {"la": {"source": "la:la_half"}}}))
    assert not {run.id for run in plan(recipe, [tmp_path])} & {run.id for run in plan(recipe.reduced(), [tmp_path])}


def settings_of(path: Path, **given: Any) -> list[Any]:
    return [run.settings for run in plan(load_recipe(path, Applied(set=given)), ROOT)]


def test_set_overrides_the_recipe_and_its_data_sets_but_neither_arms_nor_axes(path: Path) -> None:
    every = settings_of(path, precision="bf16-mixed", size="64x64", method_options={"weight": 5})
    assert {each.finetune.precision for each in every} == {"bf16-mixed"} and {each.data.size for each in every} == {(64, 64)}
    assert every[0].finetune.method_options == {"weight": 5, "ramp_share": 0.5}
    with pytest.raises(HebbsegError, match=r"--set seed: recipe r varies it in \[axes\]. Use --where seed=VALUE"):
        settings_of(path, seed="3")
    with pytest.raises(HebbsegError, match=r"--set part: arm 'C' of recipe r sets it"):
        settings_of(path, part="all")
    with pytest.raises(HebbsegError, match=r"--set: unknown setting 'precison'. Did you mean 'precision'\?"):
        settings_of(path, precison="32-true")


@pytest.mark.parametrize(
    "applied",
    [
        Applied(),
        Applied(small=True),
        Applied(set={"precision": "bf16-mixed", "clip": "none", "method_options": {"weight": 5, "ramp": "linear"}}),
        Applied(small=True, set={"group": r'^(a"b\\d)_é', "updates": "9"}),
    ],
)
def test_the_recipe_of_the_output_folder_gives_the_same_runs(path: Path, applied: Applied, tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(recipe_text(path, applied), encoding="utf-8")
    assert notes_of(load_recipe(copy)) == notes_of(load_recipe(path, applied))
    assert recipe_text(copy, load_recipe(copy).applied) == copy.read_text(encoding="utf-8"), "a copy of the copy"
    later = load_recipe(copy, Applied(set={"updates": "11"}))
    assert later.applied.small == applied.small and later.settings["updates"] == "11"
    copy.write_text(recipe_text(copy, later.applied), encoding="utf-8")
    assert notes_of(load_recipe(copy)) == notes_of(later)


def test_the_table_of_options_is_not_written_by_hand(path: Path) -> None:
    path.write_text(f"{RECIPE}\n[applied]\nsmall = true\n")
    with pytest.raises(HebbsegError, match=r"\[applied\] is written by hebbseg grid"):
        recipe_text(path, load_recipe(path).applied)


def test_where_selects_values_and_keeps_ids() -> None:
    arms = [{"name": "Supervised", "init": "random", "without": ["temperature"]}, {"name": "Hebbian"}]
    axes = {"labelled": ["10%", "20%"], "temperature": [1.0, 0.1], "seed": [0, 1]}
    runs = plan(Recipe(**tiny(arms=arms, axes=axes)), ROOT)
    chosen = where(runs, parse_where(["labelled=10%", "temperature=0.1", "seed=0, 1"]))
    assert {run.id for run in chosen} < {run.id for run in runs}
    assert [(run.note["arm"], run.settings.seed) for run in chosen] == [
        ("Supervised", 0), ("Hebbian", 0), ("Supervised", 1), ("Hebbian", 1),
    ]  # fmt: skip
    assert {(run.settings.data.labelled, run.settings.pretrain.temperature) for run in chosen} == {("10%", 0.1)}
    for text, message in [
        ("sede=0", "--where sede: not an axis of the recipe. Did you mean 'seed'?"),
        ("seed=7", "--where seed=7: not a value of this axis. Allowed: '0', '1'."),
        ("seed", "--where 'seed' is not AXIS=VALUE"),
        ("seed=0,", "is not AXIS=VALUE"),
    ]:
        with pytest.raises(HebbsegError) as raised:
            where(runs, parse_where([text]))
        assert message in str(raised.value)


def test_values_that_never_occur_together_are_an_error() -> None:
    data = {name: {"source": f"phantom:{name}?n=12&size=32"} for name in ("glands", "lesions")}
    axes = {"glands": {"labelled": ["2"], "seed": [0]}, "lesions": {"labelled": ["4"], "seed": [1]}}
    recipe = Recipe(**tiny(data={name: each | {"axes": axes[name]} for name, each in data.items()}, axes={}))
    with pytest.raises(HebbsegError, match="no run has these values together"):
        where(plan(recipe, ROOT), parse_where(["labelled=2", "seed=1"]))


def test_the_command_changes_selects_and_skips(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hebbseg.experiments.executors.executor.make_executor", lambda *names, **options: InThisProcess())
    monkeypatch.chdir(tmp_path)
    small = ("grid", path, "--small", "--set", "method=supervised", "--set", "method_options.weight=1", "--where", "seed=0")
    assert command(monkeypatch, *small) == 2, "supervised has no weight"
    small = ("grid", path, "--small", "--set", "ema=0", "--where", "seed=0")
    assert command(monkeypatch, *small) == 0
    out = tmp_path / "runs" / "r-small"
    (run, other) = sorted((out / "runs").iterdir())
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]["ema"] == 0
    results = read_results([out])
    assert len(results.runs) == 2 and not results.unread, "the report knows the runs by OUT/recipe.toml"
    rows = tmp_path / "runs.csv"
    rows.write_text(tidy_csv(results.runs))
    assert finished_runs([rows]) == {run.name, other.name}
    capsys.readouterr()
    again = ("grid", path, "--small", "--set", "ema=0", "-o", tmp_path / "new", "--done", rows)
    assert command(monkeypatch, *again) == 0
    assert "2 of 4 runs are listed by --done" in capsys.readouterr().err
    assert not {each.name for each in (tmp_path / "new" / "runs").iterdir()} & {run.name, other.name}
    rows.write_text("a,b\n1,2\n")
    assert command(monkeypatch, *again) == 2 and "no column 'run'" in capsys.readouterr().err
    rows.unlink()
    assert command(monkeypatch, *again) == 2


def test_nothing_is_left_if_all_runs_are_done(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hebbseg.experiments.executors.executor.make_executor", lambda *names, **options: InThisProcess())
    rows = tmp_path / "rows.csv"
    rows.write_text("run\n" + "\n".join(notes_of(load_recipe(path))) + "\n")
    for more in ((), ("--dry-run",)):
        assert command(monkeypatch, "grid", path, "-o", tmp_path / "out", "--done", rows, *more) == 0
    assert not (tmp_path / "out" / "runs").exists()
