"""All runs as tidy CSV, one row per run, for external statistics software."""

from collections.abc import Sequence
from typing import Any

from hebbseg.reporting.results import METRICS, RunResult
from hebbseg.text_files import csv_text

PERCENT = frozenset({"dice", "jaccard", "dice_pooled", "jaccard_pooled"})


def tidy_csv(runs: Sequence[RunResult]) -> str:
    """Return the runs as CSV: overlap metrics in percent, distances in ``unit``, missing values empty.

    Further axes of the recipe and each level of a linear probe (``probe.LEVEL``) have columns of their own.
    """
    axes = list(dict.fromkeys(name for run in runs for name in run.axes))
    levels = list(dict.fromkeys(name for run in runs for name in run.levels))
    metrics = [name for name in METRICS if any(name in run.metrics for run in runs)]
    rows: list[list[Any]] = [
        ["recipe", "dataset", "labelled_percent", *axes, "fold", "seed", "arm", *metrics,
         *(f"probe.{name}" for name in levels), "unit", "cases", "seconds", "split", "run"]
    ]  # fmt: skip
    for run in runs:
        rows.append(
            [
                run.recipe,
                run.dataset,
                _number(run.percent, 1),
                *(run.axes.get(name, "") for name in axes),
                "" if run.fold is None else run.fold,
                run.seed,
                run.arm,
                *(_number(run.metrics.get(name), 100 if name in PERCENT else 1) for name in metrics),
                *(_number(run.levels.get(name), 100) for name in levels),
                run.unit,
                run.cases,
                _number(run.seconds, 1),
                run.split_hash[:12],
                run.folder.name,
            ]
        )
    return csv_text(rows)


def _number(value: float | None, scale: float) -> str:
    return "" if value is None else f"{scale * value:.4f}".rstrip("0").rstrip(".")
