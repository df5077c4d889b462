from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.torch import load_file

from hebbseg import Segmenter
from hebbseg.reporting.plots.figures import draw_grid, draw_history, plt, save_figure
from hebbseg.reporting.plots.filters import learned_filters

HISTORY = [
    {"stage": "pretrain", "step": s, "moved": 0.5 / s, "effective_units": 0.8, "cosine": 0.1, "rank": 0.9} for s in (1, 2, 3)
] + [{"stage": "fit", "step": s, "learning_rate": 0.1, "loss": 1 / s, "supervised": 1 / s} for s in (1, 2)]


def test_history_shows_both_stages(tmp_path: Path) -> None:
    draw_history(HISTORY, tmp_path / "both.png")
    draw_history(HISTORY[3:], tmp_path / "fit.png")
    both, fit = (Image.open(tmp_path / name).size for name in ("both.png", "fit.png"))
    assert both[0] > 1.5 * fit[0]
    draw_history([], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_the_same_history_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_history([*HISTORY[:-1], HISTORY[-1] | {"dice": 0.7}], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_grid_has_three_to_a_row(tmp_path: Path) -> None:
    pictures = [np.full((20, 30, 3), 40 * n, np.uint8) for n in range(4)]
    draw_grid(pictures, tmp_path / "four.png", "four", ["a", "b"])
    draw_grid(pictures[:2], tmp_path / "two.png", "two")
    four, two = (Image.open(tmp_path / name).size for name in ("four.png", "two.png"))
    assert four[0] > two[0] and four[1] > two[1]


def test_filters_of_a_transposed_layer_lie_as_those_of_a_convolution(tmp_path: Path) -> None:
    Segmenter.train(
        "phantom:glands?n=6&size=32", tmp_path / "run", quiet=True, labelled="2", size=(32, 32), features=(4, 8), updates=1,
        labelled_batch=2, part="decoder", levels="all", pretrain_epochs=1,
    )  # fmt: skip
    layer, before, after = learned_filters(tmp_path / "run", seed=0)
    assert layer == "decoder.level0.up"
    assert before.shape == after.shape == (4, 8, 2, 2), "output channels first"
    weight = load_file(tmp_path / "run" / "pretrained.safetensors")["decoder.level0.up.weight"]
    assert np.array_equal(after[1, 5], weight[5, 1].numpy()) and not np.allclose(before, after)


def test_names_of_cases_are_no_formulas(tmp_path: Path) -> None:
    figure, axis = plt.subplots()
    axis.set_title(r"case $\frac{$ and $x_{$")  # names of files
    save_figure(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 0
