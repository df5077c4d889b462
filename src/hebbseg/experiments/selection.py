"""Selection of the runs of a grid by arm, by values of axes, and by results that exist already. Ids do not change."""

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.experiments.grid import GridRun

COLUMN = "run"
"""Column of run ids in the runs.csv of ``hebbseg report --tables``."""


def of_arms(runs: Sequence[GridRun], pattern: str | None) -> list[GridRun]:
    """Return the runs of arms whose name contains a match of the regular expression; all if it is None."""
    if pattern is None:
        return list(runs)
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise HebbsegError(f"--only {pattern!r} is not a regular expression ({error}).") from None
    chosen = [run for run in runs if wanted.search(run.note["arm"])]
    if not chosen:
        names = sorted({run.note["arm"] for run in runs})
        raise HebbsegError(f"--only {pattern!r} matches no arm. {did_you_mean(pattern, names)}")
    return chosen


def parse_where(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values by axis: ``["labelled=1%,2%", "fold=0"]`` → {"labelled": ["1%", "2%"], "fold": ["0"]}."""
    wanted: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not all(value.strip() for value in values.split(",")):
            raise HebbsegError(f"--where {text!r} is not AXIS=VALUE,VALUE,… Example: --where fold=0,1,2")
        wanted.setdefault(name.strip(), []).extend(value.strip() for value in values.split(","))
    return wanted


def where(runs: Sequence[GridRun], wanted: Mapping[str, Sequence[str]]) -> list[GridRun]:
    """Return the runs with these values of these axes. An arm that does not depend on an axis is kept."""
    for axis, texts in wanted.items():
        axes = {name for run in runs for name in run.note["axes"]}
        if axis not in axes:
            raise HebbsegError(f"--where {axis}: not an axis of the recipe. {did_you_mean(axis, axes)}")
        values = {str(run.note["axes"][axis]) for run in runs if axis in run.note["axes"]}
        for text in texts:
            if text not in values:
                raise HebbsegError(f"--where {axis}={text}: not a value of this axis. {did_you_mean(text, values)}")
    chosen = [run for run in runs if all(str(run.note["axes"].get(axis, texts[0])) in texts for axis, texts in wanted.items())]
    if not chosen:
        given = " ".join(f"--where {axis}={','.join(texts)}" for axis, texts in wanted.items())
        raise HebbsegError(f"{given}: no run has these values together. Select fewer axes.")
    return chosen


def finished_runs(files: Sequence[Path]) -> set[str]:
    """Return the run ids in CSV files of results."""
    ids: set[str] = set()
    for path in files:
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = csv.DictReader(file)
                if COLUMN not in (rows.fieldnames or ()):
                    raise HebbsegError(
                        f"--done {path}: there is no column {COLUMN!r}. Use a runs.csv of `hebbseg report --tables`."
                    )
                ids |= {row[COLUMN] for row in rows if row[COLUMN]}
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a table in UTF-8"
            raise HebbsegError(f"--done {path}: {reason}. Use a runs.csv of `hebbseg report --tables`.") from None
    return ids
