"""What `examine` found, as plain values for JSON and tables."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from hebbseg.data.cases import DataError, Problem
from hebbseg.data.inspect import Examination
from hebbseg.errors import HebbsegError


def report(examination: Examination) -> dict[str, Any]:
    """The examination as plain values for JSON. Shares are of the pixels of all readable masks together."""
    usable = examination.usable
    with_mask = sum(case.has_mask for case in usable)
    pixels = np.zeros(len(examination.classes), np.int64)
    for fact in examination.facts:
        if fact.pixels is not None:
            pixels += np.asarray(fact.pixels)
    total = int(pixels.sum())
    groups = Counter(case.group for case in usable if case.group is not None)
    subsets = Counter(case.subset for case in usable if case.subset is not None)
    read = [fact for fact in examination.facts if fact.usable is not None]
    return {
        "data": examination.source.name,
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
        "groups": len(groups),
        "group_sizes": dict(sorted(groups.items())),
        "subsets": dict(sorted(subsets.items())),
        "sizes": _counted("×".join(map(str, fact.shape)) for fact in read),
        "spacings_mm": _counted(
            "×".join(f"{step:.4g}" for step in case.spacing_mm) for case in usable if case.spacing_mm is not None
        ),
        "number_types": _counted(fact.dtype for fact in read),
        "notes": list(examination.notes),
        "problems": [as_json(problem) for problem in examination.problems],
    }


def failed_report(spec: str, error: HebbsegError) -> dict[str, Any]:
    """The report of data that could not be opened at all: the same keys, nothing in them but the problem."""
    problem = error.problem if isinstance(error, DataError) else Problem(file=spec, finding=str(error), remedy="")
    return {
        "data": spec,
        **{"cases": 0, "with_mask": 0, "without_mask": 0, "left_out": 0, "classes": [], "groups": 0},
        "problems": [as_json(replace(problem, fatal=True))],
    }


def as_json(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "finding": problem.finding, "remedy": problem.remedy, "fatal": problem.fatal}


def _counted(values: Any) -> dict[str, int]:
    """Value → how often, commonest first."""
    return dict(Counter(values).most_common())
