"""The metrics of a run by case and class, read from metrics.csv."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hebbseg.errors import explaining
from hebbseg.text_files import read_text

NAME = "metrics.csv"
REMEDY = "Restore it from a backup, or evaluate the model again with `hebbseg evaluate`."


@dataclass(frozen=True, kw_only=True)
class CaseMetrics:
    """The Dice of a class in a case, and the numbers of its pixels that were predicted and annotated."""

    case: str
    index: int
    dice: float
    predicted: int
    annotated: int


def read_metrics(run: Path) -> list[CaseMetrics]:
    """Return the rows of metrics.csv in a run folder."""
    text = read_text(run / NAME, REMEDY)
    with explaining(run / NAME, "not a table of metrics", REMEDY):
        return [
            CaseMetrics(
                case=row["case"],
                index=int(row["class"]),
                dice=float(row["dice"]),
                predicted=int(row["n_prediction"]),
                annotated=int(row["n_target"]),
            )
            for row in csv.DictReader(io.StringIO(text, newline=""))
        ]


def dice_by_case(rows: Sequence[CaseMetrics]) -> dict[str, float]:
    """Return the Dice of each case, the mean over its classes."""
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row.case, []).append(row.dice)
    return {case: sum(each) / len(each) for case, each in values.items()}
