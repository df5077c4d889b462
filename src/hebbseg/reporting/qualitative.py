"""What a run's model makes of test cases, and what stage 1 made of the first filters. Needs the run's files and its data."""

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

CASES = 3  # of a grid of images; one of volumes

_Panel = tuple[str, np.ndarray, np.ndarray | None]  # title, mask, target below it


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A test case with the predictions of one arm at each regime."""

    case: Case
    image: np.ndarray
    target: np.ndarray
    predictions: dict[str, np.ndarray]

    def titled(self, regime: str) -> str:
        score = dice(self.predictions[regime] > 0, self.target > 0)
        return f"{regime_heading(regime)}, Dice {score:.2f}"


def qualitative(comparison: Comparison) -> list[Picture]:
    """Sample, target and prediction by regime, of the baseline and of the arm with the best mean Dice.

    Raises HebbsegError if models or data are no longer there.
    """
    chosen = comparison.labels_of(comparison.baseline)[:1] + comparison.best_first()[:1]
    answer = []
    for label in chosen:
        runs = _runs_of_one_pair(comparison, label)
        source = _source(next(iter(runs.values())))
        shown = _predicted(source, runs)
        draw = _images if source.spatial_dims == 2 else _volume
        answer += draw(comparison, label, shown)
    return answer


def _runs_of_one_pair(comparison: Comparison, label: str) -> dict[str, RunResult]:
    """{regime: run} of the first fold and seed, so that all regimes have the same test cases."""
    runs = [run for regime in comparison.regimes for run in comparison.cell(label, regime)]
    pair = min((run.pair for run in runs), key=lambda pair: (pair[0] or 0, pair[1]))
    return {run.labelled: run for run in runs if run.pair == pair}


def _source(run: RunResult) -> Source:
    options = {name: run.settings.get(name) for name in ("label_map", "group", "mask_threshold", "instances")}
    return open_source(run.settings["data"], **{name: value for name, value in options.items() if value is not None})


def _predicted(source: Source, runs: dict[str, RunResult]) -> list[_Shown]:
    tests = [set(Split.load(run.folder / "split.json").test) for run in runs.values()]
    known = {case.id: case for case in source.cases}
    ids = sorted(set.intersection(*tests) & set(known))
    if not ids:
        raise HebbsegError(f"{source.name}: none of the runs' test cases is there any more. Restore the data.")
    count = min(CASES if source.spatial_dims == 2 else 1, len(ids))
    places = np.linspace(0, len(ids) - 1, count + 2)[1:-1] if count < len(ids) else np.arange(count)
    segmenters = {regime: Predictor.load(run.folder) for regime, run in runs.items()}
    shown = []
    for place in places:
        case = known[ids[round(place)]]
        image = source.image(case)
        predictions = {
            regime: segmenter.probabilities_of_channels(segmenter.as_channels(image)).argmax(0).numpy()
            for regime, segmenter in segmenters.items()
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
        panels: list[_Panel] = [(one.case.id, nothing, None), ("target", one.target, None)]
        panels += [(one.titled(regime), one.predictions[regime], one.target) for regime in regimes]
        for axis, (title, mask, target) in zip(row, panels, strict=True):
            axis.imshow(overlay(one.image, mask, target=target))
            axis.set_title(title, fontsize=8)
            axis.axis("off")
    return [
        picture(
            figure,
            vector=False,
            alt=f"{len(shown)} test cases of {comparison.dataset} with target and predictions of {label} at "
            f"{', '.join(map(regime_heading, regimes))} labels.",
            caption=f"{label}: prediction in yellow, target in blue (alone, in the second column, in yellow). Cases at equal "
            f"distances through the test set, none chosen by its result; {_which(comparison, label)}.",
        )
    ]


def _volume(comparison: Comparison, label: str, shown: list[_Shown]) -> list[Picture]:
    one = shown[0]
    spacing = one.case.spacing_mm
    rows: list[_Panel] = [("target", one.target, None)]
    rows += [(one.titled(regime), mask, one.target) for regime, mask in one.predictions.items()]
    figure, axes = plt.subplots(len(rows), 3, figsize=(8, 2.9 * len(rows)), squeeze=False, layout="constrained")
    for row, (title, mask, target) in zip(axes, rows, strict=True):
        # The same three slices in all rows: through the middle of the target.
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
        alt=f"Three slices of {of}, with target and predictions.",
        caption=f"{label}: three slices through the middle of the target of a test case, prediction in yellow, target in blue "
        f"(alone, in the first row, in yellow); {_which(comparison, label)}.",
    )
    surfaces = surfaces_picture(
        [(title, mask) for title, mask, _ in rows],
        spacing,
        alt=f"Surfaces of target and predictions of {of}.",
        caption=f"{label}: surface of the target and of the prediction at each regime, the same case.",
    )
    return [slices, surfaces]


def _which(comparison: Comparison, label: str) -> str:
    run = next(iter(_runs_of_one_pair(comparison, label).values()))
    return f"seed {run.seed}" if run.fold is None else f"fold {run.fold}, seed {run.seed}"


def filters_picture(run: RunResult) -> Picture:
    """The filters of the first layer that learned, as random numbers made them and after stage 1.

    Raises HebbsegError if the run's weights of stage 1 are not there.
    """
    layer, before, after = learned_filters(run.folder, run.seed)
    units = min(UNITS_AT_MOST, len(before))
    return picture(
        draw_filters(before, after),
        vector=False,
        alt=f"{units} filters of {layer}, the first layer that learned, before and after stage 1.",
        caption=f"First {units} filters of {layer}, before and after stage 1 ({run.arm}, seed {run.seed}).",
    )
