"""Shaded surface renderings of 3D masks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LightSource
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.ndimage import gaussian_filter, zoom
from skimage.measure import marching_cubes

from hebbseg.reporting.charts import Picture, picture
from hebbseg.reporting.plots.figures import plt

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
    masks: Sequence[tuple[str, np.ndarray]], spacing: Sequence[float] | None, *, alt: str, caption: str
) -> Picture:
    """Draw the surfaces of masks of equal shape side by side, from the same viewpoint and at the same scale."""
    figure = plt.figure(figsize=(2.5 * len(masks), 2.8))
    shape = np.array(masks[0][1].shape) * (1.0 if spacing is None else np.asarray(spacing))
    for number, (title, mask) in enumerate(masks):
        axis = figure.add_subplot(1, len(masks), number + 1, projection="3d")
        corners, faces = surface(mask, spacing)
        if len(faces):
            light = LightSource(azdeg=225, altdeg=45)
            axis.add_collection3d(
                Poly3DCollection(corners[faces], facecolors="0.75", linewidths=0, shade=True, lightsource=light)
            )
        else:
            axis.text2D(0.5, 0.5, "empty", transform=axis.transAxes, ha="center")
        axis.set(xlim=(0, shape[0]), ylim=(0, shape[1]), zlim=(0, shape[2]))
        axis.set_box_aspect(tuple(shape))
        axis.view_init(elev=25, azim=-60)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_zticks([])
        axis.set_title(title, fontsize=9)
    return picture(figure, alt=alt, caption=caption, vector=False)
