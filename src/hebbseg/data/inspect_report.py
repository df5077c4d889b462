"""The result of `examine` as plain values for JSON and tables."""

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.data.cases import DataError, Problem
from hebbseg.data.inspect import Examination
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import text
from hebbseg.errors import HebbsegError


def report(examination: Examination) -> dict[str, Any]:
    """Return the examination as plain values.

    A class's share is its fraction of the annotated pixels of all readable masks; ``annotated`` is the annotated fraction of
    their pixels, and ``partly_annotated`` the number of masks in which it is below 1. ``usable_for`` are the commands that
    can use the data.
    """
    usable = examination.usable
    with_mask = sum(case.has_mask for case in usable)
    pixels = np.zeros(len(examination.classes), np.int64)
    for fact in examination.facts:
        if fact.pixels is not None:
            pixels += np.asarray(fact.pixels)
    total = int(pixels.sum())
    ignored = [fact.ignored for fact in examination.facts if fact.pixels is not None]
    groups = Counter(case.group for case in usable if case.group is not None)
    subsets = Counter(case.subset for case in usable if case.subset is not None)
    read = [fact for fact in examination.facts if fact.usable is not None]
    return {
        "data": examination.source.name,
        "usable_for": _usable_for(examination, with_mask),
        "cases": len(usable),
        "with_mask": with_mask,
        "without_mask": len(usable) - with_mask,
        "left_out": len(examination.facts) - len(usable),
        "spatial_dims": examination.source.spatial_dims if read else None,
        "channels": examination.source.channels if read else None,
        "classes": [
            {
                "index": c.index,
                "value": list(c.value) if isinstance(c.value, tuple) else c.value,
                "name": c.name,
                "share": float(pixels[c.index] / total) if total else None,
            }
            for c in examination.classes
        ],
        "annotated": total / (total + sum(ignored)) if ignored else None,
        "partly_annotated": sum(n > 0 for n in ignored),
        "groups": len(groups),
        "group_sizes": dict(sorted(groups.items())),
        "subsets": dict(sorted(subsets.items())),
        "image_folders": _folders(examination, [path for case in usable for path in case.image]),
        "mask_folders": _folders(examination, [path for case in usable for path in case.mask or ()]),
        "sizes": _counted("×".join(map(str, fact.shape)) for fact in read),
        "spacings_mm": _counted(
            "×".join(f"{step:.4g}" for step in case.spacing_mm) for case in usable if case.spacing_mm is not None
        ),
        "number_types": _counted(fact.dtype for fact in read),
        "notes": list(examination.notes),
        "unused": [asdict(unused) for unused in examination.unused],
        "problems": [asdict(problem) for problem in examination.problems],
    }


def _usable_for(examination: Examination, with_mask: int) -> list[str]:
    """Return the commands that can use the data: both stages, stage 1 alone if there is no mask, or none."""
    if examination.fatal or not examination.usable:
        return []
    return ["pretrain", "train"] if with_mask else ["pretrain"]


def failed_report(spec: str, error: HebbsegError) -> dict[str, Any]:
    """Return the report for data that cannot be opened: the same keys, with the problem as the only content."""
    problem = error.problem if isinstance(error, DataError) else Problem(spec, str(error), "")
    return {
        "data": spec,
        "usable_for": [],
        **{"cases": 0, "with_mask": 0, "without_mask": 0, "left_out": 0, "classes": [], "groups": 0},
        "problems": [asdict(replace(problem, fatal=True))],
    }


def _folders(examination: Examination, files: list[Path]) -> dict[str, int]:
    """Return the number of files per folder, relative to a plain folder; empty for other layouts."""
    source = examination.source
    if not isinstance(source, FileSource) or not source.lists_unused:
        return {}
    parents = (path.parent for path in files)
    return _counted(text(p.relative_to(source.root) if p.is_relative_to(source.root) else p) + "/" for p in parents)


def _counted(values: Any) -> dict[str, int]:
    """Return the number of occurrences of each value, most common first."""
    return dict(Counter(values).most_common())
