"""Published results that can stand beside the runs of a comparison: same data set, algorithm, metric and unit."""

from collections.abc import Sequence
from functools import cached_property

from hebbseg.reporting.comparison import PROPOSED, Comparison
from hebbseg.reporting.published import (
    CAUTION,
    DISTANCES,
    FULLY_SUPERVISED,
    IMAGES,
    OURS,
    VOLUMES,
    WORKING_SIZE,
    Published,
    algorithm,
    pretraining,
    published,
)
from hebbseg.reporting.results import RunResult
from hebbseg.reporting.splits_used import splits_used


class References:
    """The published results of one table (``sota``, ``variants``, ``temperature``, ``probe``) for the arms of a comparison."""

    def __init__(self, comparison: Comparison, table: str) -> None:
        self.comparison = comparison
        self.table = table

    @cached_property
    def _rows(self) -> dict[tuple[str, float], Published]:
        rows = published(self.table, self.comparison.dataset)
        return {} if self.other_data else {(row.method, row.percent): row for row in rows}

    @cached_property
    def other_data(self) -> str:
        """Why the data are not those of the paper; empty if they are, or if the paper has no data set of this name."""
        name = self.comparison.dataset.casefold()
        if name not in IMAGES:
            return ""
        sources = {str(run.settings.get("data", "")).partition(":")[0] for run in self.comparison.runs}
        if sources != {name}:
            return f"Published results are left out: the source of the data is not {name}:PATH."
        images = sorted({split.cases for split in splits_used(self.comparison.runs)} - {IMAGES[name]})
        if images:
            found = f"{images[0]} images are used, {IMAGES[name]} in the paper"
            return f"Published results are left out: {found}."
        return ""

    @cached_property
    def distance_scale(self) -> float | None:
        """Factor from the distances of the runs to the pixels of the paper; None if there is none."""
        scales = {_scale(run) for run in self.comparison.runs} if self._rows else {None}
        return scales.pop() if len(scales) == 1 else None

    def row(self, label: str, regime: str) -> Published | None:
        """Return the published result of the algorithm of an arm in a label regime."""
        percent = self.comparison.percents.get(regime)
        names = {self._name(run) for run in self.comparison.cell(label, regime)}
        name = names.pop() if len(names) == 1 else None
        if percent is None or name is None or (name == FULLY_SUPERVISED and percent != 100):
            return None
        return self._rows.get((name, percent))

    def _name(self, run: RunResult) -> str | None:
        """Return the name of the algorithm in this table."""
        if self.table == "probe":
            return pretraining(run.settings)
        name = algorithm(run.settings)
        if self.table == "temperature" and name == OURS:
            t = round(float(run.settings["temperature"]), 4)  # the tables of the paper list K = 1/t
            return next((method for method, _ in self._rows if round(1 / float(method), 4) == t), None)
        return PROPOSED if self.table == "sota" and name == OURS else name

    def value(self, row: Published, metric: str) -> tuple[float, float | None] | None:
        """Return mean and half-width if the metric has the same definition and unit in the paper."""
        if metric in DISTANCES and self.distance_scale is None:
            return None
        return row.values.get(metric)

    def note(self, *, shown: bool, metrics: Sequence[str]) -> str:
        """Return the legend of published values if any are ``shown``, and the reason for what is left out."""
        if not shown:
            return self.other_data
        caution = f"{CAUTION}{self._other_grid}"
        if not DISTANCES & set(metrics):
            return caution
        if self.distance_scale is not None:
            return f"{caution} An empty mask has no published distance; here it counts as the diagonal of the image."
        of_paper = "voxels" if self.comparison.dataset.casefold() in VOLUMES else f"pixels at {WORKING_SIZE} × {WORKING_SIZE}"
        units = " and ".join(sorted({_unit(run) for run in self.comparison.runs}))
        return f"{caution} Published distances are left out: they are in {of_paper}, these in {units}."

    @property
    def _other_grid(self) -> str:
        """A remark if overlap is computed in other pixels than in the paper."""
        images = self.comparison.dataset.casefold() not in VOLUMES
        if not images or all(run.grid == "training" for run in self.comparison.runs):
            return ""
        return f" Overlap is computed in the original pixels here, and at {WORKING_SIZE} × {WORKING_SIZE} in the paper."


def _scale(run: RunResult) -> float | None:
    size = run.settings.get("size", "auto")
    if run.unit != "px":
        return None
    if run.dataset.casefold() in VOLUMES:
        return 1.0 if run.grid == "original" or size in ("auto", "native") else None
    if run.grid == "original":
        return None
    if size == "auto":
        return None if run.planned else 1.0
    # From one square size to another, both axes have the same scale.
    return None if isinstance(size, str) or len(set(size)) != 1 else WORKING_SIZE / size[0]


def _unit(run: RunResult) -> str:
    if run.unit == "px" and run.grid == "original":
        return "original pixels"
    size = run.settings.get("size", "auto")
    shown = size if isinstance(size, str) else " × ".join(map(str, size))
    return run.unit if run.unit != "px" else f"pixels at {shown} size" if isinstance(size, str) else f"pixels at {shown}"
