"""The recipes of the project: every arm runs on every data set, and all arms of a comparison have the same splits."""

import json
from pathlib import Path
from typing import Any

import pytest

from hebbseg.experiments.grid import GridRun, plan
from hebbseg.experiments.recipe import Recipe, load_recipe
from hebbseg.experiments.recipe_parts import Applied, Small
from hebbseg.experiments.scheduler import tasks_of
from hebbseg.reporting.html import write_report
from hebbseg.runs.dataset import draw_split, list_cases
from tests.experiments.tinygrid import InThisProcess, run_all

RECIPES = Path(__file__).parents[2] / "recipes"
PAPER = sorted((RECIPES / "paper").glob("*.toml"))
TRAINED = [path for path in PAPER if path.stem != "probe"]
PHANTOMS = {
    "glas": "phantom:glands?n=12&size=32",
    "ph2": "phantom:lesions?n=12&size=32",
    "hmeps": "phantom:pupils?n=12&size=32",
    "la": "phantom:atrium?n=6&size=32",
    "glands": "phantom:glands?n=12&size=32",
}
"""Generated images in place of each data set."""


def toy(path: Path, *, folds: tuple[int, ...] = (0,)) -> Recipe:
    """The recipe on a few generated images, with two folds, two epochs, and one label regime."""
    recipe = load_recipe(path)
    preset = "paper" in path.parts[-2]
    length = {"epochs": 2, "validate_every": 1, "folds": 2} if preset else {"updates": 2}
    axes = {"labelled": ["50%"]} | ({"fold": list(folds)} if preset else {"seed": [0]})
    own = {
        name: {"source": PHANTOMS[name], "axes": {axis: axes[axis] for axis in data.axes}}
        | ({"folds": 2} if "folds" in data.settings else {})
        | ({"patch": [32, 32, 32]} if name == "la" else {"size": [32, 32]})
        for name, data in recipe.data.items()
    }
    axes |= {"temperature": recipe.axes["temperature"][-2:]} if "temperature" in recipe.axes else {}
    settings: dict[str, Any] = {"features": [4, 8], "pretrain_epochs": 1, "pretrain_batch": 4} | length
    small = {"settings": settings, "axes": axes, "data": own}
    return recipe.model_copy(update={"small": Small(**small)}).reduced()


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of each run take most of the time of so small a run."""
    for name in ("train.draw_history", "pictures.draw_grid"):
        monkeypatch.setattr(f"hebbseg.runs.{name}", lambda *_: None)


def run_everything(path: Path, out: Path, *, folds: tuple[int, ...] = (0,)) -> list[GridRun]:
    runs = plan(toy(path, folds=folds), [])
    result = run_all(tasks_of(runs, out), InThisProcess())
    assert not result.failed, {task.id: outcome.message for task, outcome in result.failed.values()}
    return runs


def test_every_recipe_of_the_paper_runs_from_end_to_end(tmp_path: Path) -> None:
    # One folder: runs that several recipes have are computed once.
    for path in TRAINED:
        runs = run_everything(path, tmp_path, folds=(0, 1) if path.stem == "variants" else (0,))
        arms = {arm.name for arm in load_recipe(path).arms}
        assert {run.note["arm"] for run in runs} == arms
        for run in runs:
            assert json.loads((tmp_path / "runs" / run.id / "run.json").read_text(encoding="utf-8"))["status"] == "done"
    done = write_report([tmp_path / "runs"], tmp_path / "report.html", pictures=False)
    assert not done.results.unread and {run.recipe for run in done.results.runs} >= {"benchmark-small", "variants-small"}


def test_the_probe_runs_from_end_to_end(tmp_path: Path) -> None:
    runs = run_everything(RECIPES / "paper" / "probe.toml", tmp_path, folds=(0, 1))
    done = write_report([tmp_path / "runs"], tmp_path / "report.html", pictures=False)
    assert len(done.results.runs) == len(runs) and not done.results.unread


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_on_generated_images_runs_from_end_to_end(path: Path, tmp_path: Path) -> None:
    runs = run_everything(path, tmp_path)
    done = write_report([tmp_path / "runs"], tmp_path / "report.html", pictures=False)
    assert len(done.results.runs) == len(runs) and not done.results.unread


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_recipe_of_the_paper_uses_the_preset_and_has_repetitions(path: Path, small: bool, tmp_path: Path) -> None:
    recipe = load_recipe(path, Applied(small=small))
    assert recipe.name == path.stem + "-small" * small and recipe.title and recipe.settings["preset"] == "paper"
    for data in recipe.data.values():
        (tmp_path / data.source.partition(":")[2]).mkdir(exist_ok=True)
    runs = plan(recipe, [tmp_path])
    for name in recipe.data:
        folds = {run.settings.data.fold for run in runs if run.note["dataset"] == name}
        assert len(folds) == (3 if small else 5 if name == "la" else 10)
    others = {run.note["arm"] for run in runs if run.settings.preset != "paper"}
    assert others <= {"hebbseg default"} and all(run.settings.data.protocol == "paper" for run in runs)
    assert all(run.settings.data.folds_by == "images" for run in runs)


def benchmark_runs() -> list[GridRun]:
    recipe = load_recipe(RECIPES / "paper" / "benchmark.toml")
    data = {name: {"source": PHANTOMS[name].replace("n=12", "n=60").replace("n=6&", "n=20&")} for name in recipe.data}
    return plan(recipe.model_copy(update={"small": Small(axes={"labelled": ["10%"]}, data=data)}).reduced(), [])  # type: ignore[arg-type]


def test_all_arms_of_the_benchmark_have_the_same_splits() -> None:
    runs = benchmark_runs()
    sources = {run.note["dataset"]: list_cases(run.settings.data) for run in runs}
    hashes: dict[tuple[str, int], dict[str, str]] = {}
    for run in runs:
        place = (run.note["dataset"], run.note["axes"]["fold"])
        hashes.setdefault(place, {})[run.note["arm"]] = draw_split(run.settings, sources[place[0]]).hash
    assert len(hashes) == 3 * 10 + 5
    for (name, _), by_arm in hashes.items():
        assert len(by_arm) == (12 if name == "la" else 11) and ("DTC" in by_arm) == (name == "la")
        assert len(set(by_arm.values())) == 1, by_arm
    assert len({next(iter(by_arm.values())) for by_arm in hashes.values()}) == len(hashes)


def test_the_control_has_the_layers_and_settings_of_ours() -> None:
    runs = {run.note["arm"]: run.settings for run in benchmark_runs() if run.note["dataset"] == "glas"}
    ours, control = runs["Ours"], runs["Random, rescaled"]
    assert ours.pretrain.layers(5) == control.pretrain.layers(5) is None, "all layers"
    assert ours == control.changed(init="hebbian")
    default = runs["hebbseg default"]
    assert default.finetune.method == "auto" and default.pretrain.levels == "1-3" and default.network.norm == "group"
    assert default.data.size == ours.data.size == (128, 128)
