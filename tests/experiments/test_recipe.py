"""Recipes: what is wrong with one is said before anything starts; ids follow from what a run is."""

import csv
import re
from pathlib import Path

import pytest

from hebbseg.config import FinetuneSettings
from hebbseg.errors import HebbsegError
from hebbseg.experiments.data_root import data_roots, locate
from hebbseg.experiments.grid import GridRun, notes_of, plan
from hebbseg.experiments.recipe import Recipe, load_recipe
from hebbseg.experiments.recipe_parts import Applied
from tests.experiments.tinygrid import ROOT, SETTINGS, tiny

RECIPES = Path(__file__).parents[2] / "recipes"
STUDIES = Path(__file__).parents[2] / "studies"
GOOD = """
name = "r"
baseline = "A"
[settings]
updates = 3
[data.d]
source = "phantom:glands?n=12&size=32"
[axes]
seed = [0, 1]
[[arms]]
name = "A"
init = "random"
[[arms]]
name = "B"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "r.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "r"', 'nmae = "r"', "unknown key 'nmae'. Did you mean 'name'?"),
        ("updates = 3", "updatse = 3", "[settings]: unknown setting 'updatse'. Did you mean 'updates'?"),
        ("seed = [0, 1]", "sead = [0, 1]", "[axes]: unknown setting 'sead'. Did you mean 'seed'?"),
        ("seed = [0, 1]", "seed = []", "[axes]: seed = [] has no values"),
        ("seed = [0, 1]", "seed = [0, 0]", "seed lists 0 twice"),
        ("seed = [0, 1]", "seed = 0", "axes.seed"),
        ('init = "random"', 'intt = "random"', "unknown key 'intt'. Did you mean 'init'?"),
        ('init = "random"', 'init = "randm"', "Did you mean 'random'?"),
        ('init = "random"', 'method = "uampt"', "Unknown method 'uampt'. Did you mean 'uamt'?"),
        (
            'init = "random"',
            'method = "em"\nmethod_options = {wieght = 1}',
            "Method em has no option 'wieght'. Did you mean 'weight'?",
        ),
        ('init = "random"', "updates = 0", "Option updates=0"),
        ('init = "random"', "seed = 3", "seed is an axis and also set in arm 'A'"),
        ("updates = 3", "seed = 3", "seed is an axis and also set in [settings]"),
        ('name = "B"', 'name = "A"', "two arms are named 'A'"),
        ('name = "B"', 'name = "B"\ninit = "random"', "arms 'A' and 'B' have the same settings"),
        ('name = "B"', 'name = "B"\ngain_over = "C"', "gain_over = 'C' is not another arm"),
        ('name = "B"', 'name = "B"\nwithout = ["sede"]', "which is not an axis. Did you mean 'seed'?"),
        ('name = "B"', 'name = "B"\nskip = {seed = [7]}', "seed = 7, which is not on this axis"),
        ('name = "B"', 'name = "B"\nonly_data = ["e"]', "arm 'B': only_data names 'e', which is not a data set of the recipe"),
        ('name = "B"', 'name = "B"\n[small]\nonly_data = ["c"]', "[small]: only_data names 'c'"),
        ('name = "B"', 'name = "B"\n[small.settings]\nepohcs = 2', "[small.settings]: unknown setting 'epohcs'"),
        ('name = "B"', 'name = "B"\n[small.data.e]\nepochs = 2', "[small.data] names 'e'"),
        ('name = "B"', 'name = "B"\n[small.data.d]\nepohcs = 2', "unknown key 'epohcs'. Did you mean 'epochs'?"),
        ('name = "B"', 'name = "B"\n[small.arms.C]\nepochs = 2', "[small.arms] names 'C', which is not an arm"),
        ('name = "B"', 'name = "B"\n[small.axes]\nseed = []', "[small.axes]: seed = [] has no values"),
        (
            'name = "B"',
            'name = "B"\n[small.axes]\nupdates = [1]',
            "with its [small]: updates is an axis and also set in",
        ),
        (
            'name = "B"',
            'name = "B"\n[applied]\nsmal = true',
            "unknown key 'smal'. Did you mean 'small'? Allowed: 'set', 'small'.",
        ),
        ('baseline = "A"', 'baseline = "Supervised"', "baseline = 'Supervised' is not an arm"),
        ('baseline = "A"', 'kind = "probes"', "kind"),
        ("seed = [0, 1]", "fold = [0, 1]", "fold=0: the number of folds is not set"),
        ("updates = 3", "folds = 5\nfold = 5", "fold=5, folds=5"),
        ("updates = 3", 'folds = 5\ntest = "official"', "each fold is the test set once"),
        ("updates = 3", 'labelled = "ten"', "labelled='ten': allowed are a fraction"),
        ("updates = 3", "labelled = 0", "labelled=0: a run of a grid needs labelled images"),
        ("phantom:glands?n=12", "phantom:glnds?n=12", "Did you mean 'glands'?"),
        ("phantom:glands?n=12&size=32", "glas:nowhere", "nowhere not found"),
        ("phantom:glands?n=12&size=32", "galas:x", "unknown kind 'galas'. Did you mean 'glas'?"),
        ("[axes]", "[axes", "not a valid TOML file"),
        ("[data.d]", "[data.d]\nsoruce = 1", "unknown key 'soruce'. Did you mean 'source'?"),
        ('source = "phantom:glands?n=12&size=32"', "", "data.d.source is missing"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_place_and_the_remedy(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(HebbsegError, match=re.escape(message)) as raised:
        plan(load_recipe(written(tmp_path, GOOD.replace(old, new))), [tmp_path])
    assert str(raised.value).startswith("Recipe ")


def test_a_long_value_is_shortened_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(f'name = "{"[" * 20_000}"\n', encoding="utf-8")
    with pytest.raises(HebbsegError, match="name: ") as error:
        load_recipe(path)
    assert len(str(error.value)) < 1000


def test_the_recipe_that_was_made_wrong_is_right(tmp_path: Path) -> None:
    assert len(plan(load_recipe(written(tmp_path, GOOD)), ROOT)) == 4


def test_a_recipe_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(HebbsegError, match=r"Did you mean 'r\.toml'\?"):
        load_recipe(tmp_path / "q.toml")


def test_a_probe_has_no_method() -> None:
    arms = [{"name": "Supervised", "method": "em"}]
    with pytest.raises(ValueError, match="a probe has no stage 2"):
        Recipe(**tiny(kind="probe", arms=arms))


def planned(path: Path, root: Path) -> list[GridRun]:
    """The runs of a recipe as if all its data sets were here."""
    recipe = load_recipe(path)
    assert recipe.name == path.stem and recipe.title and recipe.baseline
    for data in recipe.data.values():
        kind, _, place = data.source.partition(":")
        if kind != "phantom":
            (root / place).mkdir(exist_ok=True)
    return plan(recipe, [root])


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_studies_is_right(path: Path, tmp_path: Path) -> None:
    assert planned(path, tmp_path)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_project_is_right(path: Path, tmp_path: Path) -> None:
    repeats = {(run.settings.seed, run.settings.data.fold) for run in planned(path, tmp_path)}
    assert len(repeats) >= 3, "paired repetitions"


def test_phantom_has_24_runs_and_shares_stage_1() -> None:
    runs = plan(load_recipe(RECIPES / "phantom.toml"), ROOT)
    assert len(runs) == 24 and len({run.id for run in runs}) == 24
    # 3 seeds, and the second network of CPS; both regimes and both methods begin with the same weights.
    assert len({fit.key for run in runs for fit in run.stage1}) == 6


def test_an_id_follows_from_the_data_sets_name_not_its_path(tmp_path: Path) -> None:
    def ids(root: Path, name: str) -> list[str]:
        (root / "x").mkdir(parents=True)
        recipe = Recipe(**tiny(data={name: {"source": "glas:x"}}))
        return [run.id for run in plan(recipe, [root])]

    here, there = ids(tmp_path / "a", "glas"), ids(tmp_path / "b", "glas")
    assert here == there
    assert not set(ids(tmp_path / "c", "other")) & set(here)


def test_an_id_follows_from_what_changes_a_result_and_nothing_else() -> None:
    def ids(**settings: object) -> list[str]:
        return [run.id for run in plan(Recipe(**tiny(settings=SETTINGS | settings)), ROOT)]

    assert ids() == ids(accelerator="cpu", checkpoint_every_s=1.0)
    assert ids() == ids(learning_rate=FinetuneSettings().learning_rate), "a default, written out"
    assert not set(ids()) & set(ids(learning_rate=0.5))


def test_stage_1_is_shared_by_all_that_differs_in_stage_2_only() -> None:
    def key(**settings: object) -> str:
        recipe = Recipe(**tiny(settings=SETTINGS | settings, axes={}, arms=[{"name": "Supervised"}]))
        (run,) = plan(recipe, ROOT)
        return run.stage1[0].key

    other = {
        "labelled": "3",
        "updates": 9,
        "method": "em",
        "method_options": {"weight": 2.0},
        "ema": 0.5,
        "augment": False,
    }
    assert key() == key(**other)
    for changed in ({"temperature": 0.3}, {"seed": 5}, {"features": [4, 4]}, {"size": [16, 16]}, {"init": "vae"}):
        assert key() != key(**changed), changed


def test_an_arm_leaves_an_axis_out_or_skips_a_value() -> None:
    arms = [
        {"name": "Supervised", "init": "random", "without": ["temperature"]},
        {"name": "Hebbian", "skip": {"temperature": [1.0]}},
    ]
    axes = {"seed": [0, 1], "temperature": [1.0, 0.1]}
    runs = plan(Recipe(**tiny(arms=arms, axes=axes)), ROOT)
    assert [run.note["axes"] for run in runs if run.note["arm"] == "Supervised"] == [{"seed": 0}, {"seed": 1}]
    assert [run.note["axes"]["temperature"] for run in runs if run.note["arm"] == "Hebbian"] == [0.1, 0.1]


def test_a_data_set_has_its_own_axes_and_settings() -> None:
    data = {
        "a": {"source": "phantom:glands?n=12&size=32", "updates": 7},
        "b": {"source": "phantom:pupils?n=24&size=32", "axes": {"labelled": ["3"]}},
    }
    runs = plan(Recipe(**tiny(data=data)), ROOT)
    assert {run.settings.data.labelled for run in runs if run.note["dataset"] == "b"} == {"3"}
    assert {run.settings.finetune.updates for run in runs if run.note["dataset"] == "a"} == {7}


def test_data_sets_are_chosen_by_name_and_keep_their_ids(tmp_path: Path) -> None:
    data = {"a": {"source": "phantom:glands?n=12&size=32"}, "b": {"source": "glas:nowhere"}}
    recipe = Recipe(**tiny(data=data))
    with pytest.raises(HebbsegError, match=r"\[data\.b\].*nowhere not found.* only the other data sets: --data a\.$"):
        plan(recipe, [tmp_path])
    chosen = plan(recipe.with_data(["a"]), [tmp_path])
    assert {run.note["dataset"] for run in chosen} == {"a"} and {run.id for run in chosen} < notes_of(recipe).keys()
    assert recipe.with_data([]).data == recipe.data
    with pytest.raises(HebbsegError, match=r"--data c: recipe tiny has no \[data\.c\]"):
        recipe.with_data(["a", "c"])


def test_selection_needs_no_folds_in_the_recipe() -> None:
    runs = plan(Recipe(**tiny(settings=SETTINGS | {"protocol": "selection"})), ROOT)
    assert {run.settings.data.protocol for run in runs} == {"selection"}


def test_repetitions_vary_slowest() -> None:
    seeds = [run.settings.seed for run in plan(Recipe(**tiny()), ROOT)]
    assert seeds == sorted(seeds) and len(set(seeds)) == 2


def test_where_data_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, here = tmp_path / "recipes" / "a.toml", tmp_path / "project"
    (here / "glas").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.delenv("HEBBSEG_DATA", raising=False)
    assert locate("glas:glas", data_roots(None, recipe)) == f"glas:{here / 'glas'}"
    (tmp_path / "recipes" / "glas").mkdir(parents=True)
    assert locate("glas:glas", data_roots(None, recipe)) == f"glas:{tmp_path / 'recipes' / 'glas'}"
    monkeypatch.setenv("HEBBSEG_DATA", str(tmp_path))
    with pytest.raises(HebbsegError, match=rf"{tmp_path / 'glas'} not found.*--data-root or HEBBSEG_DATA"):
        locate("glas:glas", data_roots(None, recipe))
    assert data_roots(Path("given"), recipe) == [Path("given")]


def test_ids_are_those_of_version_0_1() -> None:
    """So that its grids are not run again. It had one precision and neither the original grid, nor CutMix, nor flips."""
    settings = SETTINGS | {"updates": 4, "metrics_grid": "training", "precision": "32-true", "cutmix": 0, "tta": "none"}
    arms = [{"name": "CPS + Hebbian", "init": "hebbian", "method": "cps"}]
    runs = plan(Recipe(**tiny(settings=settings, arms=arms, baseline=None, axes={"labelled": ["2"], "seed": [0]})), ROOT)
    assert [run.id for run in runs] == ["glands-cps-hebbian-2-s0-4b4f5051e6"]
    assert {fit.key for run in runs for fit in run.stage1} == {"hebbian-4c0cf9492d", "hebbian-d2ab37d12c"}


def test_kept_rows_of_the_paper_are_runs_of_its_recipe() -> None:
    """So that ``--done`` skips them. Their length is in epochs, so it does not depend on the default number of updates."""
    with (STUDIES / "results/paper-glas/runs.csv").open(encoding="utf-8") as file:
        kept = {row["run"] for row in csv.DictReader(file)}
    recipe = load_recipe(RECIPES / "paper/benchmark.toml", Applied(set={"precision": "bf16-mixed"}))
    assert kept and kept <= notes_of(recipe).keys()
