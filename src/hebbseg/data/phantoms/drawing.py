"""Drawing functions of the phantoms: smooth noise, soft ellipses, strokes, transmitted light.

Positions and lengths are in pixels unless stated otherwise; images are (*spatial) float64.
"""

from collections.abc import Sequence

import numpy as np

from hebbseg.data.augment.splines import bspline_matrix

Numbers = Sequence[float] | np.ndarray


def grid(shape: Sequence[int]) -> list[np.ndarray]:
    """Return pixel centers as fractions of the image (0 … 1), one broadcastable array per axis."""
    axes = [(np.arange(size) + 0.5) / size for size in shape]
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def smooth_noise(rng: np.random.Generator, shape: Sequence[int], cells: float | Sequence[float]) -> np.ndarray:
    """Return a random field of mean 0 and variance about 1 with ``cells`` bumps along each axis."""
    per_axis = [cells] * len(shape) if isinstance(cells, int | float) else list(cells)
    points = [max(4, round(c) + 3) for c in per_axis]
    field = rng.standard_normal(points)
    for size, count in zip(shape, points, strict=True):
        # Each pass moves an axis to the end; after the last one, the order is restored.
        field = np.tensordot(field, bspline_matrix(size, count), axes=(0, 1))
    return field * (1.45 ** len(shape))


def fractal_noise(rng: np.random.Generator, shape: Sequence[int], cells: float, octaves: int = 3) -> np.ndarray:
    """Return a sum of smooth noise at increasingly fine scales."""
    total = smooth_noise(rng, shape, cells)
    for octave in range(1, octaves):
        total = total + smooth_noise(rng, shape, cells * 2**octave) / 1.8**octave
    return total


def soft_step(x: np.ndarray, width: float | np.ndarray) -> np.ndarray:
    """Return 0 for x ≪ 0 and 1 for x ≫ 0, with a smooth edge of about ``width``."""
    return 0.5 + 0.5 * np.tanh(2 * x / width)


def ellipse_level(rows: np.ndarray, columns: np.ndarray, centre: Numbers, radii: Numbers, angle: float) -> np.ndarray:
    """Return the distance from the center relative to the ellipse's radius in that direction; below 1 is inside."""
    cosine, sine = np.cos(angle), np.sin(angle)
    down, right = rows - centre[0], columns - centre[1]
    along = (cosine * down + sine * right) / radii[0]
    across = (cosine * right - sine * down) / radii[1]
    return np.sqrt(along**2 + across**2)


def stamp_ellipses(canvas: np.ndarray, centres: np.ndarray, radii: np.ndarray, angles: np.ndarray, values: np.ndarray) -> None:
    """Draw small soft-edged ellipses; overlaps keep the larger value.

    Shapes: canvas (H, W), centres (K, 2), radii (K, 2), angles (K,), values (K,); K may be 0.
    """
    if len(centres) == 0:
        return
    height, width = canvas.shape
    reach = int(np.ceil(radii.max() + 1.0))
    offsets = np.arange(-reach, reach + 1)
    corner = np.floor(centres).astype(np.int64)
    rows = corner[:, 0, None, None] + offsets[None, :, None]
    columns = corner[:, 1, None, None] + offsets[None, None, :]
    down = rows + 0.5 - centres[:, 0, None, None]
    right = columns + 0.5 - centres[:, 1, None, None]
    cosine, sine = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    along = (cosine * down + sine * right) / radii[:, 0, None, None]
    across = (cosine * right - sine * down) / radii[:, 1, None, None]
    # The edge is one pixel wide, as in a camera image.
    smallest = radii.min(axis=1)[:, None, None]
    coverage = np.clip((1 - np.sqrt(along**2 + across**2)) * smallest + 0.5, 0, 1)
    inside = (coverage > 0) & (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    flat = rows * width + columns
    np.maximum.at(canvas.reshape(-1), flat[inside], (coverage * values[:, None, None])[inside])


def stamp_strokes(canvas: np.ndarray, paths: Sequence[np.ndarray], widths: Sequence[float], value: float = 1.0) -> None:
    """Draw curves, each an array (K, 2) of points closer together than its width."""
    if not paths:
        return
    points = np.concatenate(paths)
    radius = np.concatenate([np.full(len(path), width / 2) for path, width in zip(paths, widths, strict=True)])
    radii, angles, values = np.stack([radius, radius], axis=1), np.zeros(len(points)), np.full(len(points), value)
    stamp_ellipses(canvas, points, radii, angles, values)


def curve(start: Numbers, angle: float, length: float, bend: float, spacing: float = 0.5) -> np.ndarray:
    """Return points along an arc that starts in direction ``angle`` and turns by ``bend`` radians in total."""
    count = max(2, int(length / spacing))
    directions = angle + bend * np.linspace(0, 1, count)
    steps = np.stack([np.sin(directions), np.cos(directions)], axis=1) * (length / count)
    return np.asarray(start) + np.cumsum(steps, axis=0)


def transmitted_light(densities: Sequence[np.ndarray], colours: Sequence[np.ndarray]) -> np.ndarray:
    """Return the light behind absorbing layers (Beer–Lambert law): I_c = exp(−Σ_k density_k · color_kc).

    Shapes: densities (H, W) each, colors (3,) each → (3, H, W) in 0 … 1.
    """
    total = sum(density[None] * np.asarray(colour)[:, None, None] for density, colour in zip(densities, colours, strict=True))
    return np.exp(-np.asarray(total))


def to_bytes(image: np.ndarray) -> np.ndarray:
    """Convert 0 … 1 to uint8."""
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)
