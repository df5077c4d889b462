"""3D views of volumes: slices of images and shaded surfaces of masks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LightSource
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.ndimage import gaussian_filter, zoom
from skimage.measure import marching_cubes

from hebbseg.reporting.charts import Picture, picture
from hebbseg.reporting.plots.figures import plt
from hebbseg.reporting.plots.overlay import middle

COLUMNS = 4  # views per row
LONGEST_SIDE = 56  # voxels; finer surfaces are slow to draw and look the same
SMOOTHING = 0.8  # voxels; removes staircase artifacts


def surface(mask: np.ndarray, spacing: Sequence[float] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices (n, 3) in units of ``spacing`` and faces (m, 3) of the foreground of a mask (D, H, W).

    Both are empty for an empty mask. ``spacing`` defaults to 1.
    """
    steps = np.ones(3) if spacing is None else np.asarray(spacing, dtype=float)
    inside = (np.asarray(mask) != 0).astype(np.float32)
    if not inside.any():
        return np.empty((0, 3)), np.empty((0, 3), dtype=int)
    factor = min(1.0, LONGEST_SIDE / max(inside.shape))
    small = zoom(inside, factor, order=1) if factor < 1 else inside
    steps = steps * np.array(inside.shape) / np.array(small.shape)
    # Padding closes surfaces that touch the border of the volume.
    smooth = gaussian_filter(np.pad(small, 2), SMOOTHING)
    level = 0.5 if smooth.max() > 0.5 else 0.5 * float(smooth.max())  # for very small objects
    corners, faces, _, _ = marching_cubes(smooth, level=level, spacing=tuple(steps))
    return corners - 2 * steps, faces


def surfaces_picture(
    image: np.ndarray,
    masks: Sequence[tuple[str, np.ndarray]],
    spacing: Sequence[float] | None,
    *,
    alt: str,
    caption: str,
) -> Picture:
    """Draw an image (D, H, W) and the surfaces of masks of its shape side by side, from the same viewpoint and at one scale.

    The image is shown as three slices through the center of the first mask.
    """
    columns = min(COLUMNS, 1 + len(masks))
    rows = -(-(1 + len(masks)) // columns)
    figure = plt.figure(figsize=(2.5 * columns, 2.8 * rows))
    steps = np.ones(3) if spacing is None else np.asarray(spacing, dtype=float)
    shape = np.array(image.shape) * steps
    for number, title in enumerate(["sample", *(title for title, _ in masks)]):
        axis = figure.add_subplot(rows, columns, number + 1, projection="3d")
        if number == 0:
            _draw_slices(axis, image, middle(masks[0][1]), steps)
        else:
            _draw_surface(axis, masks[number - 1][1], steps)
        axis.set(xlim=(0, shape[0]), ylim=(0, shape[1]), zlim=(0, shape[2]))
        axis.set_box_aspect(tuple(shape))
        axis.view_init(elev=25, azim=-60)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_zticks([])
        axis.set_title(title, fontsize=9)
    return picture(figure, alt=alt, caption=caption, vector=False)


def _draw_surface(axis: Axes3D, mask: np.ndarray, steps: np.ndarray) -> None:
    corners, faces = surface(mask, steps.tolist())
    if len(faces):
        light = LightSource(azdeg=225, altdeg=45)
        axis.add_collection3d(Poly3DCollection(corners[faces], facecolors="0.75", linewidths=0, shade=True, lightsource=light))
    else:
        axis.text2D(0.5, 0.5, "empty", transform=axis.transAxes, ha="center")


def _draw_slices(axis: Axes3D, image: np.ndarray, places: Sequence[int], steps: np.ndarray) -> None:
    """Draw one slice across each axis of the volume, in gray.

    All pixels are drawn as one collection, so that those in front hide those behind.
    """
    low, high = np.percentile(image, (1, 99))
    gray = np.clip((image - low) / max(float(high - low), 1e-6), 0, 1)
    stride = max(1, -(-max(image.shape) // LONGEST_SIDE))
    corners, colors = [], []
    for across, place in enumerate(places):
        u, v = (k for k in range(3) if k != across)
        pixels = gray.take(place, axis=across)[::stride, ::stride]
        for i, j in np.ndindex(*pixels.shape):
            square = np.zeros((4, 3))
            square[:, across] = place * steps[across]
            square[:, u] = np.array([i, i + 1, i + 1, i]) * stride * steps[u]
            square[:, v] = np.array([j, j, j + 1, j + 1]) * stride * steps[v]
            corners.append(square)
            colors.append(np.repeat(pixels[i, j], 3))
    shades = np.array(colors)
    # Edges in the color of the pixels close the seams between them.
    axis.add_collection3d(
        Poly3DCollection(np.array(corners), facecolors=shades, edgecolors=shades, linewidths=0.3, shade=False)
    )
