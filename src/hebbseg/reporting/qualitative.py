"""Figures of predictions on test cases and of the filters learned in stage 1; they need the models and the data."""

from dataclasses import dataclass

import numpy as np

from hebbseg.data.cases import Case, Source
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import dice
from hebbseg.inference.predictor import Predictor
from hebbseg.reporting.charts import Picture, picture
from hebbseg.reporting.comparison import Comparison
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
        score = dice(self.predictions[regime] > 0, self.target > 0)
        return f"{regime_heading(regime)}, Dice {score:.2f}"


def qualitative(comparison: Comparison) -> list[Picture]:
    """Draw image, ground truth and predictions by label regime, for the baseline and the arm with the highest mean Dice.

    Raises:
        HebbsegError: if models or data are missing.
    """
    pictures = []
    for label in comparison.labels_of(comparison.baseline)[:1] + comparison.best_first()[:1]:
        runs = _runs_of_one_pair(comparison, label)
        source = _source(next(iter(runs.values())))
        draw = _images if source.spatial_dims == 2 else _volume
        pictures += draw(comparison, label, _predict(source, runs))
    return pictures


def _runs_of_one_pair(comparison: Comparison, label: str) -> dict[str, RunResult]:
    """Return {regime: run} of the first fold and seed, so that all regimes have the same test cases."""
    runs = [run for regime in comparison.regimes for run in comparison.cell(label, regime)]
    pair = min((run.pair for run in runs), key=lambda pair: (pair[0] or 0, pair[1]))
    return {run.labelled: run for run in runs if run.pair == pair}


def _source(run: RunResult) -> Source:
    names = ("label_map", "group", "mask_threshold", "instances", "images", "masks")
    options = {name: run.settings.get(name) for name in names}
    return open_source(run.settings["data"], **{name: value for name, value in options.items() if value is not None})


def _predict(source: Source, runs: dict[str, RunResult]) -> list[_Shown]:
    tests = [set(Split.load(run.folder / "split.json").test) for run in runs.values()]
    known = {case.id: case for case in source.cases}
    ids = sorted(set.intersection(*tests) & set(known))
    if not ids:
        raise HebbsegError(f"{source.name}: none of the test cases of the runs exists. Restore the data.")
    count = min(CASES if source.spatial_dims == 2 else 1, len(ids))
    places = np.linspace(0, len(ids) - 1, count + 2)[1:-1] if count < len(ids) else np.arange(count)
    predictors = {regime: Predictor.load(run.folder) for regime, run in runs.items()}
    shown = []
    for place in places:
        case = known[ids[round(place)]]
        image = source.image(case)
        predictions = {
            regime: predictor.probabilities_of_channels(predictor.as_channels(image)).argmax(0).numpy()
            for regime, predictor in predictors.items()
        }
        shown.append(_Shown(case=case, image=image, target=source.mask(case), predictions=predictions))
    return shown


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
    rows: list[_Panel] = [("ground truth", one.target, None)]
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
        f"truth in blue (first row: ground truth in yellow); {_repetition(comparison, label)}.",
    )
    surfaces = surfaces_picture(
        [(title, mask) for title, mask, _ in rows],
        spacing,
        alt=f"Surfaces of ground truth and predictions of {of}.",
        caption=f"{label}: surfaces of the ground truth and of the prediction in each label regime, same case.",
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
