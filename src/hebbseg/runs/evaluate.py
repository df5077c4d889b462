"""Evaluation of a trained model: choice of cases, compatibility checks, result files."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from hebbseg.atomic_files import refuse_unwritable, write_json
from hebbseg.data.cases import Case, ClassInfo, Problem, Source
from hebbseg.data.labels.objects import IGNORE_VALUE, has_ignore_value
from hebbseg.data.progress import Reporter, counted
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.evaluation.evaluate import Grid, evaluate
from hebbseg.inference.objects import ObjectOptions
from hebbseg.inference.predictor import Predictor
from hebbseg.runs.evaluate_objects import TABLE, measure_objects
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.large_cases import measure_large
from hebbseg.runs.pictures import Shown, draw_cases, shown
from hebbseg.runs.provenance import describe_overlap

WORST = 6  # cases in worst.png


def chosen_cases(source: Source, *, split: Path | None = None, subset: str | None = None) -> list[str]:
    """Return the ids of the cases with masks: all of them, a split's test cases, or one side of a published split."""
    masked = [case for case in source.cases if case.has_mask]
    if not masked:
        raise HebbsegError(
            f"{source.name}: none of its {counted(len(source.cases), 'case')} has a mask, so there is nothing to evaluate "
            "against. Use `hebbseg predict`, or add masks."
        )
    if split is not None and subset is not None:
        raise HebbsegError("--split and --subset exclude each other; give one of them.")
    if split is not None:
        wanted = Split.load(split / "split.json" if split.is_dir() else split).test
        missing = sorted(set(wanted) - {case.id for case in masked})
        if missing or not wanted:
            found = f"{len(missing)} of its test cases have no mask in {source.name}, first {missing[0]!r}" if missing else ""
            raise HebbsegError(f"--split {split}: {found or 'it has no test cases'}. Pass the data it was drawn from.")
        return sorted(wanted)
    if subset is not None:
        sides = sorted({case.subset for case in source.cases if case.subset is not None})
        if subset not in sides:
            allowed = did_you_mean(subset, sides) if sides else "It has no published split; omit --subset."
            raise HebbsegError(f"--subset {subset!r}: {source.name} has no such subset. {allowed}")
        masked = [case for case in masked if case.subset == subset]
        if not masked:
            raise HebbsegError(f"--subset {subset!r}: no case in this subset of {source.name} has a mask.")
    return sorted(case.id for case in masked)


def fitting_source(source: Source, segmenter: Predictor, *, masks: bool = True) -> Source:
    """Return the source with the model's axis order, orientation and channels. Raises if its dimensions or classes differ.

    Args:
        masks: False does not compare the classes, which can open every mask.
    """
    dims = segmenter.spatial_dims
    if source.spatial_dims != dims:
        raise HebbsegError(f"{source.name} is {source.spatial_dims}D and the model {dims}D. Pass {dims}D data.")
    if masks:
        _check_classes(source.classes, segmenter.classes, source.name)
    if isinstance(source, FileSource) and "stored" not in (source.axes, segmenter.axes):
        source = source.in_grid(segmenter.axes, segmenter.orientation)
    return source if source.channels == segmenter.in_channels else _OtherChannels(source, segmenter)


def trained_on(model: Path, cases: Sequence[str]) -> str | None:
    """Return a warning if the model was trained on cases of these names; None if not, or if that is unknown."""
    try:
        found = describe_overlap(model, cases)
    except HebbsegError as error:  # of this model or of one it was initialized from
        return f"the training images of {model} are unknown: {error}"
    if found is None:
        return None
    path = (model if model.is_dir() else model.parent) / "split.json"
    remedy = f"; --split {quote(str(path))} evaluates the model's test cases only" if path.is_file() else ""
    return f"{found}{remedy}."


def results_folder(name: str, out: Path | None, *, overwrite: bool = False) -> Path:
    """Return ``out``, which must not contain results yet, or a new folder named after the data."""
    if out is None:
        stem = re.sub(r"[^\w.-]+", "-", f"{name}-evaluation")
        if overwrite:
            return Path(stem)
        refuse_unwritable(Path())
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        return next(path for path in map(Path, names) if not path.exists())
    taken = [out / file for file in ("metrics.csv", "summary.json", "worst.png", TABLE) if (out / file).exists()]
    if taken and not overwrite:
        raise HebbsegError(f"{taken[0]} already exists. Choose another -o, or pass --overwrite. Nothing was written.")
    return out


def measure(
    segmenter: Predictor,
    source: Source,
    cases: Sequence[str],
    folder: Path,
    *,
    grid: Grid = "original",
    reporter: Reporter,
    warning: str | None = None,
    objects: ObjectOptions | None = None,
) -> dict[str, Any]:
    """Evaluate the cases, write ``metrics.csv``, ``summary.json`` and ``worst.png``, and return the summary; see `evaluate`.

    Args:
        objects: also compute metrics of objects found in this way; written to ``object_metrics.csv``.
    """
    worst: list[Shown] = []
    classes = len(source.classes)

    def look(case: str, prediction: np.ndarray, target: np.ndarray) -> None:
        worst.append(shown(case, prediction, target, classes))
        worst.sort(key=lambda each: each.dice)
        del worst[WORST:]

    rows, summary = evaluate(
        segmenter,
        source,
        cases,
        grid=grid,
        in_parts=partial(measure_large, segmenter, source),
        look=look,
        report=lambda done, total: reporter.step("evaluate", done, total, {}),
    )
    if warning is not None:
        summary["warning"] = warning
    if objects is not None:
        summary["objects"] = measure_objects(segmenter, source, cases, folder, objects, reporter=reporter)
    RunFolder(folder).save_rows("metrics.csv", rows)
    draw_cases(source, worst, folder / "worst.png", "Worst cases")
    write_json(folder / "summary.json", summary)
    return summary


def _check_classes(data: Sequence[ClassInfo], model: Sequence[ClassInfo], name: str) -> None:
    """Raise unless every pair of classes has the same name, or the same value and at most one user-given name."""
    if len(data) == len(model) and all(map(_same_class, data, model)):
        return
    names = f"The classes of {name} ({_shown(data)}) differ from the model's ({_shown(model)}). "
    if len(data) == len(model) + 1 and has_ignore_value([info.value for info in data]):
        raise HebbsegError(f"{names}If {IGNORE_VALUE} marks pixels that are not annotated, pass --ignore {IGNORE_VALUE}.")
    values = data if len(data) == len(model) else model
    suggested = ";".join(f"{a.name}={_value(b)}" for a, b in zip(model, values, strict=True))
    raise HebbsegError(
        f"{names}If they mean the same, assign mask values to the model's classes, for example --label-map {quote(suggested)}."
    )


def _same_class(a: ClassInfo, b: ClassInfo) -> bool:
    unnamed = isinstance(a.value, tuple) or any(
        info.name in ("", "background", "foreground", f"class {info.value}") for info in (a, b)
    )
    return a.name == b.name or (a.value == b.value and unnamed)


def _shown(classes: Sequence[ClassInfo]) -> str:
    return ", ".join(f"{info.name}={_value(info)}" for info in classes)


def _value(info: ClassInfo) -> str:
    if isinstance(info.value, tuple):
        return "#" + "".join(f"{part:02x}" for part in info.value)
    return str(info.value)


class _OtherChannels:
    """A source converted to the model's number of channels: gray repeated, or color reduced to gray."""

    def __init__(self, source: Source, segmenter: Predictor) -> None:
        self._source = source
        self._segmenter = segmenter
        self.channels = segmenter.in_channels
        self.name = f"{source.name} with {self.channels} channels"  # a different key in the cache of preprocessed images
        self.cases: tuple[Case, ...] = source.cases
        self.problems: tuple[Problem, ...] = source.problems
        self.spatial_dims = source.spatial_dims
        self.classes = source.classes
        self.rule = getattr(source, "rule", None)
        self.axes, self.orientation = getattr(source, "axes", None), getattr(source, "orientation", None)

    def image(self, case: Case) -> np.ndarray:
        return self._segmenter.as_channels(self._source.image(case))

    def mask(self, case: Case) -> np.ndarray:
        return self._source.mask(case)

    def instances(self, case: Case) -> np.ndarray | None:
        instances = getattr(self._source, "instances", None)
        return None if instances is None else instances(case)
