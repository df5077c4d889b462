"""The gain figure: the change of every method with its weight initialization, all data sets and label regimes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from hebbseg.reporting.charts import Picture, picture
from hebbseg.reporting.comparison import Comparison, natural
from hebbseg.reporting.plots.figures import plt
from hebbseg.reporting.tables.comparisons import regime_heading
from hebbseg.reporting.tables.table import shown_number

BAR, GAIN, LOSS, NEITHER = "#9ecae1", "#1a7f37", "#c1121f", "0.4"
Gain = tuple[str, str, float, float, bool]  # arm, reference, Dice of the reference, of the arm, interval excludes zero


def gain_figure(group: Sequence[Comparison]) -> Picture | None:
    """Draw a bar for each reference arm and an arrow to the Dice of the arm with another weight initialization.

    Each row has the label regimes of one data set. Only runs paired by fold and seed count.
    """
    found = {(c.dataset, regime): _gains(c, regime) for c in group for regime in c.regimes}
    found = {place: gains for place, gains in found.items() if gains}
    if not found:
        return None
    datasets = [c.dataset for c in group if any(place[0] == c.dataset for place in found)]
    panels = {dataset: sorted((regime for name, regime in found if name == dataset), key=natural) for dataset in datasets}
    columns = max(len(regimes) for regimes in panels.values())
    most = max(len(gains) for gains in found.values())
    size = (1.0 + max(1.7, 0.42 * most) * columns, 0.9 + 2.1 * len(datasets))
    figure, axes = plt.subplots(len(datasets), columns, figsize=size, squeeze=False, layout="constrained")
    for row, (dataset, regimes) in zip(axes, panels.items(), strict=True):
        for axis, regime in zip(row, regimes, strict=False):
            _draw(axis, found[dataset, regime])
            axis.set_title(f"{dataset}, {regime_heading(regime)}", fontsize=9)
        for axis in row[len(regimes) :]:
            axis.set_visible(False)
        row[0].set_ylabel("Dice (%)", fontsize=9)
    words = (
        f"{dataset}, {regime_heading(regime)}: "
        + ", ".join(f"{other} to {label} {before:.1f} to {after:.1f}" for label, other, before, after, _ in gains)
        for (dataset, regime), gains in found.items()
    )
    return picture(
        figure,
        alt=f"Dice by method and weight initialization. {'; '.join(words)}.",
        caption="Bar: mean Dice of the reference (random weights). Arrow and number: change with the other weight "
        "initialization, paired by fold and seed; green and upward: gain, red and downward: loss. Solid: the 90 % interval of "
        "the change excludes zero; dashed: it includes zero or is unknown. The vertical axes do not start at zero.",
    )


def _gains(comparison: Comparison, regime: str) -> list[Gain]:
    gains = []
    for label, other in comparison.gains():
        difference = comparison.difference(label, other, regime)
        if difference is None:
            continue
        # Paired runs only: an unpaired run would move one end of the arrow.
        after, before = (comparison.values(name, regime, "dice") for name in (label, other))
        start = 100 * float(np.mean([before[pair] for pair in sorted(before.keys() & after.keys(), key=repr)]))
        gains.append((label, other, start, start + 100 * difference.estimate.mean, difference.direction != 0))
    return gains


def _draw(axis: Axes, gains: Sequence[Gain]) -> None:
    references = [other for _, other, *_ in gains]
    ends = [end for _, _, before, after, _ in gains for end in (before, after)]
    margin = 0.18 * (max(ends) - min(ends)) + 1.0
    axis.set_ylim(max(0.0, min(ends) - 1.5 * margin), max(ends) + margin)
    for place, (_, _, before, after, clear) in enumerate(gains):
        change = shown_number(after - before, 1, sign=True)
        color = {"+": GAIN, "−": LOSS}.get(change[0], NEITHER)
        axis.bar(place, before, 0.7, color=BAR, edgecolor="0.3", lw=0.6)
        style = {"arrowstyle": "-|>", "color": color, "lw": 2.0 if clear else 1.2, "linestyle": "-" if clear else "--"}
        axis.annotate("", xy=(place, after), xytext=(place, before), arrowprops=style | {"shrinkA": 0, "shrinkB": 0})
        up = after >= before
        axis.annotate(
            change, (place, after), xytext=(0, 2 if up else -2),
            textcoords="offset points", ha="center", va="bottom" if up else "top", fontsize=7, color=color, fontweight="bold",
        )  # fmt: skip
    # Arms that share a reference have its bar in common, so they are named in full.
    names = [other if references.count(other) == 1 else label for label, other, *_ in gains]
    axis.set_xticks(range(len(gains)), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    axis.tick_params(axis="y", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
