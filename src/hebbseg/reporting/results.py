"""Run folders read into rows. A folder that cannot be read is listed with the reason, never fatal."""

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

METRICS = ("dice", "jaccard", "hd95", "asd", "dice_pooled")
# Settings that say which arm, regime or repetition a run is.
NAMED_ELSEWHERE = {
    "data", "labelled", "folds", "fold", "seed", "init", "init_options", "method", "method_options", "rule", "rule_options",
    "transpose",
}  # fmt: skip

Pair = tuple[int | None, int]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A finished run: which cell of which table it belongs to, and what it measured.

    ``recipe`` is empty for a run of `hebbseg train`. ``labelled`` is the regime as written and ``percent`` the same as a
    number, if it can be one. ``axes`` are what else the recipe varies. ``metrics`` are fractions and distances as in
    summary.json; ``levels`` the Dice of a linear probe at each feature map.
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
    percent: float | None = None
    axes: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    cases: int = 0
    unit: str = "px"
    settings: Mapping[str, Any] = field(default_factory=dict)
    split_hash: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    seconds: float | None = None

    @property
    def pair(self) -> Pair:
        """What runs are paired by."""
        return self.fold, self.seed


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A folder that the tables do without, and why. ``stranger``: the recipe beside it does not ask for it."""

    folder: Path
    reason: str
    stranger: bool = False


@dataclass(frozen=True, kw_only=True)
class Results:
    runs: tuple[RunResult, ...]
    unread: tuple[Unread, ...]

    @property
    def strangers(self) -> int:
        """Runs left out because the recipe of their grid, as it is now, does not ask for them."""
        return sum(each.stranger for each in self.unread)


_STRANGER = (
    "not of the recipe beside it as it is now (the recipe was changed, or a default of hebbseg); `hebbseg report {}` goes by "
    "what each run there says of itself"
)


class _Unusable(Exception):
    """Why a run folder gives no row."""


def read_results(roots: Sequence[str | Path]) -> Results:
    """Every run folder at or below ``roots``, in the order of their paths.

    In the folder of a grid only those count that its recipe.toml asks for, and as it names them: the recipe may have been
    changed since, or another one may have done the run.

    Args:
        roots: run folders, or folders that hold some at any depth, such as the output of a grid.
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
        Unread(folder=path, reason=f"the runs beside it are all counted, as it cannot be read: {reason}")
        for path, reason in found.unreadable.items()
    ]
    if not runs and not unread:
        raise HebbsegError(
            f"{', '.join(map(str, roots))}: no run folder here (none has a run.json). Give folders that `hebbseg train` or "
            "`hebbseg grid` wrote."
        )
    once, again = _without_repetitions(_with_varied_settings(runs))
    return Results(runs=tuple(once), unread=(*unread, *again))


def _read(folder: Path, note: dict[str, Any] | None) -> RunResult:
    """``note``: what the recipe says of the run, where there is one; else run.json does."""
    run = _json(folder / "run.json")
    run |= {"grid": note} if note is not None else {}
    if run.get("status") != "done":
        raise _Unusable(f"not finished (status {run.get('status')!r} in run.json); `--resume` goes on with it")
    if not (folder / "summary.json").exists():
        raise _Unusable("nothing was measured: there is no summary.json (stage 1 alone, or a run without test cases)")
    summary = _json(folder / "summary.json")
    try:
        return _row(folder, run, summary)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _Unusable(f"run.json or summary.json is not as expected ({type(error).__name__}: {error})") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _Unusable(f"{path.name} is not readable ({error})") from error
    if not isinstance(content, dict):
        raise _Unusable(f"{path.name} holds a {type(content).__name__} where names and values were expected")
    return content


def _row(folder: Path, run: dict[str, Any], summary: dict[str, Any]) -> RunResult:
    settings, grid = settings_of_run(run["settings"]).flat(relevant=True), run.get("grid") or {}
    axes = dict(grid.get("axes") or {})
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
        labelled=labelled,
        percent=_percent(labelled, folder),
        fold=None if fold is None else int(fold),
        seed=seed,
        axes=dict(sorted(axes.items())),
        metrics={} if probe else {name: _number(summary[name], name) for name in METRICS},
        levels=_levels(summary) if probe else {},
        cases=int(summary["n"]),
        unit=str(summary.get("unit", "px")),
        settings=settings,
        split_hash=str(run.get("split_hash", "")),
        versions=dict(run.get("versions") or {}),
        command=str(run.get("command", "")),
        seconds=None if run.get("seconds") is None else _number(run["seconds"], "seconds"),
    )


def _number(value: Any, name: str) -> float:
    number = float(value["mean"] if isinstance(value, dict) else value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}")
    return number


def _levels(summary: dict[str, Any]) -> dict[str, float]:
    levels = dict(summary["levels"])
    if summary.get("decoder") is not None:
        levels["decoder"] = summary["decoder"]
    return {
        name: _number(value["dice"] if isinstance(value, dict) and "dice" in value else value, name)
        for name, value in levels.items()
    }


def _percent(labelled: str, folder: Path) -> float | None:
    """``"10%"`` → 10; of a number of masks, their share in the training images, if the split is still there."""
    try:
        if labelled.strip().endswith("%"):
            return float(labelled.strip().rstrip("%"))
        training = _json(folder / "split.json")["training"]
        return 100 * len(training["labelled"]) / (len(training["labelled"]) + len(training["unlabelled"]))
    except (_Unusable, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None


def _with_varied_settings(runs: Iterable[RunResult]) -> list[RunResult]:
    """Gives runs without a recipe their axes: the settings in which runs on the same data differ.

    So that 300 and 1000 updates are two columns of a table, and not two repetitions of one run.
    """
    answer = [run for run in runs if run.recipe]
    plain = [run for run in runs if not run.recipe]
    for dataset in sorted({run.dataset for run in plain}):
        here = [run for run in plain if run.dataset == dataset]
        # Of all runs: one without Hebbian learning has no setting of it.
        varied = sorted(name for name in set().union(*(run.settings for run in here)) if _varies(name, here))
        answer += [replace(run, axes={name: run.settings[name] for name in varied if name in run.settings}) for run in here]
    return answer


def _varies(name: str, runs: Sequence[RunResult]) -> bool:
    if name in NAMED_ELSEWHERE - {"data"}:
        return False
    return len({json.dumps(run.settings[name]) for run in runs if name in run.settings}) > 1


def _without_repetitions(runs: Iterable[RunResult]) -> tuple[list[RunResult], list[Unread]]:
    """The same cell, fold and seed counts once, or n would be a lie."""
    first: dict[str, RunResult] = {}
    again = []
    for run in sorted(runs, key=lambda run: run.folder):
        key = json.dumps([run.recipe, run.kind, run.dataset, run.arm, run.labelled, run.fold, run.seed, dict(run.axes)])
        if key in first:
            again.append(Unread(folder=run.folder, reason=_why_not_twice(run, first[key])))
        else:
            first[key] = run
    return list(first.values()), again


def _why_not_twice(run: RunResult, counted: RunResult) -> str:
    names = sorted({*run.settings, *counted.settings} - {"data"})
    other = [name for name in names if run.settings.get(name) != counted.settings.get(name)]
    if not other:
        return f"the same run as {counted.folder}, which is counted"
    return f"the same place in the tables as {counted.folder}, which is counted, though {', '.join(other)} differ"
