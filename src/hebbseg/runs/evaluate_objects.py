"""Evaluation of objects: object metrics of each case on its original pixel grid."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hebbseg.data.cases import IGNORE, Source
from hebbseg.data.labels.instances import objects_of
from hebbseg.data.progress import Reporter, counted
from hebbseg.evaluation.object_metrics import object_metrics, summarize_objects
from hebbseg.inference.objects import ObjectOptions, find_objects
from hebbseg.inference.predictor import Predictor
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.large_objects import large_pair

TABLE = "object_metrics.csv"
ANNOTATED, CONNECTED, MIXED = "object ids", "connected areas", "object ids in some masks, connected areas in the others"


def measure_objects(
    segmenter: Predictor, source: Source, ids: Sequence[str], folder: Path, options: ObjectOptions, *, reporter: Reporter
) -> dict[str, Any]:
    """Write ``object_metrics.csv`` with a row per case and class, and return the summary.

    Objects of the target are those of the masks' object ids, or the connected areas of their classes; ``target_objects`` in
    the summary says which. Pixels that are not annotated are background. Distances are in mm if every case has a spacing,
    else in pixels of the original image.
    """
    cases = {case.id: case for case in source.cases}
    in_mm = all(cases[name].spacing_mm is not None for name in ids)
    predictor = segmenter.with_border_class
    rows: list[dict[str, Any]] = []
    kinds = set()
    for done, name in enumerate(ids, start=1):
        case = cases[name]
        spacing = case.spacing_mm if in_mm else None
        with large_pair(segmenter, source, case, options, folder) as large:
            if large is not None:
                annotated = large.annotated
                of_classes = {info: large.metrics(info.index, spacing) for info in source.classes[1:]}
        if large is None:
            probabilities = predictor.probabilities_of_channels(source.image(case), case.spacing_mm).numpy()
            predicted = find_objects(probabilities, options, borders=segmenter.borders, spacing=case.spacing_mm)
            target, annotated = objects_of(source, case)
            known = source.mask(case) != IGNORE
            of_classes = {
                info: object_metrics(predicted.of_class(info.index) * known, target.of_class(info.index), spacing)
                for info in source.classes[1:]
            }
        kinds.add(annotated)
        rows += [
            {"case": name, "class": info.index, "class_name": info.name, **metrics} for info, metrics in of_classes.items()
        ]
        reporter.step("objects", done, len(ids), {})
    RunFolder(folder).save_rows(TABLE, rows)
    chosen = {"method": options.method, "min_size": options.min_size, "fill_holes": options.fill_holes}
    kind = MIXED if len(kinds) > 1 else ANNOTATED if True in kinds else CONNECTED
    return {**chosen, "target_objects": kind, **summarize_objects(rows, "mm" if in_mm else "px")}


def describe_objects(summary: dict[str, Any]) -> str:
    """Return a line of text; ratios in percent."""
    ratios = {"object Dice": "object_dice", "F1 at IoU 0.5": "f1", "GlaS F1": "f1_glas", "AJI": "aji", "PQ": "pq"}
    shown = ", ".join(f"{title} {100 * summary[name]['mean']:.1f} %" for title, name in ratios.items())
    distance = f"object Hausdorff {summary['object_hausdorff']['mean']:.1f} {summary['unit']}"
    target = f"{summary['n_target']} in the masks: {summary['target_objects']}"
    return f"{shown}, {distance} ({counted(summary['n_prediction'], 'object')}, {target})"
