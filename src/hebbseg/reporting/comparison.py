"""Comparison of arms on one dataset by label regime, with repetitions paired by fold and seed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from hebbseg.config import AUTO_INIT
from hebbseg.reporting.results import Pair, RunResult
from hebbseg.reporting.statistics import Estimate, PairedDifference, mean_interval, paired_difference

PROPOSED = "Ours"


class Comparison:
    """The runs of one recipe on one dataset.

    The ``label`` of an arm is its name, followed by the other axes it varies: "Hebbian (temperature 0.1)".
    """

    def __init__(self, runs: Sequence[RunResult]) -> None:
        self.runs = list(runs)
        self.dataset = runs[0].dataset
        self.recipe = runs[0].recipe
        self.title = runs[0].title
        self.table = runs[0].table
        self.kind = runs[0].kind
        self.baseline = runs[0].baseline

    @cached_property
    def _varied(self) -> dict[str, list[str]]:
        """Axes with more than one value, by arm."""
        varied = {}
        for arm in {run.arm for run in self.runs}:
            axes = [run.axes for run in self.runs if run.arm == arm]
            names = sorted({name for each in axes for name in each})
            varied[arm] = [name for name in names if len({repr(each.get(name)) for each in axes}) > 1]
        return varied

    def label(self, run: RunResult) -> str:
        varied = [f"{name} {_shown(run.axes[name])}" for name in self._varied[run.arm] if name in run.axes]
        return f"{run.arm} ({', '.join(varied)})" if varied else run.arm

    @cached_property
    def _cells(self) -> dict[tuple[str, str], list[RunResult]]:
        cells: dict[tuple[str, str], list[RunResult]] = {}
        for run in self.runs:
            cells.setdefault((self.label(run), run.labelled), []).append(run)
        return cells

    @cached_property
    def _first(self) -> dict[str, RunResult]:
        """The first run of each label in the order of the recipe, the proposed method last.

        Without a recipe: the baseline first, then sorted by name.
        """
        runs: dict[str, RunResult] = {}
        for run in self.runs:
            runs.setdefault(self.label(run), run)
        ordered = all(run.order is not None for run in runs.values())

        def place(item: tuple[str, RunResult]) -> tuple[bool, int, tuple[tuple[int, float, str], ...]]:
            label, run = item
            first = run.order if ordered and run.order is not None else int(run.arm != self.baseline)
            return run.arm == PROPOSED, first, natural(label)

        return dict(sorted(runs.items(), key=place))

    @property
    def labels(self) -> list[str]:
        return list(self._first)

    @property
    def proposed(self) -> str | None:
        """The label of the proposed method; None if there is only the baseline.

        The arm named `PROPOSED`; else the last one with SWTA-TSA in all parts of the network; else the last one with Hebbian
        initialization; else the last one. It never depends on results.
        """
        others = [label for label in self.labels if self.arm(label) != self.baseline]
        named = [label for label in others if self.arm(label) == PROPOSED]
        hebbian = [label for label in others if self.setting(label, "init") in ("hebbian", AUTO_INIT)]
        wanted = {"rule": "swta", "transpose": "tsa", "part": "all"}
        tsa = [label for label in hebbian if all(self.setting(label, name) == value for name, value in wanted.items())]
        chosen = named or tsa or hebbian or others
        return chosen[-1] if chosen else None

    def arm(self, label: str) -> str:
        return self._first[label].arm

    def labels_of(self, arm: str) -> list[str]:
        return [label for label, run in self._first.items() if run.arm == arm]

    @cached_property
    def regimes(self) -> list[str]:
        """Label regimes in ascending order."""
        found = {run.labelled: run.percent for run in self.runs}
        return sorted(found, key=lambda name: (found[name] is None, found[name] or 0.0, natural(name)))

    @cached_property
    def percents(self) -> dict[str, float]:
        """Percentages of the label regimes that have one."""
        return {run.labelled: run.percent for run in self.runs if run.percent is not None}

    def cell(self, label: str, regime: str) -> list[RunResult]:
        return self._cells.get((label, regime), [])

    def values(self, label: str, regime: str, metric: str) -> dict[Pair, float]:
        return {run.pair: run.metrics[metric] for run in self.cell(label, regime)}

    def estimate(self, label: str, regime: str, metric: str) -> Estimate | None:
        values = self.values(label, regime, metric)
        return mean_interval(list(values.values())) if values else None

    def partner(self, label: str, arm: str | None) -> str | None:
        """Return the label of ``arm`` with the same values on all common axes; None if there is none or more than one.

        Axes of only one of the two are ignored, such as the temperature if the baseline has no stage 1.
        """
        run = self._first[label]
        if arm is None or arm == run.arm:
            return None
        fitting = [
            name
            for name, other in self._first.items()
            if other.arm == arm and all(run.axes[key] == value for key, value in other.axes.items() if key in run.axes)
        ]
        return fitting[0] if len(fitting) == 1 else None

    def best_first(self) -> list[str]:
        """Return the labels of all arms except the baseline, by descending mean Dice over their runs."""
        dice: dict[str, list[float]] = {}
        for (label, _), runs in self._cells.items():
            dice.setdefault(label, []).extend(run.metrics["dice"] for run in runs)
        others = [label for label in self.labels if self.arm(label) != self.baseline]
        return sorted(others, key=lambda label: -sum(dice[label]) / len(dice[label]))

    def gains(self) -> list[tuple[str, str]]:
        """Return the pairs (X + stage 1, X) defined by `gain_over`."""
        pairs = [(label, self.partner(label, run.gain_over)) for label, run in self._first.items()]
        return [(label, other) for label, other in pairs if other is not None]

    def against_baseline(self) -> list[tuple[str, str]]:
        pairs = [(label, self.partner(label, self.baseline)) for label in self.labels]
        return [(label, other) for label, other in pairs if other is not None]

    def difference(self, label: str, other: str, regime: str, metric: str = "dice") -> PairedDifference | None:
        a, b = self.values(label, regime, metric), self.values(other, regime, metric)
        return paired_difference(a, b) if set(a) & set(b) else None

    def level_difference(self, label: str, other: str, regime: str, level: str) -> PairedDifference | None:
        """Return the paired difference in linear-probe Dice at one level."""
        cells = self.cell(label, regime), self.cell(other, regime)
        a, b = ({run.pair: run.levels[level] for run in cell if level in run.levels} for cell in cells)
        return paired_difference(a, b) if set(a) & set(b) else None

    def setting(self, label: str, name: str) -> Any:
        """Return the value of a setting in the runs of a label."""
        run = self._first[label]
        return run.axes.get(name, run.settings.get(name))


def comparisons(runs: Iterable[RunResult]) -> list[Comparison]:
    """Return one comparison per recipe and dataset, sorted by name; runs without a recipe come last."""
    groups: dict[tuple[bool, str, str, str], list[RunResult]] = {}
    for run in runs:
        groups.setdefault((not run.recipe, run.recipe, run.kind, run.dataset), []).append(run)
    return [Comparison(groups[key]) for key in sorted(groups)]


def blocks(comparison: Comparison, labels: Sequence[str], regimes: Sequence[str], metric: str) -> list[dict[str, float]]:
    """Return {label: value} for each label regime, fold and seed."""
    found: dict[tuple[str, Pair], dict[str, float]] = {}
    for regime in regimes:
        for label in labels:
            for pair, value in comparison.values(label, regime, metric).items():
                found.setdefault((regime, pair), {})[label] = value
    return list(found.values())


def curve(comparison: Comparison, label: str, metric: str = "dice") -> dict[float, Mapping[Pair, float]]:
    """Return {percent: {(fold, seed): value}} of the label regimes with a percentage and runs."""
    found = {
        percent: comparison.values(label, regime, metric)
        for regime, percent in sorted(comparison.percents.items(), key=lambda item: item[1])
    }
    return {percent: values for percent, values in found.items() if values}


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Return a key that sorts numbers in a text by value: "level2" before "level10"."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", text)
    return tuple((0, float(part), "") if part[0].isdigit() else (1, 0.0, part.casefold()) for part in parts)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
