"""Figures of test cases show the images as they are, with the name of each case."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image as Pillow

from hebbseg.data.sources import open_source
from hebbseg.reporting.plots import figures
from hebbseg.runs.pictures import Shown, draw_cases, shown
from tests.data.trees import save


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved."""
    found: list[Figure] = []
    save_figure = figures.save_figure
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: (found.append(figure), save_figure(figure, path)))
    return found


def wide_folder(root: Path) -> Path:
    """Red images of 60 × 150 pixels and one of 600 × 1500, each with a square."""
    for name, scale in (("small", 1), ("large", 10)):
        image = np.zeros((60 * scale, 150 * scale, 3), np.uint8)
        image[..., 0] = 200
        mask = np.zeros(image.shape[:2], np.uint8)
        mask[20 * scale : 40 * scale, 90 * scale : 130 * scale] = 255
        save(root / "images" / f"{name}.png", image)
        save(root / "masks" / f"{name}.png", mask)
    return root


def test_cases_keep_their_colors_and_aspect_ratio_and_are_named(tmp_path: Path, drawn: list[Figure]):
    source = open_source(wide_folder(tmp_path / "data"))
    square = np.zeros((16, 16), np.uint8)  # smaller than the images, as at the size used in training
    square[5:11, 10:14] = 1
    shown = [Shown(case=name, prediction=square, target=square, dice=0.5) for name in ("large", "small")]
    draw_cases(source, shown, tmp_path / "test.png", "Test cases")
    (figure,) = drawn
    axes = figure.axes
    assert [axis.get_title() for axis in axes] == ["large  Dice 0.50", "small  Dice 0.50"]
    for axis in axes:
        pixels = np.asarray(axis.images[0].get_array())
        height, width = pixels.shape[:2]
        assert width / height == pytest.approx(2.5, rel=0.02)
        assert tuple(pixels[2, 2]) == (200, 0, 0)
        yellow = np.argwhere((pixels == (240, 228, 66)).all(-1)) / (height, width)
        assert yellow.min(0) == pytest.approx((5 / 16, 10 / 16), abs=0.03), "the contour is where the mask is"
        assert yellow.max(0) == pytest.approx((11 / 16, 14 / 16), abs=0.03)
    with Pillow.open(tmp_path / "test.png") as picture:
        assert picture.width > 2 * picture.height


def test_masks_in_original_pixels_are_kept_as_small_as_they_are_drawn(tmp_path: Path, drawn: list[Figure]):
    source = open_source(wide_folder(tmp_path / "data"))
    masks = {case.id: source.mask(case) for case in source.cases}
    moved = {name: np.roll(mask, mask.shape[0] // 6, 0) for name, mask in masks.items()}
    chosen = [shown(name, moved[name], masks[name], 2) for name in ("large", "small")]
    assert [each.target.shape for each in chosen] == [(205, 512), (60, 150)]
    assert [each.dice for each in chosen] == pytest.approx([0.5, 0.5], abs=1e-9), "of the masks as given"
    draw_cases(source, chosen, tmp_path / "test.png", "Test cases")
    for axis in drawn[0].axes:
        pixels = np.asarray(axis.images[0].get_array())
        height, width = pixels.shape[:2]
        yellow = np.argwhere((pixels == (240, 228, 66)).all(-1)) / (height, width)
        assert yellow.min(0) == pytest.approx((30 / 60, 90 / 150), abs=0.03)


def test_long_names_keep_their_ends(tmp_path: Path, drawn: list[Figure]):
    name = "a" * 30 + "_0123456789"
    save(tmp_path / "images" / f"{name}.png", np.zeros((8, 8), np.uint8))
    save(tmp_path / "masks" / f"{name}.png", np.eye(8, dtype=np.uint8) * 255)
    source = open_source(tmp_path)
    draw_cases(source, [shown(name, source.mask(source.cases[0]), source.mask(source.cases[0]), 2)], tmp_path / "a.png", "")
    (title,) = (axis.get_title() for axis in drawn[0].axes)
    assert title.startswith("aaaa") and "…a_0123456789  Dice 1.00" in title and len(title) < 40
