"""The runs of a recipe: their settings, ids and shared stage-1 weights."""

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hebbseg.config import BEFORE, FLAT_NAMES, OLD_NAMES, PRETEXT, Settings, former_options, make_settings
from hebbseg.config.pretrain import HEBBIAN_AUTO
from hebbseg.data.splits.draw import Regime
from hebbseg.errors import HebbsegError
from hebbseg.experiments.data_root import identity, locate
from hebbseg.experiments.recipe import Arm, Recipe
from hebbseg.methods import AUTO, WITH_UNLABELLED, auto_method, check_method, method_class
from hebbseg.networks.factory import UNET
from hebbseg.pretraining.hebbian import make_rule
from hebbseg.pretraining.initializers import check_init, is_initializer
from hebbseg.runs.preflight import check_network

WITHOUT_STAGE_1 = frozenset({"random"})
OLD_AUGMENT = {"full": True, "none": False}
OLD_SPELLING = {new: old for old, new in OLD_NAMES.items()}
LATER_SETTINGS = (
    "preset", "rule_options", "network", "network_options", "layers", "folds_by", "patch_foreground", "window_blend", "epochs",
    "momentum", "unlabelled_pool", "pretrain_step", "pretrain_schedule", "pretrain_augment", "pretrain_max_batches",
    "restore_norms", "images", "masks", "select", "borders", "from_run", "ignore", "spacing", "strides", "kernels", "level",
    "patch_background", "cutmix",
)  # fmt: skip
"""Added after version 0.1."""
UPDATES_WITH_EPOCHS = 1000
"""Part of the ids of runs with epochs, which do not depend on the default number of updates."""


@dataclass(frozen=True, kw_only=True)
class Stage1Fit:
    """Stage-1 weights of one network: number 0, or 1, 2, … for methods with several networks."""

    key: str
    settings: Settings
    network: int


@dataclass(frozen=True, kw_only=True)
class GridRun:
    """One run of a grid.

    Args:
        id: readable, and the same on every machine.
        note: the value of "grid" in run.json.
        stage1: fits that must be finished before the run starts.
    """

    id: str
    kind: Literal["train", "probe"]
    settings: Settings
    note: dict[str, Any]
    stage1: tuple[Stage1Fit, ...] = ()


def plan(recipe: Recipe, roots: Sequence[Path]) -> list[GridRun]:
    """Return all runs of a recipe, ordered by repetition (seed, fold); raise an error if any of them cannot start."""
    runs = _runs(recipe, _locate_all(recipe, roots))
    for run in runs:
        try:
            _check(run.settings, run.kind)
        except HebbsegError as error:
            raise HebbsegError(f"{_where(recipe, run.note['dataset'], run.note['arm'])}: {error}") from None
    _check_distinct(recipe, runs)
    runs = [replace(run, stage1=_stage1(run, recipe)) for run in runs]
    # Repetitions vary slowest, so that a partial grid contains complete comparisons.
    return sorted(runs, key=lambda run: (run.settings.seed, run.settings.data.fold or 0))


def _locate_all(recipe: Recipe, roots: Sequence[Path]) -> dict[str, str]:
    places, errors = {}, {}
    for name, data in recipe.data.items():
        try:
            places[name] = locate(data.source, roots)
        except HebbsegError as error:
            errors[name] = str(error)
    for name, message in errors.items():
        others = "".join(f" --data {found}" for found in places)
        hint = f" To run only the other data sets:{others}." if others else ""
        raise HebbsegError(f"Recipe {recipe.name}, [data.{name}]: {message}{hint}")
    return places


def notes_of(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Return {id: note} of all runs of a recipe, whether or not its data exist."""
    return {run.id: run.note for run in _runs(recipe, {name: data.source for name, data in recipe.data.items()})}


def _runs(recipe: Recipe, places: dict[str, str]) -> list[GridRun]:
    """Return each run once: an arm that drops an axis has the same run at each of its values."""
    runs = {}
    for name, place in places.items():
        axes = recipe.axes_of(name)
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            for arm in (arm for arm in recipe.arms if not arm.skips(name, point)):
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
        "order": recipe.arms.index(arm),
        "axes": point,
    }
    note |= {"baseline": recipe.baseline} if recipe.baseline else {}
    note |= {"gain_over": arm.gain_over} if arm.gain_over else {}
    facts = _identifying(settings, recipe, data)
    if recipe.kind == "train" and settings.finetune.method == AUTO:
        # A change of the default method changes the id; whether all images have masks is not known yet.
        method, options = auto_method(unlabelled=1)
        facts["method"] = (method, former_options(method, options))
    words = [data, arm.name, *(f"{_SHORT.get(name, name)}{value}" for name, value in point.items())]
    readable = re.sub(r"[^a-z0-9.]+", "-", "_".join(words).lower().replace("%", "")).strip("-")
    digest = _hash({"kind": recipe.kind} | facts)
    return GridRun(id=f"{readable[:80]}-{digest}", kind=recipe.kind, settings=settings, note=note)


_SHORT = {"labelled": "", "seed": "s", "fold": "f", "temperature": "t"}


def _stage1(run: GridRun, recipe: Recipe) -> tuple[Stage1Fit, ...]:
    """Return the fits a run needs: none without stage 1, or if --init names a weights file.

    With a time budget, stage 1 is part of the time of its run and is not shared.
    """
    settings = run.settings
    if settings.finetune.time_budget_s is not None:
        return ()
    if settings.pretrain.init in WITHOUT_STAGE_1 or not is_initializer(settings.pretrain.init):
        return ()
    method = WITH_UNLABELLED if settings.finetune.method == AUTO else settings.finetune.method
    networks = method_class(method).networks if run.kind == "train" else 1
    # Stage 1 depends neither on masks nor on settings of stage 2.
    facts = _identifying(settings, recipe, run.note["dataset"])
    of_stage2 = {OLD_SPELLING.get(name, name) for name, (section, _, _) in FLAT_NAMES.items() if section == "finetune"}
    facts = {name: value for name, value in facts.items() if name not in of_stage2 | {"labelled", "select"}}
    return tuple(
        Stage1Fit(
            key=f"{settings.pretrain.init}-{_hash(facts | {'network': [n, facts['network']] if 'network' in facts else n})}",
            settings=settings,
            network=n,
        )
        for n in range(networks)
    )


def _identifying(settings: Settings, recipe: Recipe, data: str) -> dict[str, Any]:
    """Return all settings a result depends on, defaults included; the same on every machine.

    To keep the ids of version 0.1, settings have their names of that version, and later ones are omitted at their default.
    """
    described = recipe.data[data]
    flat = settings.changed(data=identity(described.identity or data, described.source)).flat(relevant=True)
    flat |= {name: getattr(settings.hardware, name) for name in ("devices", "num_nodes")}
    flat["method_options"] = former_options(settings.finetune.method, settings.finetune.method_options)
    flat["augment"] = OLD_AUGMENT.get(flat["augment"], flat["augment"])
    defaults = {name: FLAT_NAMES[name][2].get_default(call_default_factory=True) for name in LATER_SETTINGS}
    defaults |= {"metrics_grid": "training"} | BEFORE  # of version 0.2
    if settings.finetune.epochs is not None:
        flat["updates"] = UPDATES_WITH_EPOCHS
    if settings.pretrain.init not in PRETEXT:
        defaults["pretrain_schedule"] = HEBBIAN_AUTO["schedule"]
    return {OLD_SPELLING.get(n, n): value for n, value in flat.items() if n not in defaults or value != defaults[n]}


def _hash(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]


def _check(settings: Settings, kind: str) -> None:
    """Raise an error for settings that are invalid for any data."""
    data, network = settings.data, settings.network.name
    if Regime.parse(data.labelled).is_nothing:
        raise HebbsegError(f"labelled={data.labelled}: a run of a grid needs labelled images. Set labelled to at least 1.")
    if kind == "probe" and settings.hardware.devices * settings.hardware.num_nodes > 1:
        raise HebbsegError("A probe runs in one process. Remove devices and num_nodes.")
    if kind == "probe" and network != UNET:
        raise HebbsegError(f"network={network}: a probe needs the levels of network={UNET}. Remove network.")
    check_network(settings)
    check_method(settings.finetune.method, settings.finetune.method_options, network=network)
    make_rule(settings.pretrain)
    check_init(settings.pretrain.init, settings.pretrain.init_options, network=network)
    if data.fold is not None and data.folds is None:
        raise HebbsegError(f"fold={data.fold}: the number of folds is not set. Add it to [settings], as in folds = 10.")
    if data.folds is not None and data.fold is not None and not 0 <= data.fold < data.folds:
        raise HebbsegError(f"fold={data.fold}, folds={data.folds}: fold must be from 0 to folds - 1.")
    if data.folds is not None and data.test != "auto":
        raise HebbsegError(
            f"folds={data.folds} and test={data.test!r}: with folds, each fold is the test set once. Remove one of the two."
        )


def _check_distinct(recipe: Recipe, runs: list[GridRun]) -> None:
    seen: dict[str, GridRun] = {}
    for run in runs:
        other = seen.setdefault(run.id.rsplit("-", 1)[1], run)
        if other is not run:
            raise HebbsegError(
                f"Recipe {recipe.name}: arms {other.note['arm']!r} and {run.note['arm']!r} have the same settings on data "
                f"{run.note['dataset']} ({run.note['axes']}). Remove one of them, or change the setting that should differ."
            )
