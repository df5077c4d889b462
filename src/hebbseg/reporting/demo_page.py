"""The page of the demo: one file, pictures inside, nothing loaded from elsewhere."""

import base64
import json
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape

from hebbseg import __version__
from hebbseg.atomic_files import write_text
from hebbseg.data.sources import open_source
from hebbseg.evaluation.metrics import dice
from hebbseg.experiments.demo import ARMS, BASELINE, OURS, DemoResult, conclusion, loss_curve, table_rows
from hebbseg.inference.predictor import Predictor
from hebbseg.reporting.plots.figures import STYLES, plt, save_figure
from hebbseg.reporting.plots.filters import draw_filters, learned_filters
from hebbseg.reporting.plots.overlay import overlay

PICTURES = 4


def write_report(result: DemoResult) -> Path:
    """Draws the figures and writes ``report.html``."""
    figures = result.folder / "figures"
    draw_predictions(result, figures / "predictions.png")
    layer, before, after = learned_filters(result.run_folder(0, OURS), 0)
    save_figure(draw_filters(before, after), figures / "filters.png")
    draw_curves(result, figures / "curves.png")
    settings = json.loads((result.run_folder(0, OURS) / "run.json").read_text(encoding="utf-8"))["settings"]
    split = json.loads((result.run_folder(0, OURS) / "split.json").read_text(encoding="utf-8"))
    environment = Environment(loader=PackageLoader("hebbseg.reporting"), autoescape=select_autoescape())
    page = environment.get_template("demo.html").render(
        version=__version__,
        result=result,
        first_layer=layer,
        rows=table_rows(result),
        conclusion=conclusion(result),
        settings=settings,
        labelled=len(split["training"]["labelled"]),
        images=len(split["training"]["labelled"]) + len(split["training"]["unlabelled"]),
        layers=json.loads((result.run_folder(0, OURS) / "pretrain.json").read_text(encoding="utf-8")),
        pictures={path.stem: data_uri(path) for path in sorted(figures.glob("*.png"))},
    )
    target = result.folder / "report.html"
    write_text(target, page)
    return target


def data_uri(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def draw_predictions(result: DemoResult, path: Path) -> None:
    """Test cases of the first seed, at equal distances through the list: image, target, both arms."""
    folders = [result.run_folder(0, arm) for arm in (BASELINE, OURS)]
    run = json.loads((folders[0] / "run.json").read_text(encoding="utf-8"))
    ids = json.loads((folders[0] / "split.json").read_text(encoding="utf-8"))["test"]
    source = open_source(run["settings"]["data"])
    shown = {ids[round(position)] for position in np.linspace(0, len(ids) - 1, min(PICTURES, len(ids)))}
    cases = [case for case in source.cases if case.id in shown]
    segmenters = [Predictor.load(folder) for folder in folders]
    headings = ["image", "target", *(f"{arm} init" for arm in (BASELINE, OURS))]
    figure, axes = plt.subplots(len(cases), 4, figsize=(10, 2.6 * len(cases)), squeeze=False)
    for row, case in zip(axes, cases, strict=True):
        image, target = source.image(case), source.mask(case)
        predictions = [segmenter.probabilities(image).argmax(0).numpy() for segmenter in segmenters]
        masks = [np.zeros_like(target), target, *predictions]
        for number, (axis, mask) in enumerate(zip(row, masks, strict=True)):
            axis.imshow(overlay(image, mask, target=target if number > 1 else None))
            score = f", Dice {dice(mask > 0, target > 0):.2f}" if number > 1 else ""
            axis.set_title(headings[number] + score, fontsize=9)
            axis.axis("off")
    save_figure(figure, path)


def draw_curves(result: DemoResult, path: Path) -> None:
    """Left the loss of stage 2, the mean over seeds; right the test Dice, a line for each seed."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
    for number, arm in enumerate(ARMS):
        curves = [loss_curve(result.run_folder(seed, arm)) for seed in range(result.seeds)]
        mean = np.mean([loss for _, loss in curves], axis=0)
        # Ours is drawn last, solid and black.
        behind = len(ARMS) - 1 - number
        left.plot(curves[0][0], mean, STYLES[behind], color=str(0.3 * behind), label=arm)
    left.set(title="Loss on the labelled images (mean over seeds)", xlabel="update", ylabel="loss")
    left.legend(frameon=False)
    for seed in range(result.seeds):
        values = [100 * result.dice[arm][seed] for arm in ARMS]
        right.plot(range(len(ARMS)), values, "o-", color=str(0.7 * seed / max(1, result.seeds)), label=f"seed {seed}")
    right.set_xticks(range(len(ARMS)), list(ARMS))
    right.set(title="Test Dice, one line per seed", ylabel="Dice (%)", xlim=(-0.3, len(ARMS) - 0.7))
    right.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
