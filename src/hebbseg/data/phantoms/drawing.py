"""Brushes the phantoms share: smooth noise, soft ellipses, strokes, and light through coloured matter.

All positions and lengths are in pixels unless a name says otherwise; images are arrays (*spatial) of float64.
"""

from collections.abc import Sequence

import numpy as np

from hebbseg.data.augment.splines import bspline_matrix

Numbers = Sequence[float] | np.ndarray


def grid(shape: Sequence[int]) -> list[np.ndarray]:
    """Pixel centres as fractions of the image, one broadcastable array per axis: 0 … 1."""
    axes = [(np.arange(size) + 0.5) / size for size in shape]
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def smooth_noise(rng: np.random.Generator, shape: Sequence[int], cells: float | Sequence[float]) -> np.ndarray:
    """Random field of mean 0 and variance about 1 with ``cells`` bumps along each axis."""
    per_axis = [cells] * len(shape) if isinstance(cells, int | float) else list(cells)
    points = [max(4, round(c) + 3) for c in per_axis]
    field = rng.standard_normal(points)
    for size, count in zip(shape, points, strict=True):
        # Each pass moves the next axis to the end: after all of them the axes are back in order.
        field = np.tensordot(field, bspline_matrix(size, count), axes=(0, 1))
    return field * (1.45 ** len(shape))


def fractal_noise(rng: np.random.Generator, shape: Sequence[int], cells: float, octaves: int = 3) -> np.ndarray:
    """Smooth noise with finer and fainter copies of itself on top."""
    total = smooth_noise(rng, shape, cells)
    for octave in range(1, octaves):
        total = total + smooth_noise(rng, shape, cells * 2**octave) / 1.8**octave
    return total


def soft_step(x: np.ndarray, width: float | np.ndarray) -> np.ndarray:
    """0 below, 1 above, a smooth edge of about ``width`` around zero."""
    return 0.5 + 0.5 * np.tanh(2 * x / width)


def ellipse_level(rows: np.ndarray, columns: np.ndarray, centre: Numbers, radii: Numbers, angle: float) -> np.ndarray:
    """Distance from the centre in units of the ellipse's radius along that direction: below 1 is inside."""
    cosine, sine = np.cos(angle), np.sin(angle)
    down, right = rows - centre[0], columns - centre[1]
    along = (cosine * down + sine * right) / radii[0]
    across = (cosine * right - sine * down) / radii[1]
    return np.sqrt(along**2 + across**2)


def stamp_ellipses(canvas: np.ndarray, centres: np.ndarray, radii: np.ndarray, angles: np.ndarray, values: np.ndarray) -> None:
    """Draws many small soft-edged ellipses at once, keeping the larger value where they overlap.

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
    # The edge is one pixel wide whatever the radius, as a camera would see it.
    smallest = radii.min(axis=1)[:, None, None]
    coverage = np.clip((1 - np.sqrt(along**2 + across**2)) * smallest + 0.5, 0, 1)
    inside = (coverage > 0) & (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    flat = rows * width + columns
    np.maximum.at(canvas.reshape(-1), flat[inside], (coverage * values[:, None, None])[inside])


def stamp_strokes(canvas: np.ndarray, paths: Sequence[np.ndarray], widths: Sequence[float], value: float = 1.0) -> None:
    """Draws curves, each an array (K, 2) of points closer together than their width."""
    if not paths:
        return
    points = np.concatenate(paths)
    radius = np.concatenate([np.full(len(path), width / 2) for path, width in zip(paths, widths, strict=True)])
    stamp_ellipses(
        canvas,
        points,
        np.stack([radius, radius], axis=1),
        np.zeros(len(points)),
        np.full(len(points), value),
    )


def curve(start: Numbers, angle: float, length: float, bend: float, spacing: float = 0.5) -> np.ndarray:
    """Points along an arc that starts at ``start`` in direction ``angle`` and turns by ``bend`` radians in all."""
    count = max(2, int(length / spacing))
    directions = angle + bend * np.linspace(0, 1, count)
    steps = np.stack([np.sin(directions), np.cos(directions)], axis=1) * (length / count)
    return np.asarray(start) + np.cumsum(steps, axis=0)


def transmitted_light(densities: Sequence[np.ndarray], colours: Sequence[np.ndarray]) -> np.ndarray:
    """Light left after several absorbing layers (Beer and Lambert): I_c = exp(−Σ_k density_k · colour_kc).

    Shapes: densities (H, W) each, colours (3,) each → (3, H, W) in 0 … 1.
    """
    total = sum(density[None] * np.asarray(colour)[:, None, None] for density, colour in zip(densities, colours, strict=True))
    return np.exp(-np.asarray(total))


def to_bytes(image: np.ndarray) -> np.ndarray:
    """0 … 1 to 0 … 255."""
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)
