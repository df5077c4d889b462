"""Figures of a run, readable in black and white."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from hebbseg.atomic_files import replacing

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

matplotlib.rcParams["text.parse_math"] = False  # names of files and classes may contain $

Row = dict[str, Any]
STYLES = ("-", "--", ":", "-.")


def save_figure(figure: Figure, path: Path) -> None:
    """Save as PNG, atomically and without a date, so that equal figures are equal files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def draw_history(history: Sequence[Row], path: Path) -> None:
    """Plot the diagnostics of stage 1 and the loss and validation Dice of stage 2."""
    stages = {name: [row for row in history if row["stage"] == name] for name in ("pretrain", "fit")}
    panels = [(name, rows) for name, rows in stages.items() if rows]
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 3.6), squeeze=False, layout="constrained")
    for axis, (name, rows) in zip(axes[0], panels, strict=True):
        steps = [row["step"] for row in rows]
        if name == "pretrain":
            curves = {
                "effective_units": "winning units",
                "rank": "effective rank",
                "cosine": "mean |cos|",
                "moved": "weight change",
            }
            axis.set(title="Stage 1: pre-training without masks", xlabel="step", ylabel="fraction", ylim=(0, 1.05))
        else:
            curves = {key: key for key in rows[-1] if key not in ("stage", "step", "learning_rate", "dice")}
            axis.set(title="Stage 2: fine-tuning", xlabel="update", ylabel="loss")
        for number, (key, label) in enumerate(curves.items()):
            style = STYLES[number % len(STYLES)]
            axis.plot(steps, [row.get(key, np.nan) for row in rows], style, color=str(0.15 * (number % 4)), label=label)
        validations = [(row["step"], row["dice"]) for row in rows if "dice" in row]
        if validations:
            twin = axis.twinx()
            twin.plot(*zip(*validations, strict=True), "o-", color="tab:orange", label="validation Dice")
            twin.set(ylim=(0, 1), ylabel="Dice")
        axis.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def draw_grid(pictures: Sequence[np.ndarray], path: Path, title: str, labels: Sequence[str] = ()) -> None:
    """Plot RGB images in rows of three."""
    if not pictures:
        return
    columns = min(3, len(pictures))
    rows = -(-len(pictures) // columns)
    shape = pictures[0].shape
    size = 3.4 * columns, 3.4 * rows * shape[0] / shape[1] + 0.6
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.axis("off")
    for number, (axis, picture) in enumerate(zip(axes.flat, pictures, strict=False)):
        axis.imshow(picture)
        if number < len(labels):
            axis.set_title(labels[number], fontsize=9)
    figure.suptitle(title)
    save_figure(figure, path)
