"""Figures of predictions on test cases and of the filters learned in stage 1; they need the models and the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hebbseg.data.cases import IGNORE, Case, Source
from hebbseg.data.labels.ignore import annotated_part
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import dice
from hebbseg.inference.predictor import Predictor
from hebbseg.reporting.charts import Picture, picture
from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.data_facts import source_of
from hebbseg.reporting.plots.figures import plt
from hebbseg.reporting.plots.filters import UNITS_AT_MOST, draw_filters, learned_filters
from hebbseg.reporting.plots.overlay import middle, overlay
from hebbseg.reporting.results import RunResult
from hebbseg.reporting.surfaces3d import surfaces_picture
from hebbseg.reporting.tables.comparisons import regime_heading

CASES = 3  # images per figure; volumes have one

_Panel = tuple[str, np.ndarray, np.ndarray | None]  # title, mask, target drawn below it


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A test case with the predictions of one arm in each label regime."""

    case: Case
    image: np.ndarray
    target: np.ndarray
    predictions: dict[str, np.ndarray]

    def titled(self, regime: str) -> str:
        prediction, target = annotated_part(self.predictions[regime], self.target, self.case.id)
        score = dice(prediction > 0, target > 0)
        return f"{regime_heading(regime)}, Dice {score:.2f}"


def qualitative(comparison: Comparison) -> list[Picture]:
    """Draw image, ground truth and predictions by label regime, for the proposed method and the baseline.

    Raises:
        HebbsegError: if models or data are missing.
    """
    pictures = []
    proposed = [] if comparison.proposed is None else [comparison.proposed]
    for label in proposed + comparison.labels_of(comparison.baseline)[:1]:
        runs = _runs_of_one_pair(comparison, label)
        source = source_of(next(iter(runs.values())))
        draw = _images if source.spatial_dims == 2 else _volume
        pictures += draw(comparison, label, _predict(source, runs))
    return pictures


def _runs_of_one_pair(comparison: Comparison, label: str) -> dict[str, RunResult]:
    """Return {regime: run} of the first fold and seed, so that all regimes have the same test cases."""
    runs = [run for regime in comparison.regimes for run in comparison.cell(label, regime)]
    pair = min((run.pair for run in runs), key=lambda pair: (pair[0] or 0, pair[1]))
    return {run.labelled: run for run in runs if run.pair == pair}


def _predict(source: Source, runs: dict[str, RunResult]) -> list[_Shown]:
    tests = [set(Split.load(run.folder / "split.json").test) for run in runs.values()]
    known = {case.id: case for case in source.cases}
    ids = sorted(set.intersection(*tests) & set(known))
    if not ids:
        raise HebbsegError(f"{source.name}: none of the test cases of the runs exists. Restore the data.")
    count = min(CASES if source.spatial_dims == 2 else 1, len(ids))
    predictors = {regime: Predictor.load(run.folder) for regime, run in runs.items()}
    shown = []
    for name in evenly_spaced(ids, count):
        case = known[name]
        image = source.image(case)
        predictions = {
            regime: predictor.probabilities_of_channels(predictor.as_channels(image), case.spacing_mm).argmax(0).numpy()
            for regime, predictor in predictors.items()
        }
        shown.append(_Shown(case=case, image=image, target=source.mask(case), predictions=predictions))
    return shown


def evenly_spaced(ids: Sequence[str], count: int) -> list[str]:
    """Return the middle of each of ``count`` equal parts, all different."""
    return [ids[int((number + 0.5) * len(ids) / count)] for number in range(count)]


def _images(comparison: Comparison, label: str, shown: list[_Shown]) -> list[Picture]:
    regimes = list(shown[0].predictions)
    columns = 2 + len(regimes)
    tallest = max(one.target.shape[0] / one.target.shape[1] for one in shown)
    size = (1.9 * columns, (0.3 + 1.8 * tallest) * len(shown))
    figure, axes = plt.subplots(len(shown), columns, figsize=size, squeeze=False, layout="constrained")
    for row, one in zip(axes, shown, strict=True):
        nothing = np.zeros_like(one.target)
        panels: list[_Panel] = [(one.case.id, nothing, None), ("ground truth", one.target, None)]
        panels += [(one.titled(regime), one.predictions[regime], one.target) for regime in regimes]
        for axis, (title, mask, target) in zip(row, panels, strict=True):
            axis.imshow(overlay(one.image, mask, target=target))
            axis.set_title(title, fontsize=8)
            axis.axis("off")
    return [
        picture(
            figure,
            vector=False,
            alt=f"{len(shown)} test cases of {comparison.dataset} with ground truth and predictions of {label}, label "
            f"regimes: {', '.join(map(regime_heading, regimes))}.",
            caption=f"{label}: predictions in yellow, ground truth in blue (second column: ground truth in yellow). The cases "
            f"are evenly spaced in the test set, not selected by result; {_repetition(comparison, label)}.",
        )
    ]


def _volume(comparison: Comparison, label: str, shown: list[_Shown]) -> list[Picture]:
    one = shown[0]
    spacing = one.case.spacing_mm
    rows: list[_Panel] = [("sample", np.zeros_like(one.target), None), ("ground truth", one.target, None)]
    rows += [(one.titled(regime), mask, one.target) for regime, mask in one.predictions.items()]
    figure, axes = plt.subplots(len(rows), 3, figsize=(8, 2.9 * len(rows)), squeeze=False, layout="constrained")
    for row, (title, mask, target) in zip(axes, rows, strict=True):
        # The same three slices in all rows: through the center of the ground truth.
        for number, (axis, place) in enumerate(zip(row, middle(one.target), strict=True)):
            axis.imshow(
                overlay(
                    one.image.take(place, axis=number + 1),
                    mask.take(place, axis=number),
                    target=None if target is None else target.take(place, axis=number),
                    spacing=None if spacing is None else [step for k, step in enumerate(spacing) if k != number],
                )
            )
            axis.axis("off")
        row[1].set_title(title, fontsize=9)
    of = f"{one.case.id} of {comparison.dataset}, {label}"
    slices = picture(
        figure,
        vector=False,
        alt=f"Three slices of {of}, with ground truth and predictions.",
        caption=f"{label}: three slices of a test case through the center of the ground truth; predictions in yellow, ground "
        f"truth in blue (second row: ground truth in yellow); {_repetition(comparison, label)}.",
    )
    surfaces = surfaces_picture(
        one.image[0],
        [(title, np.where(mask == IGNORE, 0, mask)) for title, mask, _ in rows[1:]],
        spacing,
        alt=f"Sample in 3D, and surfaces of ground truth and predictions of {of}.",
        caption=f"{label}: sample (slices through the center of the ground truth), surfaces of the ground truth and of the "
        "prediction in each label regime, same case.",
    )
    return [slices, surfaces]


def _repetition(comparison: Comparison, label: str) -> str:
    run = next(iter(_runs_of_one_pair(comparison, label).values()))
    return f"seed {run.seed}" if run.fold is None else f"fold {run.fold}, seed {run.seed}"


def filters_picture(run: RunResult) -> Picture:
    """Draw the filters of the first trained layer before and after stage 1.

    Raises:
        HebbsegError: if the stage-1 weights of the run are missing.
    """
    layer, before, after = learned_filters(run.folder, run.seed)
    units = min(UNITS_AT_MOST, len(before))
    return picture(
        draw_filters(before, after),
        vector=False,
        alt=f"{units} filters of {layer}, the first layer trained in stage 1, before and after.",
        caption=f"First {units} filters of {layer}, before and after stage 1 ({run.arm}, seed {run.seed}).",
    )
