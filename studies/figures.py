"""The study's figures. No real image is in them.

python -m studies.figures     draws studies/images/study-*.png from studies/results and, for the filters, generated images
"""

import csv
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from hebbseg.config import make_settings
from hebbseg.reporting.plots.figures import plt, save_figure
from hebbseg.reporting.plots.filters import draw_filters, learned_filters
from hebbseg.reporting.statistics import mean_interval
from hebbseg.runs.train import run
from studies import recipe

RESULTS, IMAGES = Path("studies/results"), Path("studies/images")
CURVES = RESULTS / "study-updates" / "runs.csv"
# Arm → its name in the figure, marker, line and grey.
ARMS = {
    "scratch": ("scratch", "o", "-", "0.0"),
    "random-rescaled": ("control", "s", ":", "0.55"),
    "hebbian": ("Hebbian", "^", "--", "0.3"),
    "default-first": ("default at first", "v", ":", "0.7"),
    "default": ("default", "D", "-.", "0.0"),
}
Cells = dict[tuple[str, float, str], dict[str, float]]


def cells(path: Path, axis: str) -> Cells:
    """(data set, value of the axis, arm) → seed → Dice."""
    answer: Cells = {}
    for row in csv.DictReader(path.open()):
        arm = recipe.ARMS.get(row["arm"], row["arm"])
        answer.setdefault((row["dataset"], float(row[axis]), arm), {})[row["seed"]] = float(row["dice"])
    return answer


def draw(axis: Axes, found: Cells, dataset: str, points: Sequence[float], arms: Sequence[str], less: str = "") -> None:
    """Means with 90 % intervals at each point; with ``less``, of the paired differences to that arm."""
    for number, arm in enumerate(arms):
        label, marker, line, grey = ARMS[arm]
        there, means, halves = [], [], []
        for place, point in enumerate(points):
            values = found.get((dataset, point, arm), {})
            base = found.get((dataset, point, less), {})
            numbers = [values[s] - base[s] for s in values if s in base] if less else list(values.values())
            if numbers:
                estimate = mean_interval(numbers)
                there.append(place + 0.08 * (number - (len(arms) - 1) / 2))  # apart, so that no interval hides another
                means.append(estimate.mean)
                halves.append(estimate.half or 0.0)
        axis.errorbar(
            there, means, np.array(halves), marker=marker, linestyle=line, color=grey, capsize=3, markersize=5, label=label
        )  # fmt: skip
    axis.set_xticks(range(len(points)), [f"{point:g}" for point in points])
    axis.set_xlim(-0.5, len(points) - 0.5)
    axis.grid(axis="y", color="0.9")


def confirmation(path: Path) -> None:
    found = cells(RESULTS / "recipe.csv", "labelled_percent")
    datasets = sorted({dataset for dataset, _, _ in found})
    figure, axes = plt.subplots(len(datasets), 2, figsize=(9.5, 3.6 * len(datasets)), squeeze=False, layout="constrained")
    for row, dataset in zip(axes, datasets, strict=True):
        points = sorted({point for name, point, _ in found if name == dataset})
        few = [point for point in points if (dataset, point, "hebbian") in found]
        there = [arm for arm in ARMS if any((dataset, point, arm) in found for point in points)]
        draw(row[0], found, dataset, points, there)
        row[0].set(title=f"{dataset}: test Dice", xlabel="labelled images (%)", ylabel="Dice (%)")
        row[0].legend(framealpha=0.85, edgecolor="none")
        draw(row[1], found, dataset, few, [arm for arm in there if arm != "scratch"], less="scratch")
        row[1].axhline(0, color="0.0", linewidth=0.8)
        row[1].set(title=f"{dataset}: paired difference to scratch", xlabel="labelled images (%)", ylabel="points")
    save_figure(figure, path)


def gain(path: Path) -> None:
    """The README's figure: paired differences to scratch on the three data sets of the confirmation."""
    found = cells(RESULTS / "recipe.csv", "labelled_percent")
    panels = {
        "glas": "GlaS (n = 8 seeds)",
        "la_whole": "LA, volumes (n = 5 seeds)",
        "pupils": "Infrared pupils (n = 8 seeds)",
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axis, (dataset, title) in zip(axes, panels.items(), strict=True):
        points = sorted({point for name, point, arm in found if (name, arm) == (dataset, "default")})
        draw(axis, found, dataset, points, ["random-rescaled", "hebbian", "default"], less="scratch")
        axis.axhline(0, color="0.0", linewidth=0.8)
        axis.set(title=title, xlabel="labelled training images (%)")
    axes[0].set_ylabel("Dice − training from scratch (points)")
    labels = ["control: random weights, rescaled", "Hebbian weights, supervised", "default pipeline"]
    figure.legend(axes[0].get_legend_handles_labels()[0], labels, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def learning_curves(path: Path) -> None:
    found = cells(CURVES, "updates")
    (dataset,) = {name for name, _, _ in found}
    points = sorted({point for _, point, _ in found})
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    draw(axes[0], found, dataset, points, ["scratch", "hebbian"])
    axes[0].set(title="Dice by length of stage 2", xlabel="updates", ylabel="Dice (%)")
    axes[0].legend(frameon=False)
    draw(axes[1], found, dataset, points, ["hebbian"], less="scratch")
    axes[1].axhline(0, color="0.0", linewidth=0.8)
    axes[1].set(title="Hebbian − scratch, paired", xlabel="updates", ylabel="points")
    save_figure(figure, path)


def filters(path: Path) -> None:
    """The first layer's filters before and after stage 1 on generated glands, a layer that can be seen as colours."""
    settings = make_settings(
        "phantom:glands?n=60&size=96",
        {"levels": "all", "size": "96,96", "labelled": "2", "updates": "1", "method": "supervised"},
    )
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder) / "run")
        _, before, after = learned_filters(Path(folder) / "run", settings.seed)
    save_figure(draw_filters(before, after), path)


def main() -> None:
    confirmation(IMAGES / "study-confirmation.png")
    gain(IMAGES / "study-gain.png")
    filters(IMAGES / "study-filters.png")
    if CURVES.exists():
        learning_curves(IMAGES / "study-updates.png")


if __name__ == "__main__":
    main()
