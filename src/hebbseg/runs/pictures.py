"""Pictures of evaluated cases: the original image with the contours of prediction and target."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from hebbseg.data.cases import IGNORE, Source
from hebbseg.data.large_files import is_large_case, small_case
from hebbseg.data.resampling import resized_mask
from hebbseg.data.sources.files import FileSource
from hebbseg.evaluation.metrics import mean_dice
from hebbseg.reporting.plots.figures import draw_grid
from hebbseg.reporting.plots.overlay import overlay

LONGER_SIDE = 512
NAME_LENGTH = 26  # longer names overlap their neighbors


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The prediction and target of one case, (*S) class indices of any size, and the mean Dice of its classes."""

    case: str
    prediction: np.ndarray
    target: np.ndarray
    dice: float


def shown(case: str, prediction: np.ndarray, target: np.ndarray, classes: int) -> Shown:
    """Return the masks (*S) of a case, those of images reduced to the size at which they are drawn, and their Dice."""
    size = _display_size(target.shape)
    small = (_resized_classes(mask, size, classes) for mask in (prediction, target))
    return Shown(case=case, prediction=next(small), target=next(small), dice=mean_dice(prediction, target, classes))


def draw_cases(source: Source, chosen: Sequence[Shown], path: Path, title: str) -> None:
    """Draw the cases in their own colors and aspect ratio, each with its name and Dice."""
    pictures = [drawn(source, each) for each in chosen]
    labels = [f"{_shortened(each.case)}  Dice {each.dice:.2f}" for each in chosen]
    colours = "in yellow" if len(source.classes) == 2 else "in one color per class"
    hatched = ", hatched where not annotated" if any((each.target == IGNORE).any() for each in chosen) else ""
    draw_grid(pictures, path, f"{title}: prediction {colours}, target in blue{hatched}", labels)


def drawn(source: Source, one: Shown) -> np.ndarray:
    """Return the image of a case with the contours of prediction and target, (height, width, 3) uint8."""
    case = next(case for case in source.cases if case.id == one.case)
    if is_large_case(source, case):
        assert isinstance(source, FileSource)
        image = small_case(source, case, 4 * LONGER_SIDE, mask=False)[0]
    else:
        image = source.image(case)  # (C, *S)
    size = _display_size(image.shape[1:])
    prediction, target = (_resized_classes(mask, size, len(source.classes)) for mask in (one.prediction, one.target))
    spacing = case.spacing_mm if len(size) == 3 else None
    return overlay(_resized_image(image, size), prediction, target=target, spacing=spacing)


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH // 2]}…{name[1 - NAME_LENGTH // 2 :]}"


def _display_size(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the size of an image within the limit, or the size of a volume."""
    scale = min(1.0, LONGER_SIDE / max(shape))
    return tuple(max(1, round(n * scale)) for n in shape) if len(shape) == 2 else tuple(shape)


def _resized_image(image: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    if image.shape[1:] == size:
        return image
    step = min(n // (2 * m) for n, m in zip(image.shape[1:], size, strict=True))
    if step > 1:  # the copies below are then small
        image = np.ascontiguousarray(image[(slice(None), *[slice(None, None, step)] * len(size))])
    small = F.interpolate(torch.from_numpy(image.astype(np.float32))[None], size=size, mode="bilinear", antialias=True)[
        0
    ].numpy()
    return small.round().clip(0, 255).astype(np.uint8) if image.dtype == np.uint8 else small


def _resized_classes(mask: np.ndarray, size: tuple[int, ...], classes: int) -> np.ndarray:
    """Return class indices at another size: the class with the largest share of a pixel, interpolated when enlarging.

    A mask that is not annotated everywhere is resized to the nearest pixel.
    """
    if mask.shape == size:
        return mask
    if (mask == IGNORE).any():
        return F.interpolate(torch.from_numpy(mask)[None, None], size=size, mode="nearest-exact")[0, 0].numpy()
    if all(new <= old for new, old in zip(size, mask.shape, strict=True)):
        return resized_mask(torch.from_numpy(mask), size, classes).numpy()
    mode = "bilinear" if len(size) == 2 else "trilinear"
    shares = F.one_hot(torch.from_numpy(mask.astype(np.int64)), classes).movedim(-1, 0)[None].float()  # (*S) → (1, K, *S)
    return F.interpolate(shares, size=size, mode=mode, align_corners=False)[0].argmax(0).numpy().astype(np.uint8)
