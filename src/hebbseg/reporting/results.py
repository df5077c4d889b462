"""Results read from run folders; unreadable folders are listed with the reason."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hebbseg.config import settings_of_run
from hebbseg.errors import HebbsegError
from hebbseg.reporting.arm_names import BASELINE, arm_of, dataset_of
from hebbseg.reporting.find_runs import find_runs
from hebbseg.text_files import read_json

READ = ("dice", "jaccard", "hd95", "asd", "dice_pooled")
METRICS = (*READ, "jaccard_pooled")
# Settings that define the arm, label regime or repetition of a run.
NAMED_ELSEWHERE = {
    "labelled", "folds", "fold", "seed", "init", "init_options", "method", "method_options", "rule", "rule_options",
    "transpose",
}  # fmt: skip

Pair = tuple[int | None, int]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A finished run: its place in the tables, and its results.

    ``recipe`` is empty for a run of `hebbseg train`. ``labelled`` is the label regime as written and ``percent`` its
    percentage, if known. ``order`` is the position of the arm in the recipe. ``axes`` are the other axes of the recipe.
    ``metrics`` are as in summary.json, with the Jaccard index of the pooled voxels; ``levels`` and
    ``pooled_levels`` are the linear-probe Dice of each level; ``classes`` is the number of foreground classes. ``grid`` tells
    whether metrics were computed in the original pixels or at the size used in training, as always before version 0.3,
    and ``planned`` whether ``size=auto`` was planned; it was 128 × 128 before.
    ``stopped_by`` is what ended stage 2: ``"updates"``, ``"time_budget"`` or ``"patience"``; empty if it is not recorded.
    """

    folder: Path
    dataset: str
    arm: str
    labelled: str
    fold: int | None
    seed: int
    recipe: str = ""
    title: str = ""
    kind: str = "train"
    table: str = ""
    baseline: str = BASELINE
    gain_over: str | None = None
    order: int | None = None
    percent: float | None = None
    axes: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    pooled_levels: Mapping[str, float] = field(default_factory=dict)
    classes: int = 1
    cases: int = 0
    unit: str = "px"
    grid: str = "training"
    planned: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    split_hash: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    seconds: float | None = None
    updates_done: int | None = None
    updates_planned: int | None = None
    stopped_by: str = ""

    @property
    def pair(self) -> Pair:
        """The key runs are paired by."""
        return self.fold, self.seed


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A folder excluded from the tables, and why. ``stranger``: the recipe of its grid does not list it."""

    folder: Path
    reason: str
    stranger: bool = False


@dataclass(frozen=True, kw_only=True)
class Results:
    runs: tuple[RunResult, ...]
    unread: tuple[Unread, ...]

    @property
    def strangers(self) -> int:
        """Number of runs excluded because the current recipe of their grid does not list them."""
        return sum(each.stranger for each in self.unread)


_STRANGER = (
    "not in the current recipe of this grid (the recipe or a default of hebbseg has changed); to include it, run "
    "`hebbseg report {}`, which ignores the recipe"
)


class _Unusable(Exception):
    """Why a run folder is excluded."""


def read_results(roots: Sequence[str | Path]) -> Results:
    """Return the results of every run folder at or below ``roots``, sorted by path.

    In the output folder of a grid, only the runs in its current recipe.toml are included, under the names given there.
    """
    runs: list[RunResult] = []
    unread: list[Unread] = []
    found = find_runs(roots)
    for folder in found.folders:
        recipe = found.recipe_of(folder)
        if recipe is not None and folder.resolve().name not in recipe:
            unread.append(Unread(folder=folder, reason=_STRANGER.format(folder.parent), stranger=True))
            continue
        try:
            runs.append(_read(folder, recipe[folder.resolve().name] if recipe else None))
        except _Unusable as reason:
            unread.append(Unread(folder=folder, reason=str(reason)))
    unread += [
        Unread(folder=path, reason=f"not readable, so all runs of this grid are included: {reason}")
        for path, reason in found.unreadable.items()
    ]
    if not runs and not unread:
        raise HebbsegError(
            f"{', '.join(map(str, roots))}: no run folder found (no run.json). Give folders written by `hebbseg train` or "
            "`hebbseg grid`."
        )
    included, duplicates = _without_duplicates(_with_varied_settings(runs))
    return Results(runs=tuple(included), unread=(*unread, *duplicates))


def _read(folder: Path, note: dict[str, Any] | None) -> RunResult:
    """Read a run; ``note`` from the recipe overrides the one in run.json."""
    run = _json(folder / "run.json")
    run |= {"grid": note} if note is not None else {}
    if run.get("status") != "done":
        reason = f": {str(run.get('error'))[:300]}" if run.get("status") == "failed" else ""
        raise _Unusable(f"not finished (status {run.get('status')!r} in run.json{reason}); continue it with --resume")
    if not (folder / "summary.json").exists():
        raise _Unusable("no test results: there is no summary.json (stage 1 only, or no test cases)")
    summary = _json(folder / "summary.json")
    try:
        return _row(folder, run, summary)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _Unusable(f"run.json or summary.json has unexpected content ({type(error).__name__}: {error})") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, "", error=lambda _, finding, remedy: HebbsegError(finding))
    except HebbsegError as error:
        raise _Unusable(f"{path.name} is not readable ({error})") from error


def _row(folder: Path, run: dict[str, Any], summary: dict[str, Any]) -> RunResult:
    settings, grid = settings_of_run(run["settings"]).flat(relevant=True), run.get("grid") or {}
    native = "original" if settings["size"] == "native" else "training"
    settings["metrics_grid"] = str(summary.get("grid", native))
    axes = dict(grid.get("axes") or {})
    if any(isinstance(value, list | dict) for value in [*axes.values(), grid.get("gain_over")]):
        raise TypeError("axes of the grid are not plain values")
    labelled = str(axes.pop("labelled", settings["labelled"]))
    fold = axes.pop("fold", settings["fold"])
    seed = int(axes.pop("seed", settings["seed"]))
    arm, gain_over = (grid["arm"], grid.get("gain_over")) if grid else arm_of(settings)
    probe = grid.get("kind") == "probe" or summary.get("kind") == "probe"
    return RunResult(
        folder=folder,
        recipe=str(grid.get("recipe", "")),
        title=str(grid.get("title", "")),
        kind="probe" if probe else "train",
        table=str(grid.get("table", "")),
        dataset=str(grid.get("dataset") or dataset_of(settings["data"])),
        arm=str(arm),
        baseline=str(grid.get("baseline") or BASELINE),
        gain_over=gain_over,
        order=None if grid.get("order") is None else int(grid["order"]),
        labelled=labelled,
        percent=_percent(labelled, folder),
        fold=None if fold is None else int(fold),
        seed=seed,
        axes=dict(sorted(axes.items())),
        metrics={} if probe else _metrics(summary),
        levels=_levels(summary, "dice") if probe else {},
        pooled_levels=_levels(summary, "dice_pooled") if probe else {},
        classes=len(summary.get("classes") or [1]),
        cases=int(summary["n"]),
        unit=str(summary.get("unit", "px")),
        grid=settings["metrics_grid"],
        planned=bool(run.get("plan")),
        settings=settings,
        split_hash=str(run.get("split_hash", "")),
        versions=dict(run.get("versions") or {}),
        command=str(run.get("command", "")),
        seconds=None if run.get("seconds") is None else _number(run["seconds"], "seconds"),
        **_length(run, settings),
    )


def _length(run: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the updates of stage 2 and what ended it; versions before 0.3 did not record them."""
    planned = run.get("updates_planned", None if settings.get("epochs") else settings.get("updates"))
    done = run.get("updates_done", planned)
    return {
        "updates_done": None if done is None else int(done),
        "updates_planned": None if planned is None else int(planned),
        "stopped_by": str(run.get("stopped_by", "")),
    }


def _metrics(summary: dict[str, Any]) -> dict[str, float]:
    means = {name: _number(summary[name], name) for name in READ}
    pooled = [_number(each["dice_pooled"], "dice_pooled") for each in (summary.get("classes") or {"1": summary}).values()]
    # J = D / (2 − D) holds for one set of voxels, so it is applied to each class.
    jaccard = sum(dice / (2 - dice) for dice in pooled) / len(pooled)
    return means | {"jaccard_pooled": jaccard}


def _number(value: Any, name: str) -> float:
    number = float(value["mean"] if isinstance(value, dict) else value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}")
    return number


def _levels(summary: dict[str, Any], metric: str) -> dict[str, float]:
    """Return one metric by level; a level written as a number, as in earlier versions, is its Dice."""
    levels = dict(summary["levels"])
    if summary.get("decoder") is not None:
        levels["decoder"] = summary["decoder"]
    named = {
        name: value if isinstance(value, dict) and "mean" not in value else {"dice": value} for name, value in levels.items()
    }
    return {name: _number(values[metric], name) for name, values in named.items() if metric in values}


def _percent(labelled: str, folder: Path) -> float | None:
    """Return 10 for ``"10%"``; for a number of masks, their percentage in the split, if it is readable."""
    try:
        if labelled.strip().endswith("%"):
            return float(labelled.strip().rstrip("%"))
        training = _json(folder / "split.json")["training"]
        return 100 * len(training["labelled"]) / (len(training["labelled"]) + len(training["unlabelled"]))
    except (_Unusable, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def _with_varied_settings(runs: Iterable[RunResult]) -> list[RunResult]:
    """Set the axes of runs without a recipe to the settings that differ between runs on the same dataset.

    Runs with 300 and 1000 updates are then different arms, not repetitions.
    """
    result = [run for run in runs if run.recipe]
    plain = [run for run in runs if not run.recipe]
    for dataset in sorted({run.dataset for run in plain}):
        group = [run for run in plain if run.dataset == dataset]
        # The union over runs: without Hebbian learning, a run has no settings of it.
        varied = sorted(name for name in set().union(*(run.settings for run in group)) if _varies(name, group))
        result += [replace(run, axes={name: run.settings[name] for name in varied if name in run.settings}) for run in group]
    return result


def _varies(name: str, runs: Sequence[RunResult]) -> bool:
    return name not in NAMED_ELSEWHERE and len({json.dumps(run.settings[name]) for run in runs if name in run.settings}) > 1


def _without_duplicates(runs: Iterable[RunResult]) -> tuple[list[RunResult], list[Unread]]:
    """Keep one run per cell, fold and seed, so that n counts independent runs."""
    first: dict[str, RunResult] = {}
    duplicates = []
    for run in sorted(runs, key=lambda run: run.folder):
        key = json.dumps([run.recipe, run.kind, run.dataset, run.arm, run.labelled, run.fold, run.seed, dict(run.axes)])
        if key in first:
            duplicates.append(Unread(folder=run.folder, reason=_why_excluded(run, first[key])))
        else:
            first[key] = run
    return list(first.values()), duplicates


def _why_excluded(run: RunResult, included: RunResult) -> str:
    names = sorted({*run.settings, *included.settings} - {"data"})
    different = [name for name in names if run.settings.get(name) != included.settings.get(name)]
    if not different:
        return f"duplicate of {included.folder}, which is included"
    return f"same table cell as {included.folder}, which is included, with different settings: {', '.join(different)}"
