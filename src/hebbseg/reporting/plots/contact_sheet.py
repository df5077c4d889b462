"""Contact sheets: images with overlaid masks, for checking their alignment."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import IGNORE, Case, ClassInfo, Source
from hebbseg.data.large_files import is_large_case, small_case
from hebbseg.data.sources.files import FileSource
from hebbseg.reporting.plots.overlay import displayable, hatch

# A green that occurs in no stain or skin, then the colorblind-safe palette of Okabe and Ito.
CLASS_COLOURS = np.asarray(
    [(0, 230, 118), (230, 159, 0), (86, 180, 233), (240, 228, 66), (213, 94, 0), (204, 121, 167), (0, 114, 178)],
    np.float32,
)
_LARGEST = 2048  # side of large images when they are read
_TILE, _GAP, _CAPTION, _HEADER = 200, 10, 22, 64
_BACKGROUND, _INK, _FAINT = (24, 26, 30), (236, 238, 240), (150, 155, 162)
_FILL = 0.22


def contact_sheet(
    source: Source,
    cases: Sequence[Case],
    classes: Sequence[ClassInfo],
    path: str | Path,
    *,
    columns: int = 6,
    most: int = 24,
    captions: Mapping[str, str] | None = None,
) -> Path:
    """Draw up to ``most`` evenly spaced cases, labelled and unlabelled in proportion, and return the path.

    Volumes show the slice along the shortest axis with the most foreground, or the middle slice without a mask.

    Args:
        captions: text below each image, by case; default: its name, and whether it has a mask.
    """
    shown = choose(cases, most)
    columns = min(columns, max(len(shown), 4))
    slices = [middle_slice(source, case, classes) for case in shown]
    tiles = [overlay(*each) for each in slices]
    rows = [range(start, min(start + columns, len(shown))) for start in range(0, len(shown), columns)]
    heights = [max(tiles[i].height for i in row) for row in rows]
    size = (_GAP + columns * (_TILE + _GAP), _HEADER + sum(heights) + len(rows) * (_CAPTION + _GAP))
    sheet = Pillow.new("RGB", size, _BACKGROUND)
    hatched = " · hatched: not annotated" if any(m is not None and (m == IGNORE).any() for _, m in slices) else ""
    _draw_header(sheet, f"{source.name} · {len(shown)} of {len(cases)} cases{hatched}", classes)
    top = _HEADER
    for row, height in zip(rows, heights, strict=True):
        for column, i in enumerate(row):
            left = _GAP + column * (_TILE + _GAP)
            sheet.paste(tiles[i], (left + (_TILE - tiles[i].width) // 2, top + (height - tiles[i].height) // 2))
            caption = shown[i].id if shown[i].has_mask else f"{shown[i].id} · no mask"
            caption, ink = (caption, None) if captions is None else (captions[shown[i].id], _INK)
            _write(sheet, (left, top + height + 3), caption, 13, ink or (_INK if shown[i].has_mask else _FAINT), _TILE)
        top += height + _CAPTION + _GAP
    path = Path(path)
    with replacing(path) as temporary:
        sheet.save(temporary, format="PNG")
    return path


def choose(cases: Sequence[Case], most: int) -> list[Case]:
    """Return up to ``most`` evenly spaced cases, labelled and unlabelled in proportion, with some of each."""
    labelled = [case for case in cases if case.has_mask]
    others = [case for case in cases if not case.has_mask]
    if len(cases) <= most:
        return [*labelled, *others]
    n = round(most * len(labelled) / len(cases))
    n = min(max(n, 6 if labelled else 0), most - (3 if others else 0), len(labelled))
    return [*_evenly(labelled, n), *_evenly(others, most - n)]


def middle_slice(source: Source, case: Case, classes: Sequence[ClassInfo]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return pixels 0 … 255, (H, W) or (H, W, 3), and class indices, (H, W), in display orientation."""
    if is_large_case(source, case):
        assert isinstance(source, FileSource)
        image, mask = small_case(source, case, _LARGEST, mask=bool(classes))
    else:
        image, mask = source.image(case), source.mask(case) if case.has_mask and classes else None
    if image.ndim == 4:  # (C, *volume) → (C, H, W)
        axis = int(np.argmin(image.shape[1:]))
        index = image.shape[1 + axis] // 2
        drawn = None if mask is None else (mask > 0) & (mask != IGNORE)
        if drawn is not None and drawn.any():
            others = tuple(a for a in range(3) if a != axis)
            index = int(drawn.sum(axis=others).argmax())
        image = image.take(index, axis=1 + axis)
        mask = None if mask is None else mask.take(index, axis=axis)
    if getattr(source, "axes", "zyx") == "xyz":
        image, mask = image.transpose(0, 2, 1), None if mask is None else mask.T
    pixels = displayable(image[:3] if len(image) >= 3 else image[:1])
    return (np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else pixels[0]), mask  # (3, H, W) → (H, W, 3)


def overlay(pixels: np.ndarray, mask: np.ndarray | None, size: int = _TILE) -> Pillow.Image:
    """Return an image of at most ``size`` pixels per side, with each class tinted and outlined.

    Pixels that are not annotated are hatched.
    """
    picture = Pillow.fromarray(pixels).convert("RGB")
    scale = size / max(picture.size)
    small = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    picture = picture.resize(small, Pillow.Resampling.LANCZOS if scale < 1 else Pillow.Resampling.BICUBIC)
    if mask is None:
        return picture
    classes = np.asarray(Pillow.fromarray(mask).resize(small, Pillow.Resampling.NEAREST))
    canvas = np.asarray(picture).astype(np.float32)
    colour = CLASS_COLOURS[(classes.astype(int) - 1) % len(CLASS_COLOURS)]  # (H, W, 3)
    hatch(canvas, classes == IGNORE)
    inside = (classes > 0) & (classes != IGNORE)
    canvas[inside] = (1 - _FILL) * canvas[inside] + _FILL * colour[inside]
    border = inside & _touches_other(classes)
    canvas[border] = colour[border]
    return Pillow.fromarray(canvas.astype(np.uint8))


def _touches_other(classes: np.ndarray) -> np.ndarray:
    padded = np.pad(classes, 1, mode="edge")
    neighbours = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    return np.logical_or.reduce([neighbour != classes for neighbour in neighbours])


def _draw_header(sheet: Pillow.Image, title: str, classes: Sequence[ClassInfo]) -> None:
    _write(sheet, (_GAP, 8), title, 18, _INK, sheet.width - 2 * _GAP)
    left = _GAP
    draw = ImageDraw.Draw(sheet)
    for c in classes[1:]:
        colour = tuple(int(part) for part in CLASS_COLOURS[(c.index - 1) % len(CLASS_COLOURS)])
        draw.rectangle((left, 38, left + 12, 50), fill=colour)
        left += 18 + _write(sheet, (left + 18, 36), c.name, 13, _INK, sheet.width - left - 30) + 16
        if left > sheet.width - 80:
            break


def _write(sheet: Pillow.Image, at: tuple[int, int], words: str, size: int, colour: tuple[int, int, int], width: int) -> int:
    """Write text, shortened in the middle to fit ``width``; return the width used."""
    font = ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)
    text = words
    while font.getlength(text) > width and len(words) > 6:
        words = words[: len(words) // 2 - 1] + words[len(words) // 2 + 1 :]
        text = words[: len(words) // 2] + "…" + words[len(words) // 2 :]
    ImageDraw.Draw(sheet).text(at, text, font=font, fill=colour)
    return int(font.getlength(text))


def _evenly(cases: Sequence[Case], n: int) -> list[Case]:
    n = min(n, len(cases))
    return [cases[i * len(cases) // n] for i in range(n)]
