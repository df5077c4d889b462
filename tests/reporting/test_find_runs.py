"""A report of a grid counts the runs of its recipe as it is now, and says what it leaves out."""

import json
import tomllib
from pathlib import Path

import pytest

from hebbseg.experiments.grid import notes_of
from hebbseg.experiments.recipe import Recipe
from hebbseg.reporting.results import read_results
from tests.reporting.runs import described, summary, write
from tests.tiny import command

RECIPE = """
name = "mine"
baseline = "Supervised"
[settings]
updates = 300
[data.glas]
source = "glas:nowhere"
[axes]
seed = [0, 1]
[[arms]]
name = "Supervised"
init = "random"
[[arms]]
name = "Hebbian"
"""
CHANGED = RECIPE.replace("updates = 300", "updates = 500")


def add_runs(grid: Path, recipe: str, dice: float) -> None:
    """What a grid of that recipe leaves behind, made up; runs that are there already are kept."""
    grid.mkdir(exist_ok=True)
    (grid / "recipe.toml").write_text(recipe)
    for name, note in notes_of(Recipe(**tomllib.loads(recipe))).items():
        if not (grid / "runs" / name).exists():
            write(grid / "runs" / name, described("glas:nowhere", {"seed": note["axes"]["seed"]}, note), summary(dice))


def dices(root: Path) -> set[float]:
    return {run.metrics["dice"] for run in read_results([root]).runs}


def test_runs_of_the_recipe_before_it_was_changed_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = tmp_path / "grid"
    add_runs(grid, RECIPE, dice=0.3)
    add_runs(grid, CHANGED, dice=0.5)
    results = read_results([tmp_path])
    assert len(results.runs) == 4 and dices(tmp_path) == {0.5}
    assert results.strangers == 4 and all("not in the current recipe" in each.reason for each in results.unread)
    page = tmp_path / "r.html"
    assert command(monkeypatch, "report", grid, "-o", page, "--no-pictures") == 0
    assert "4 not included: they do not belong to the current recipe" in capsys.readouterr().out
    assert "4 of them not in the current recipe" in page.read_text(encoding="utf-8")
    (grid / "recipe.toml").write_text(RECIPE)
    assert dices(tmp_path) == {0.3}, "changed back: the old runs are the recipe's again"


def test_whoever_names_the_runs_themselves_means_all_of_them(tmp_path: Path) -> None:
    add_runs(tmp_path, RECIPE, dice=0.3)
    (tmp_path / "recipe.toml").write_text(CHANGED)
    assert read_results([tmp_path]).runs == () and len(read_results([tmp_path / "runs"]).runs) == 4


def test_a_run_that_another_recipe_did_counts_for_the_recipe_that_asks_now(tmp_path: Path) -> None:
    add_runs(tmp_path, RECIPE, dice=0.3)
    other = RECIPE.replace('"mine"', '"other"').replace('name = "Hebbian"', 'name = "Hebbian"\ngain_over = "Supervised"')
    (tmp_path / "recipe.toml").write_text(other)
    runs = read_results([tmp_path]).runs
    assert {run.recipe for run in runs} == {"other"} and len(runs) == 4
    assert {run.gain_over for run in runs if run.arm == "Hebbian"} == {"Supervised"}
    assert json.loads((runs[0].folder / "run.json").read_text())["grid"]["recipe"] == "mine", "reading changes nothing"


def test_a_recipe_that_cannot_be_read_leaves_nothing_out_and_is_named(tmp_path: Path) -> None:
    add_runs(tmp_path, RECIPE, dice=0.3)
    (tmp_path / "recipe.toml").write_text("name = ")
    results = read_results([tmp_path])
    assert len(results.runs) == 4 and results.strangers == 0
    ((reason, path),) = [(each.reason, each.folder) for each in results.unread]
    assert path == tmp_path / "recipe.toml" and "all runs" in reason and "not a valid TOML file" in reason
