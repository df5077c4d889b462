"""Pictures of one run: training curves, filters of stage 1, and test cases."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hebbseg.errors import HebbsegError, printable
from hebbseg.reporting.charts import GRAYS, Picture, picture
from hebbseg.reporting.plots.figures import STYLES, plt
from hebbseg.reporting.plots.filters import UNITS_AT_MOST, draw_filters, learned_filters
from hebbseg.reporting.run_page.facts import RunFacts
from hebbseg.reporting.run_page.tables import spatial_dims
from hebbseg.runs.examples import FOLDER, INDEX, ROLES
from hebbseg.text_files import read_json

SIZE = (5.4, 3.2)  # inches; as wide as a telephone
WINDOW = 0.05  # of the updates, over which the loss is averaged
STAGE_1 = {
    "moved": "weight change",
    "effective_units": "winning units",
    "rank": "effective rank",
    "cosine": "mean |cos|",
}
NO_TERMS = ("stage", "phase", "epoch", "step", "learning_rate")
COLORS = ("yellow", "light blue", "vermilion", "green", "purple", "orange")  # of `overlay`, by class


def stage1_curves(facts: RunFacts) -> Picture | None:
    rows = facts.rows_of("pretrain")
    hebbian = any("moved" in row and row["moved"] != "" for row in rows)
    terms = [name for name in (rows[-1] if rows else ()) if name not in NO_TERMS]
    curves = {
        label: _series(rows, key) for key, label in (STAGE_1 if hebbian else dict(zip(terms, terms, strict=True))).items()
    }
    curves = {label: (x, y) for label, (x, y) in curves.items() if len(x)}
    if not curves:
        return None
    meaning = (
        "weight change: in each epoch, relative to the weights; winning units and effective rank: as a fraction of the units; "
        "mean |cos|: similarity of filters. Layers learn one after another, so the lines restart with each."
    )
    return _lines(
        curves,
        title="Stage 1",
        xlabel="step",
        ylabel="fraction" if hebbian else "loss",
        alt=f"Stage 1 over its steps: {_ends(curves)}.",
        caption=f"Stage 1, without masks. {meaning if hebbian else 'Terms of its loss.'}",
    )


def loss_curve(facts: RunFacts) -> Picture | None:
    """Draw the loss on the labelled images: every update, and its mean over a window."""
    rows = facts.rows_of("fit")
    x, y = _series(rows, "supervised")
    if not len(x):
        x, y = _series(rows, "loss")
    if not len(x):
        return None
    smooth = smoothed(y)

    def draw(axis: Axes) -> None:
        axis.plot(x, y, color="0.75", lw=0.7, label="each update")
        axis.plot(x, smooth, color="0.0", lw=1.6, label="running mean")
        axis.set_ylim(0, 1.05 * float(np.percentile(y, 99)))

    return _chart(
        draw,
        title="Stage 2: loss",
        xlabel="update",
        ylabel="loss",
        alt=f"Loss of stage 2: running mean {smooth[0]:.3g} at the start, {smooth[-1]:.3g} at the end.",
        caption="Loss of stage 2 on the labelled images. The batches are augmented, so it varies; a lower training loss does "
        "not imply a higher test Dice.",
    )


def validation_curve(facts: RunFacts) -> Picture | None:
    found = facts.validations
    if not found:
        return None
    best = max(found, key=lambda each: each[1])

    def draw(axis: Axes) -> None:
        axis.plot(*zip(*found, strict=True), "o-", color="0.0", markersize=3.5, label="validation Dice")
        axis.plot(*best, "D", color="0.0", markerfacecolor="white", markersize=8, label="best: the weights kept")
        axis.set_ylim(0, 1)

    return _chart(
        draw,
        title="Stage 2: validation Dice",
        xlabel="update",
        ylabel="Dice",
        alt=f"Validation Dice: from {found[0][1]:.3f} to {found[-1][1]:.3f}, best {best[1]:.3f} at update {best[0]}.",
        caption=f"Mean Dice of the {len(facts.split.training.validation)} validation cases, which select the weights; no "
        "result is reported from it.",
    )


def filters(facts: RunFacts) -> Picture:
    """Draw the filters of the first layer that stage 1 trained; raise HebbsegError without the files."""
    layer, before, after = learned_filters(facts.folder, facts.settings.run_seed)
    units = min(UNITS_AT_MOST, len(before))
    return picture(
        draw_filters(before, after),
        vector=False,
        alt=f"{units} filters of {layer}, the first layer trained in stage 1, before and after.",
        caption=f"First {units} filters of {printable(layer)}, the first layer that stage 1 trained, before and after it"
        f"{', middle slices' if spatial_dims(facts) == 3 else ''}. Each is scaled on its own; medium gray is zero.",
    )


def test_cases(facts: RunFacts) -> list[Picture]:
    """Return the test cases that the run has drawn, worst first; none if it has drawn none."""
    index = facts.folder / FOLDER / INDEX
    if not index.is_file():
        return []
    remedy = "Delete it; the page is then made without test cases."
    found = read_json(index, remedy).get("cases")
    pictures = []
    for each in found if isinstance(found, list) else []:
        try:
            role, case, dice, name = str(each["role"]), printable(each["case"]), float(each["dice"]), str(each["file"])
            data = (index.parent / name).read_bytes() if role in ROLES and "/" not in name and "\\" not in name else b""
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise HebbsegError(f"{index}: not a list of test cases ({error!r}). {remedy}") from error
        if data.startswith(b"\xff\xd8"):
            pictures.append(
                Picture(
                    uri=f"data:image/jpeg;base64,{base64.b64encode(data).decode()}",
                    alt=f"Test case {case} with the contours of prediction and ground truth, Dice {dice:.2f}.",
                    caption=f"{role}: Dice {100 * dice:.1f} %, {case}",
                )
            )
    return pictures


def contour_legend(facts: RunFacts) -> str:
    names = list(facts.class_names.values())
    if len(names) < 2:
        return "Contours: prediction in yellow (light), ground truth in blue (dark)."
    colors = ", ".join(f"{name} {COLORS[k % len(COLORS)]}" for k, name in enumerate(names))
    return f"Contours: prediction in one color per class ({colors}), ground truth of all classes in blue (dark)."


def smoothed(values: np.ndarray) -> np.ndarray:
    """Return the running mean over a centered window of `WINDOW` of the values, shorter at both ends."""
    half = max(1, round(WINDOW * len(values) / 2))
    sums = np.concatenate(([0.0], np.cumsum(values)))
    places = np.arange(len(values))
    first, last = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return np.asarray((sums[last] - sums[first]) / (last - first))


def _series(rows: Sequence[dict[str, Any]], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and values of a column of the history, where it has numbers."""
    found = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), float)]
    x, y = np.array(found, dtype=float).reshape(-1, 2).T
    return x, y


def _lines(curves: dict[str, tuple[np.ndarray, np.ndarray]], **texts: str) -> Picture:
    def draw(axis: Axes) -> None:
        for number, (label, (x, y)) in enumerate(curves.items()):
            style: dict[str, Any] = {"linestyle": STYLES[number % len(STYLES)], "color": GRAYS[number % len(GRAYS)]}
            axis.plot(x, y, **style, label=label)
        axis.set_ylim(0, None)

    return _chart(draw, **texts)


def _chart(draw: Callable[[Axes], None], *, title: str, xlabel: str, ylabel: str, alt: str, caption: str) -> Picture:
    figure, axis = plt.subplots(figsize=SIZE, layout="constrained")
    draw(axis)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.grid(axis="y", color="0.9")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return picture(figure, alt=alt, caption=caption)


def _ends(curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> str:
    return "; ".join(f"{label} ends at {y[-1]:.2f}" for label, (_, y) in curves.items())
