"""Overlays: the contour of each class drawn on the image."""

from collections.abc import Sequence

import numpy as np
from scipy.ndimage import binary_dilation

from hebbseg.data.cases import IGNORE
from hebbseg.errors import HebbsegError

Colour = tuple[int, int, int]

# The colorblind-safe palette of Okabe and Ito, sorted by contrast with tissue and gray.
PALETTE: tuple[Colour, ...] = (
    (240, 228, 66),  # yellow
    (86, 180, 233),  # sky blue
    (213, 94, 0),  # vermilion
    (0, 158, 115),  # bluish green
    (204, 121, 167),  # reddish purple
    (230, 159, 0),  # orange
)
TARGET_COLOUR: Colour = (0, 114, 178)  # blue, reserved for the target
HATCH_PERIOD = 12  # pixels between the lines on pixels that are not annotated, in pictures of up to 600 pixels


def overlay(
    image: np.ndarray,
    mask: np.ndarray,
    colours: Sequence[Colour] = PALETTE,
    *,
    target: np.ndarray | None = None,
    spacing: Sequence[float] | None = None,
    longer_side: int = 512,
) -> np.ndarray:
    """Return the image with the contour of each foreground class; for a volume, three orthogonal slices side by side.

    The slices go through the middle of the mask, or of the target if the mask is empty, or of the volume. Pixels that are
    `IGNORE` in the mask or the target are hatched.

    Args:
        image: (C, *S) or (*S), any type; three channels are shown as RGB, otherwise the first in gray. Other than 8-bit
            images are scaled from their 1st to their 99th percentile.
        mask: (*S) class indices or booleans.
        colours: colors of classes 1, 2, …; repeated for more classes.
        target: (*S) ground truth, drawn in blue below ``mask``. All contours have a black edge.
        spacing: voxel spacing of a volume; slices of anisotropic volumes are scaled accordingly.
        longer_side: smaller images are enlarged by an integer factor before contours are drawn.

    Returns:
        uint8 (height, width, 3).
    """
    if mask.ndim not in (2, 3) or image.shape[-mask.ndim :] != mask.shape or image.ndim > mask.ndim + 1:
        raise HebbsegError(
            f"image has shape {image.shape} and mask {mask.shape}; the image must have the mask's shape, channels in front."
        )
    if target is not None and target.shape != mask.shape:
        raise HebbsegError(f"target has shape {target.shape} and mask {mask.shape}; they must have the same shape.")
    channels = image if image.ndim > mask.ndim else image[None]
    rgb = displayable(channels) if channels.shape[0] == 3 else displayable(channels[:1]).repeat(3, axis=0)
    steps = np.ones(mask.ndim) if spacing is None else np.asarray(spacing, dtype=float) / min(spacing)
    stretch = steps.round().astype(int)
    stretch *= max(1, -(-longer_side // int((stretch * mask.shape).max())))
    if mask.ndim == 2:
        return _outlined(rgb, mask, target, colours, stretch)
    panels = [
        _outlined(
            rgb.take(position, axis=axis + 1),
            mask.take(position, axis=axis),
            None if target is None else target.take(position, axis=axis),
            colours,
            np.delete(stretch, axis),
        )
        for axis, position in enumerate(middle(mask, target))
    ]
    return _side_by_side(panels)


def _outlined(
    rgb: np.ndarray, mask: np.ndarray, target: np.ndarray | None, colours: Sequence[Colour], stretch: np.ndarray
) -> np.ndarray:
    """Return (3, H, W) uint8 with contours of (H, W) classes as (height, width, 3), enlarged by ``stretch``."""
    picture = _enlarge(np.moveaxis(rgb, 0, -1), stretch).copy()
    ignored = (mask == IGNORE) if target is None else (mask == IGNORE) | (target == IGNORE)
    if ignored.any():
        mask = np.where(mask == IGNORE, 0, mask)
        target = None if target is None else np.where(target == IGNORE, 0, target)
        hatch(picture, _enlarge(ignored, stretch))
    thickness = max(2, round(max(picture.shape[:2]) / 200))
    layers = [] if target is None else [(target, (TARGET_COLOUR,))]
    for layer, layer_colours in [*layers, (mask, colours)]:
        classes = _enlarge(layer, stretch).astype(np.int64)
        line = _contour(classes, thickness)
        # A black edge outside the line keeps it visible on any background.
        picture[binary_dilation(line, iterations=max(1, thickness // 3)) & ~line & (classes == 0)] = 0
        picture[line] = np.asarray(layer_colours, dtype=np.uint8)[(classes[line] - 1) % len(layer_colours)]
    return picture


def hatch(picture: np.ndarray, area: np.ndarray) -> None:
    """Draw diagonal lines on an area (H, W) of a picture (H, W, 3), in place.

    One half of each line is black and the other white, so that it is visible on any background. Lines are wider in larger
    pictures, which are shown reduced.
    """
    half = max(1, round(max(area.shape) / 600))
    rows, columns = np.indices(area.shape)
    place = (rows + columns) % (HATCH_PERIOD * half)
    for start, gray in ((0, 0), (half, 255)):
        line = area & (place >= start) & (place < start + half)
        picture[line] = (picture[line] * 0.3 + 0.7 * gray).astype(picture.dtype)


def _contour(classes: np.ndarray, thickness: int) -> np.ndarray:
    """Return the foreground pixels within ``thickness`` pixels of another class; the image border does not count."""
    inside = classes > 0
    interior = inside.copy()
    for axis in (0, 1):
        here, there = np.moveaxis(interior, axis, 0), np.moveaxis(classes, axis, 0)
        for step in range(1, min(thickness, there.shape[0] - 1) + 1):
            same = there[step:] == there[:-step]
            here[step:] &= same
            here[:-step] &= same
    return inside & ~interior


def displayable(channels: np.ndarray) -> np.ndarray:
    """Convert to uint8; other than 8-bit images are scaled from their 1st to their 99th percentile."""
    if channels.dtype == np.uint8:
        return channels
    values = np.nan_to_num(channels.astype(np.float64), posinf=0, neginf=0)
    low, high = np.percentile(values, (1, 99))
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return (scaled.clip(0, 1) * 255).round().astype(np.uint8)


def middle(mask: np.ndarray, target: np.ndarray | None = None) -> list[int]:
    """Return the median foreground position of the mask, else of the target, else the center of the volume."""
    for candidate in (mask, target):
        drawn = None if candidate is None else (candidate != 0) & (candidate != IGNORE)
        if drawn is not None and drawn.any():
            return [int(np.median(where)) for where in np.nonzero(drawn)]
    return [n // 2 for n in mask.shape]


def _enlarge(array: np.ndarray, stretch: np.ndarray) -> np.ndarray:
    return array.repeat(int(stretch[0]), axis=0).repeat(int(stretch[1]), axis=1)


def _side_by_side(panels: Sequence[np.ndarray]) -> np.ndarray:
    gap, height = 4, max(panel.shape[0] for panel in panels)
    width = sum(panel.shape[1] for panel in panels) + gap * (len(panels) - 1)
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    left = 0
    for panel in panels:
        picture[: panel.shape[0], left : left + panel.shape[1]] = panel
        left += panel.shape[1] + gap
    return picture
