"""Results published in the paper, and the rules by which a run is the same algorithm on the same data."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CITATION = (
    "L. Ciampi, G. Lagani, G. Amato, F. Falchi: Biologically-inspired Semi-supervised Semantic Segmentation for "
    "Biomedical Imaging, Neural Networks"
)
CAUTION = (
    "Gray rows in italics: published (Ciampi et al.), for the same algorithm, data set and metric. Overlap is computed over "
    "the voxels of all test images together, so it is compared with the pooled columns. The protocol differs: checkpoint and "
    "threshold were selected on the images reported. Published results are not marked."
)
IMAGES = {"glas": 165, "ph2": 200, "hmeps": 11897, "la": 100}
"""Published data set → number of images."""

VOLUMES = frozenset({"la"})
WORKING_SIZE = 128  # pixels per side, 2D
# Metric of a run → column of published.csv with the same definition.
COLUMNS = {"dice_pooled": "dice", "jaccard_pooled": "jaccard", "hd95": "hd95", "asd": "asd"}
DISTANCES = frozenset({"hd95", "asd"})

SINGLE_STAGE = {"em": "EM", "cct": "CCT", "uamt": "UAMT", "cps": "CPS", "urpc": "URPC", "dtc": "DTC"}
TWO_STAGE = {"vae": "VAE", "superpix": "SuperpixSSL"}
WEIGHT_OPTIONS = frozenset({"weight", "ramp", "ramp_share"})  # of the unlabelled loss; others change the method
FULLY_SUPERVISED = "Fully Sup."
OURS = "SWTA-TSA"
# The Hebbian learning of the paper: all layers at once, on plain patches and activations.
STAGE_1 = {
    "part": "all", "levels": "all", "layers": "auto", "rule_options": {}, "layerwise": False, "unit_norm": False,
    "center": False, "standardize": False, "whiten": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of published.csv; ``values``: {metric: (mean, half-width of the 90 % interval or None)} in percent or pixels."""

    method: str
    percent: float
    values: dict[str, tuple[float, float | None]]


def published(table: str, dataset: str) -> list[Published]:
    """Return the rows of one table for a data set, by its exact name up to case: ``la_half`` is not ``LA``."""
    return [row for kind, name, row in _rows() if kind == table and name.casefold() == dataset.casefold()]


def algorithm(settings: Mapping[str, Any]) -> str | None:
    """Return the name in the paper of the algorithm with these settings; None if the paper does not have it.

    Hebbian variants are named as in the ablation, ``SWTA-TSA``; supervised training from random weights is
    `FULLY_SUPERVISED`, which the paper has only with all labels. The name of an arm is ignored.
    """
    init, method = settings.get("init"), settings.get("method")
    if settings.get("network", "unet") != "unet" or set(settings.get("method_options") or {}) - WEIGHT_OPTIONS:
        return None
    if init == "random":
        return FULLY_SUPERVISED if method == "supervised" else SINGLE_STAGE.get(str(method))
    return pretraining(settings) if method == "supervised" else None


def pretraining(settings: Mapping[str, Any]) -> str | None:
    """Return the name in the paper of the pre-training of a run, whatever follows it."""
    init = settings.get("init")
    if settings.get("init_options"):
        return None
    if init == "hebbian" and all(settings.get(name, value) == value for name, value in STAGE_1.items()):
        rule, form = settings.get("rule"), settings.get("transpose")
        return f"{rule}-{form}".upper() if rule in ("swta", "hpca") and form in ("s", "tsa") else None
    return TWO_STAGE.get(str(init))


@cache
def _rows() -> tuple[tuple[str, str, Published], ...]:
    text = files("hebbseg.reporting").joinpath("published.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple((row["table"], row["dataset"], _row(row)) for row in csv.DictReader(lines))


def _row(row: dict[str, str]) -> Published:
    return Published(
        method=row["method"],
        percent=float(row["labelled_percent"]),
        values={
            metric: (float(row[column]), float(row[f"{column}_ci90"]) if row[f"{column}_ci90"] else None)
            for metric, column in COLUMNS.items()
            if row[column]
        },
    )
