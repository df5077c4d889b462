"""Results published in the paper, shown for reference."""

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

CITATION = (
    "L. Ciampi, G. Lagani, G. Amato, F. Falchi: Biologically-inspired Semi-supervised Semantic Segmentation for "
    "Biomedical Imaging, Neural Networks"
)
CAUTION = (
    "Rows in italics are published results (Ciampi et al.) under a different protocol: checkpoints were selected on the "
    "images reported. They are shown for reference and are not comparable with the other rows."
)
PROPOSED = "Hebbian SWTA-TSA"  # "Ours" in the paper's tables


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of published.csv; ``values``: {metric: (mean, half-width of the 90 % interval or None)} in percent or pixels."""

    method: str
    percent: float
    values: dict[str, tuple[float, float | None]]


def published(table: str, dataset: str) -> list[Published]:
    """Return the rows of one table for a dataset; case and suffixes of its name, as in ``la_half``, are ignored."""
    wanted = re.split(r"[-_ ]", dataset.casefold())[0]
    return [row for kind, name, row in _rows() if kind == table and name.casefold() == wanted]


@cache
def _rows() -> tuple[tuple[str, str, Published], ...]:
    text = files("hebbseg.reporting").joinpath("published.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple((row["table"], row["dataset"], _row(row)) for row in csv.DictReader(lines))


def _row(row: dict[str, str]) -> Published:
    return Published(
        method=PROPOSED if row["method"] == "Ours" else row["method"],
        percent=float(row["labelled_percent"]),
        values={
            metric: (float(row[metric]), float(row[f"{metric}_ci90"]) if row[f"{metric}_ci90"] else None)
            for metric in ("dice", "jaccard", "hd95", "asd")
            if row[metric]
        },
    )
