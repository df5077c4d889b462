"""Charts of the report, legible in grayscale."""

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from hebbseg.reporting.comparison import Comparison, curve
from hebbseg.reporting.plots.figures import STYLES, plt
from hebbseg.reporting.statistics import Estimate, mean_interval
from hebbseg.reporting.tables.ablations import temperatures
from hebbseg.reporting.tables.comparisons import regime_heading

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xx", "\\\\\\", "--", "++", "oo")
GRAYS = ("0.0", "0.35", "0.55", "0.2")
MAX_CURVES = 8  # more cannot be distinguished
MAX_RUNS = 20  # per learning curve; a mean over more looks the same
MEAN_WITH_BARS = "Mean over folds and seeds; error bars: 90 % t-interval."


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image embedded in the page: ``uri`` contains its data, ``alt`` describes it in words."""

    uri: str
    alt: str
    caption: str


def picture(figure: Figure, *, alt: str, caption: str, vector: bool = True) -> Picture:
    """Render and close a figure; reproducible to the byte: no date, no random ids."""
    buffer = io.BytesIO()
    kind = "svg" if vector else "png"
    with rc_context({"svg.hashsalt": "hebbseg"}):
        no_date = {"Date": None} if vector else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=110, bbox_inches="tight", metadata=no_date)
    plt.close(figure)
    mime = "image/svg+xml" if vector else "image/png"
    return Picture(uri=f"data:{mime};base64,{base64.b64encode(buffer.getvalue()).decode()}", alt=alt, caption=caption)


def efficiency_curves(comparison: Comparison) -> Picture | None:
    """Draw Dice against the percentage of labels, one line per arm, with intervals."""
    curves = {label: curve(comparison, label) for label in leading(comparison)}
    curves = {label: points for label, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    ticks = sorted({percent for points in curves.values() for percent in points})
    for number, (label, points) in enumerate(curves.items()):
        # Slightly shifted, so that error bars do not overlap.
        shift = 1.03 ** (number - (len(curves) - 1) / 2)
        estimates = [mean_interval(list(values.values())) for values in points.values()]
        _line(axis, [percent * shift for percent in points], estimates, number, label)
    axis.set(xscale="log", xlabel="labelled training images (%)", ylabel="Dice (%)")
    axis.set_title(f"{comparison.dataset}: Dice by label regime")
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="y", color="0.9")
    axis.legend(frameon=False, fontsize=8)
    alt = f"Dice by percentage of labelled images on {comparison.dataset}. " + _in_words(
        {label: {f"{p:g} %": mean_interval(list(v.values())) for p, v in points.items()} for label, points in curves.items()}
    )
    hidden = len(comparison.labels) - len(curves)
    more = f" Arms with a lower mean Dice or a single label regime are in the table only ({hidden})." if hidden else ""
    return picture(figure, alt=alt, caption=MEAN_WITH_BARS + more)


def temperature_curve(comparison: Comparison) -> Picture | None:
    """Draw Dice against K = 1/t, one line per label regime (and arm), and the baseline as a horizontal line."""
    lines: dict[str, list[tuple[float, Estimate]]] = {}
    found = temperatures(comparison)
    several = len({comparison.arm(label) for _, label in found}) > 1
    for regime in comparison.regimes:
        for t, label in found:
            estimate = comparison.estimate(label, regime, "dice")
            if estimate is not None:
                name = f"{comparison.arm(label)}, {regime_heading(regime)}" if several else regime_heading(regime)
                lines.setdefault(name, []).append((1 / t, estimate))
    if not any(len(points) > 1 for points in lines.values()):
        return None
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for number, (name, points) in enumerate(lines.items()):
        _line(axis, [k for k, _ in points], [estimate for _, estimate in points], number, name)
    for regime in comparison.regimes:
        for label in comparison.labels_of(comparison.baseline):
            estimate = comparison.estimate(label, regime, "dice")
            if estimate is not None:
                axis.axhline(100 * estimate.mean, color="0.6", lw=1, ls=(0, (1, 3)))
                place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "fontsize": 7, "va": "bottom"}
                axis.annotate(f"{label}, {regime_heading(regime)}", (0.01, 100 * estimate.mean), **place)
    ticks = sorted({k for points in lines.values() for k, _ in points})
    axis.set(xscale="log", xlabel="K = 1/t", ylabel="Dice (%)", title=f"{comparison.dataset}: Dice by temperature")
    axis.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.legend(frameon=False, fontsize=8)
    alt = _in_words({name: {f"K {k:.3g}": estimate for k, estimate in points} for name, points in lines.items()})
    return picture(
        figure,
        alt=f"Dice by 1 / temperature on {comparison.dataset}. {alt}",
        caption=f"{MEAN_WITH_BARS} Dotted: {comparison.baseline}.",
    )


def variant_bars(comparison: Comparison) -> Picture | None:
    """Draw a group of bars per label regime, with one bar per arm."""
    labels, regimes = comparison.labels, comparison.regimes
    found = {label: {r: comparison.estimate(label, r, "dice") for r in regimes} for label in labels}
    means = [100 * e.mean for row in found.values() for e in row.values() if e is not None]
    if len(labels) < 2 or not means:
        return None
    figure, axis = plt.subplots(figsize=(2.5 + 1.1 * len(regimes) * max(1.0, len(labels) / 5), 3.8), layout="constrained")
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        first = next(regime for regime in regimes if found[label][regime] is not None)
        for place, regime in enumerate(regimes):
            estimate = found[label][regime]
            if estimate is None:
                continue
            gray = str(0.35 + 0.6 * number / max(1, len(labels) - 1))
            half = None if estimate.half is None else 100 * estimate.half
            axis.bar(
                place + (number - (len(labels) - 1) / 2) * width, 100 * estimate.mean, 0.9 * width, yerr=half, capsize=2,
                color=gray, edgecolor="black", lw=0.6, hatch=HATCHES[number % len(HATCHES)],
                label=label if regime == first else None,
            )  # fmt: skip
    low = min(100 * e.low for row in found.values() for e in row.values() if e is not None)
    axis.set_ylim(max(0, low - 5), None)
    axis.set_xticks(range(len(regimes)), list(map(regime_heading, regimes)))
    axis.set(xlabel="labelled training images", ylabel="Dice (%)", title=f"{comparison.dataset}: Dice by variant")
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    shown = {label: {regime_heading(r): e for r, e in row.items() if e is not None} for label, row in found.items()}
    return picture(
        figure,
        alt=f"Dice by variant on {comparison.dataset}. {_in_words(shown)}",
        caption=f"{MEAN_WITH_BARS} The vertical axis does not start at zero.",
    )


def learning_curves(comparison: Comparison) -> Picture | None:
    """Draw the mean loss of each arm on labelled images, in the middle one of the label regimes most arms have."""
    arms = {regime: sum(bool(comparison.cell(label, regime)) for label in comparison.labels) for regime in comparison.regimes}
    shared = [regime for regime in comparison.regimes if arms[regime] == max(arms.values())]
    regime = shared[(len(shared) - 1) // 2]
    curves = {}
    for label in leading(comparison):
        found = [_loss(run.folder) for run in comparison.cell(label, regime)[:MAX_RUNS]]
        runs = [each for each in found if each is not None]
        # The mean ends with the shortest run, as runs can stop early.
        shortest = min((len(steps) for steps, _ in runs), default=0)
        if shortest:
            curves[label] = runs[0][0][:shortest], np.mean([loss[:shortest] for _, loss in runs], axis=0), len(runs)
    if not curves:
        return None
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for number, (label, (steps, loss, n)) in enumerate(curves.items()):
        axis.plot(steps, loss, **_style(number), markevery=0.15, label=f"{label} (n = {n})")
    title = f"{comparison.dataset}: learning curves, label regime {regime_heading(regime)}"
    axis.set(xlabel="update", ylabel="loss", title=title)
    axis.legend(frameon=False, fontsize=8)
    last = "; ".join(f"{label} ends at {loss[-1]:.3g}" for label, (_, loss, _) in curves.items())
    return picture(
        figure,
        alt=f"Loss of stage 2 on {comparison.dataset}: {last}.",
        caption="Stage-2 loss on the labelled images, mean over runs. A lower training loss does not imply a higher test Dice.",
    )


def _loss(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return updates and loss of stage 2, or None without a readable history."""
    try:
        with (folder / "history.csv").open(encoding="utf-8", newline="") as file:
            rows = [(float(row["step"]), float(row["supervised"])) for row in csv.DictReader(file) if row["stage"] == "fit"]
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return None
    steps, loss = np.array(rows).T if rows else (np.empty(0), np.empty(0))
    return steps, loss


def leading(comparison: Comparison) -> list[str]:
    """Return the baseline, the proposed method and the arms with the highest mean Dice, at most `MAX_CURVES`."""
    proposed = [] if comparison.proposed is None else [comparison.proposed]
    ranked = [*comparison.labels_of(comparison.baseline), *proposed, *comparison.best_first()]
    chosen = set(list(dict.fromkeys(ranked))[:MAX_CURVES])
    return [label for label in comparison.labels if label in chosen]


def _style(number: int) -> dict[str, Any]:
    properties = {"linestyle": STYLES, "marker": MARKERS, "color": GRAYS}
    return {name: values[number % len(values)] for name, values in properties.items()}


def _line(axis: Axes, x: Sequence[float], estimates: Sequence[Estimate], number: int, label: str) -> None:
    halves = [100 * (estimate.half or 0.0) for estimate in estimates]
    means = [100 * estimate.mean for estimate in estimates]
    axis.errorbar(x, means, yerr=halves, capsize=2, elinewidth=0.8, markersize=5, label=label, **_style(number))


def _in_words(lines: dict[str, dict[str, Estimate]]) -> str:
    """Return all means as alternative text."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{place} {100 * estimate.mean:.1f}" for place, estimate in points.items())
        for name, points in lines.items()
    )
