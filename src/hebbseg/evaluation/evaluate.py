"""Evaluation of a segmenter on cases with masks: one row per case and class, and a summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from torch import Tensor

from hebbseg.data.cases import Case, Source
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.evaluation.metrics import case_metrics, summarize

Row = dict[str, Any]
Grid = Literal["original", "training"]
GRIDS: tuple[Grid, ...] = get_args(Grid)
MICROSCOPIC_MM = 0.1  # smaller distances are described in µm


class Predictor(Protocol):
    """The part of a segmenter that `evaluate` uses."""

    @property
    def preprocessing(self) -> Preprocessing: ...

    def classes_of_preprocessed(self, image: Tensor, size: Sequence[int]) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class InParts:
    """The result for a case too large for memory: its rows, and prediction and target (*s) at a smaller size."""

    rows: list[Row]
    prediction: np.ndarray
    target: np.ndarray


def evaluate(
    segmenter: Predictor,
    source: Source,
    ids: Sequence[str],
    *,
    store: CaseStore | None = None,
    grid: Grid = "original",
    in_parts: Callable[[Case, Sequence[float] | None], InParts | None] = lambda case, spacing: None,
    look: Callable[[str, np.ndarray, np.ndarray], None] = lambda case, prediction, target: None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Row], dict[str, Any]]:
    """Predict each case (argmax) and compute its metrics against its mask.

    Distances are in mm if every case has a spacing, else in pixels of the grid.

    Args:
        store: contains these cases, preprocessed for this segmenter; default: they are read from ``source``.
        grid: ``"original"`` scales the probabilities back to the size of the file and compares them with its mask;
            ``"training"`` compares at the size used in training, with the resized mask.
        in_parts: measures cases too large for memory, and returns None for all others.
        look: called with each case's id, prediction and target (*S).
        report: called with (cases done, total cases).
    """
    store = store or CaseStore(source=source, preprocessing=segmenter.preprocessing, images=ids, masks=ids)
    cases = {case.id: case for case in source.cases if case.id in set(ids)}
    in_mm = all(case.spacing_mm is not None for case in cases.values())
    classes = source.classes
    rows: list[Row] = []
    for done, name in enumerate(ids, start=1):
        spacing = cases[name].spacing_mm if in_mm else None
        if (parts := in_parts(cases[name], spacing)) is not None:
            rows += [row | {"class_name": classes[row["class"]].name} for row in parts.rows]
            look(name, parts.prediction, parts.target)
            report(done, len(ids))
            continue
        target = (store.original_mask(name) if grid == "original" else store.mask(name)).numpy()
        prediction = segmenter.classes_of_preprocessed(store.images([name])[0], target.shape)
        if spacing is not None and grid == "training":
            native = store.native_shape(name)
            spacing = tuple(step * n / w for step, n, w in zip(spacing, native, target.shape, strict=True))
        for row in case_metrics(prediction, target, len(classes), spacing, case=name):
            rows.append(row | {"class_name": classes[row["class"]].name})
        look(name, prediction, target)
        report(done, len(ids))
    names = {str(info.index): info.name for info in classes[1:]}
    measured = "original" if not segmenter.preprocessing.resizes else grid
    return rows, summarize(rows, "mm" if in_mm else "px") | {"grid": measured, "class_names": names}


def checked_grid(name: str) -> Grid:
    """Return the name of a grid; raise an error if there is no such grid."""
    if name not in GRIDS:
        raise HebbsegError(f"Unknown metrics_grid={name!r}. {did_you_mean(name, GRIDS)}")
    return GRIDS[GRIDS.index(name)]


def describe_summary(summary: dict[str, Any]) -> str:
    """Return a line of text: percentages with the half-width of the 90 % interval over cases, and distances with their unit."""

    def share(name: str) -> str:
        return _percent(summary[name])

    unit = summary["unit"]
    if unit == "px" and summary.get("grid", "training") == "training":  # before version 0.3, always
        unit = "px at training size"
    scale = 1.0
    if unit == "mm" and summary["hd95"]["mean"] < MICROSCOPIC_MM:
        scale, unit = 1000.0, "µm"
    interval = "" if summary["dice"]["ci90"] is None else ", ± 90 % interval over cases"
    return (
        f"Dice {share('dice')}, Jaccard {share('jaccard')}, 95HD {scale * summary['hd95']['mean']:.1f} {unit}, "
        f"ASD {scale * summary['asd']['mean']:.1f} {unit}, pooled Dice {100 * summary['dice_pooled']:.1f} % "
        f"(n = {summary['n']}{interval})"
    )


def describe_classes(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the name and Dice of each foreground class, if there are several."""
    names = summary.get("class_names", {})  # version 0.2 did not store them
    blocks = summary["classes"]
    if len(blocks) < 2:
        return []
    return [(f"  {names.get(k) or f'class {k}'}", f"Dice {_percent(block['dice'])}") for k, block in blocks.items()]


def _percent(value: dict[str, Any]) -> str:
    interval = "" if value["ci90"] is None else f" ± {100 * value['ci90']:.1f}"
    return f"{100 * value['mean']:.1f}{interval} %"
