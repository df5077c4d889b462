"""Evaluation of a segmenter on cases with masks: one row per case and class, and a summary."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from hebbseg.data.cases import Source
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.store import CaseStore
from hebbseg.evaluation.metrics import case_metrics, summarize

Row = dict[str, Any]


class Predictor(Protocol):
    """The part of a segmenter that `evaluate` uses."""

    @property
    def preprocessing(self) -> Preprocessing: ...

    def probabilities_of_preprocessed(self, image: Tensor) -> Tensor: ...


def evaluate(
    segmenter: Predictor,
    source: Source,
    ids: Sequence[str],
    *,
    store: CaseStore | None = None,
    look: Callable[[str, np.ndarray, np.ndarray], None] = lambda case, prediction, target: None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Row], dict[str, Any]]:
    """Predict each case (argmax) at the segmenter's working size and compute its metrics there.

    Distances are in mm if every case has a spacing (adjusted for resizing), else in pixels of the working size.

    Args:
        store: contains these cases, preprocessed for this segmenter; default: they are read from ``source``.
        look: called with each case's id, prediction and target (*S).
        report: called with (cases done, total cases).
    """
    store = store or CaseStore(source=source, preprocessing=segmenter.preprocessing, images=ids, masks=ids)
    spacings = {case.id: case.spacing_mm for case in source.cases if case.id in set(ids)}
    in_mm = all(spacing is not None for spacing in spacings.values())
    classes = source.classes
    rows: list[Row] = []
    for done, name in enumerate(ids, start=1):
        image, target = store.images([name])[0], store.mask(name).numpy()
        prediction = segmenter.probabilities_of_preprocessed(image).argmax(0).numpy().astype(np.uint8)
        spacing = _working_spacing(spacings[name], store, name) if in_mm else None
        for row in case_metrics(prediction, target, len(classes), spacing, case=name):
            rows.append(row | {"class_name": classes[row["class"]].name})
        look(name, prediction, target)
        report(done, len(ids))
    names = {str(info.index): info.name for info in classes[1:]}
    return rows, summarize(rows, "mm" if in_mm else "px") | {"class_names": names}


def describe_summary(summary: dict[str, Any]) -> str:
    """Return a line of text: percentages, with the half-width of the 90 % interval over cases."""

    def share(name: str) -> str:
        return _percent(summary[name])

    unit = summary["unit"]
    return (
        f"Dice {share('dice')}, Jaccard {share('jaccard')}, 95HD {summary['hd95']['mean']:.1f} {unit}, "
        f"ASD {summary['asd']['mean']:.1f} {unit}, pooled Dice {100 * summary['dice_pooled']:.1f} % "
        f"(n = {summary['n']}, ± 90 % interval over cases)"
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


def _working_spacing(spacing: tuple[float, ...] | None, store: CaseStore, name: str) -> tuple[float, ...]:
    assert spacing is not None
    native, working = store.native_shape(name), store.mask(name).shape
    return tuple(step * n / w for step, n, w in zip(spacing, native, working, strict=True))
