"""From a recipe to the list of its runs: settings, ids, and which weights of stage 1 they share."""

import hashlib
import itertools
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hebbseg.config import RENAMED_OPTIONS, Settings, make_settings, without_effect
from hebbseg.data.splits.draw import Regime
from hebbseg.errors import HebbsegError
from hebbseg.experiments.data_root import identity, locate
from hebbseg.experiments.recipe import Arm, Recipe
from hebbseg.methods import AUTO, WITH_UNLABELLED, auto_method, check_method, method_class
from hebbseg.pretraining.initializers import check_init, is_initializer
from hebbseg.pretraining.rules import make_rule

# Stage 1 sees no mask and ends before stage 2 begins: these do not change its weights.
OF_STAGE_2 = frozenset(
    {
        "labelled", "method", "method_options", "updates", "labelled_batch", "unlabelled_batch", "optimiser",
        "learning_rate", "encoder_rate", "weight_decay", "schedule", "warm_up", "ema", "clip", "loss", "augment",
        "precision", "time_budget_s", "validate_every", "patience", "tta",
    }
)  # fmt: skip
WITHOUT_STAGE_1 = frozenset({"random"})


@dataclass(frozen=True, kw_only=True)
class Stage1Fit:
    """Weights of stage 1 that runs begin with: those of network 0, or 1, 2, … for methods that have several."""

    key: str
    settings: Settings
    network: int


@dataclass(frozen=True, kw_only=True)
class GridRun:
    """One run of a grid.

    Arguments:
        id: readable, and the same wherever the recipe is run.
        kind: train or probe.
        settings: all resolved.
        note: goes into run.json as "grid".
        stage1: what has to be there before it begins.
    """

    id: str
    kind: Literal["train", "probe"]
    settings: Settings
    note: dict[str, Any]
    stage1: tuple[Stage1Fit, ...] = ()


def plan(recipe: Recipe, root: tuple[Path, str]) -> list[GridRun]:
    """All runs of a recipe, one repetition (seed, fold) after the other; raises if any of them could not be begun."""
    places = {}
    for name, data in recipe.data.items():
        try:
            places[name] = locate(data.source, root)
        except HebbsegError as error:
            raise HebbsegError(f"Recipe {recipe.name}, [data.{name}]: {error}") from None
    runs = _runs(recipe, places)
    for run in runs:
        try:
            _check(run.settings, run.kind)
        except HebbsegError as error:
            raise HebbsegError(f"{_where(recipe, run.note['dataset'], run.note['arm'])}: {error}") from None
    _refuse_twins(recipe, runs)
    runs = [replace(run, stage1=_stage1(run, recipe)) for run in runs]
    # Repetitions vary slowest: whatever is done when somebody looks, or stops, is a whole comparison.
    return sorted(runs, key=lambda run: (run.settings.seed, run.settings.fold or 0))


def notes_of(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """{id: note} of all runs of a recipe, wherever its data are, and if they are no longer anywhere."""
    return {run.id: run.note for run in _runs(recipe, {name: data.source for name, data in recipe.data.items()})}


def _runs(recipe: Recipe, places: dict[str, str]) -> list[GridRun]:
    """Each once: an arm that leaves out an axis comes again for each of its values."""
    runs = {}
    for name, place in places.items():
        axes = recipe.axes_of(name)
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            for arm in (arm for arm in recipe.arms if not arm.skips(point)):
                run = _run(recipe, name, place, arm, {k: v for k, v in point.items() if k not in arm.without})
                runs[run.id] = run
    return list(runs.values())


def _where(recipe: Recipe, data: str, arm: str) -> str:
    return f"Recipe {recipe.name}, data {data}, arm {arm!r}"


def _run(recipe: Recipe, data: str, place: str, arm: Arm, point: dict[str, Any]) -> GridRun:
    given = recipe.settings | recipe.data[data].settings | arm.settings | point
    try:
        settings = make_settings(place, given)
    except HebbsegError as error:
        raise HebbsegError(f"{_where(recipe, data, arm.name)}: {error}") from None
    note: dict[str, Any] = {
        "recipe": recipe.name,
        "title": recipe.title,
        "kind": recipe.kind,
        "table": recipe.table,
        "dataset": data,
        "arm": arm.name,
        "axes": point,
    }
    note |= {"baseline": recipe.baseline} if recipe.baseline else {}
    note |= {"gain_over": arm.gain_over} if arm.gain_over else {}
    facts = _facts(settings, recipe, data)
    if recipe.kind == "train" and settings.method == AUTO:
        # What it stands for is a default, too; whether all images have masks is not known yet.
        method, options = auto_method(unlabelled=1)
        facts["method"] = method, _first_names(method, options)
    words = [data, arm.name, *(f"{_SHORT.get(name, name)}{value}" for name, value in point.items())]
    readable = re.sub(r"[^a-z0-9.]+", "-", "_".join(words).lower().replace("%", "")).strip("-")
    return GridRun(
        id=f"{readable[:80]}-{_hash({'kind': recipe.kind} | facts)}",
        kind=recipe.kind,
        settings=settings,
        note=note,
    )


_SHORT = {"labelled": "", "seed": "s", "fold": "f", "temperature": "t"}


def _stage1(run: GridRun, recipe: Recipe) -> tuple[Stage1Fit, ...]:
    """None where there is no stage 1, or where it is a file that exists already."""
    settings = run.settings
    if settings.init in WITHOUT_STAGE_1 or not is_initializer(settings.init):
        return ()
    method = WITH_UNLABELLED if settings.method == AUTO else settings.method
    networks = method_class(method).networks if run.kind == "train" else 1
    facts = _facts(settings, recipe, run.note["dataset"])
    facts = {name: value for name, value in facts.items() if name not in OF_STAGE_2}
    return tuple(
        Stage1Fit(key=f"{settings.init}-{_hash(facts | {'network': n})}", settings=settings, network=n)
        for n in range(networks)
    )


def _facts(settings: Settings, recipe: Recipe, data: str) -> dict[str, Any]:
    """What a result follows from, the same on every machine; with the defaults, so that a changed one is another run.

    What is new since the first version is left out where it is not used, so that the ids of runs stay as they were.
    """
    unused = set() if settings.rule_options else {"rule_options"}
    facts = settings.model_dump(mode="json", exclude=unused | without_effect(settings.init))
    facts["method_options"] = _first_names(settings.method, settings.method_options)
    return facts | {"data": identity(data, recipe.data[data].source)}


def _first_names(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options under their first names: a renamed option makes no other run."""
    first = {new: old for old, new in RENAMED_OPTIONS.get(method, {}).items()}
    return {first.get(name, name): value for name, value in options.items()}


def _hash(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]


def _check(settings: Settings, kind: str) -> None:
    """All that can be known to be wrong without a look at the data."""
    if Regime.parse(settings.labelled).is_nothing:
        raise HebbsegError(
            f"labelled={settings.labelled}: no run of a grid can do without masks. Ask for one at least."
        )
    if kind == "probe" and settings.devices * settings.num_nodes > 1:
        raise HebbsegError("a probe is done in one process. Leave devices and num_nodes out.")
    check_method(settings.method, settings.method_options)
    check_init(settings.init, settings.init_options)
    make_rule(settings.rule, temperature=settings.temperature, options=settings.rule_options)
    if settings.fold is not None and settings.folds is None:
        raise HebbsegError(f"fold={settings.fold}: of how many? Say so in the settings, as in folds = 10.")
    if settings.folds is not None and settings.fold is not None and not 0 <= settings.fold < settings.folds:
        raise HebbsegError(f"fold={settings.fold}, folds={settings.folds}: allowed is fold from 0 to folds - 1.")
    if settings.folds is not None and settings.test != "auto":
        raise HebbsegError(
            f"folds={settings.folds} and test={settings.test!r}: a fold is the test side already. Leave one of them out."
        )


def _refuse_twins(recipe: Recipe, runs: list[GridRun]) -> None:
    seen: dict[str, GridRun] = {}
    for run in runs:
        digest = run.id.rsplit("-", 1)[1]
        other = seen.setdefault(digest, run)
        if other is not run:
            raise HebbsegError(
                f"Recipe {recipe.name}: arms {other.note['arm']!r} and {run.note['arm']!r} come to the same settings on data "
                f"{run.note['dataset']} ({run.note['axes']}). Leave one of them out, or change what should differ."
            )
