"""Colon glands in H&E stain: crypts, adenomas and carcinomas, with similar-looking vessels and fat."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hebbseg.data.phantoms.drawing import (
    ellipse_level,
    fractal_noise,
    grid,
    smooth_noise,
    soft_step,
    stamp_ellipses,
    to_bytes,
    transmitted_light,
)

HAEMATOXYLIN = np.array([0.65, 0.70, 0.29])
EOSIN = np.array([0.16, 0.95, 0.34])


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Growth pattern of glands; radii and distances are fractions of the image."""

    radius: tuple[float, float]
    stretch: tuple[float, float]
    spread_of_direction: float
    gap: float
    warp: float
    epithelium: tuple[float, float]
    goblet: float
    stratified: float


ARCHITECTURES = {
    "crypts": Architecture(
        radius=(0.060, 0.105),
        stretch=(1.0, 1.5),
        spread_of_direction=1.5,
        gap=0.30,
        warp=0.018,
        epithelium=(0.045, 0.065),
        goblet=0.9,
        stratified=0.1,
    ),
    "adenoma": Architecture(
        radius=(0.060, 0.100),
        stretch=(1.3, 2.8),
        spread_of_direction=0.35,
        gap=0.22,
        warp=0.032,
        epithelium=(0.040, 0.060),
        goblet=0.25,
        stratified=0.7,
    ),
    "carcinoma": Architecture(
        radius=(0.08, 0.17),
        stretch=(1.0, 2.3),
        spread_of_direction=1.5,
        gap=0.17,
        warp=0.060,
        epithelium=(0.035, 0.075),
        goblet=0.0,
        stratified=1.0,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Slide:
    """Properties shared by the images of one patient: stain colors and strengths, blur, tissue."""

    colours: tuple[np.ndarray, np.ndarray]
    strengths: tuple[float, float]
    blur: float
    architecture: str


def patient(rng: np.random.Generator) -> Slide:
    haematoxylin = HAEMATOXYLIN + rng.normal(0, 0.06, 3)
    eosin = EOSIN + rng.normal(0, 0.06, 3)
    return Slide(
        colours=(haematoxylin, eosin),
        strengths=(rng.uniform(0.65, 1.45), rng.uniform(0.55, 1.45)),
        blur=rng.uniform(0.35, 0.7),
        architecture=str(rng.choice(sorted(ARCHITECTURES))),
    )


def draw(rng: np.random.Generator, slide: Slide, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (3, H, W) uint8 and its mask (H, W) uint8."""
    # Most images of a patient show the same kind of tissue.
    name = slide.architecture if rng.random() < 0.75 else str(rng.choice(sorted(ARCHITECTURES)))
    architecture = ARCHITECTURES[name]
    size = min(shape)
    tissue = _tissue(rng, shape)
    level, depth, mask = _glands(rng, architecture, shape, tissue)
    thickness = rng.uniform(*architecture.epithelium) * size * (1 + 0.25 * smooth_noise(rng, shape, 5))
    # Depth relative to the epithelium: 0 at the border of the gland, 1 at the lumen.
    layer = np.where(mask, depth / np.maximum(thickness, 1.0), 0.0)
    if name == "carcinoma":
        # Cribriform growth: the epithelium bridges the lumen.
        layer = layer * (1 - 0.75 * soft_step(smooth_noise(rng, shape, 9) - 0.3, 0.4))

    eosin, haematoxylin, empty = _stroma(rng, shape, level, tissue, size)
    inside = soft_step(depth - 0.5, 1.0) * mask
    lumen = soft_step(layer - 1, 0.25) * mask
    goblet = mask * soft_step(layer - 0.45, 0.25) * (1 - lumen)
    vacuoles = goblet * architecture.goblet * soft_step(smooth_noise(rng, shape, size / 5) + 0.7, 0.8)
    secretion = np.clip(fractal_noise(rng, shape, 8) * 0.5 + rng.uniform(-0.5, 0.8), 0, 1)
    cytoplasm = 1 + 0.2 * smooth_noise(rng, shape, size / 4)
    eosin = eosin * (1 - inside) + inside * (
        (0.34 * cytoplasm * (1 - 0.85 * vacuoles)) * (1 - lumen) + lumen * (0.03 + 0.35 * secretion)
    )
    haematoxylin = haematoxylin * (1 - inside) + inside * (
        (0.36 * cytoplasm * (1 - 0.75 * vacuoles)) * (1 - lumen) + lumen * (0.02 + 0.10 * secretion)
    )
    nuclei = _nuclei(rng, architecture, mask, layer, depth, lumen, empty, size)
    chromatin = 1 + 0.25 * smooth_noise(rng, shape, size / 2.5)
    haematoxylin = np.maximum(haematoxylin, nuclei * chromatin)
    eosin = eosin * (1 - 0.3 * np.clip(nuclei, 0, 1))

    thick = 1 + 0.10 * smooth_noise(rng, shape, 3) + _fold(rng, shape)
    densities = [haematoxylin * slide.strengths[0] * thick, eosin * slide.strengths[1] * thick]
    light = transmitted_light([ndimage.gaussian_filter(d, slide.blur * size / 128) for d in densities], slide.colours)
    lamp = 0.97 + 0.02 * smooth_noise(rng, shape, 2)
    image = light * lamp[None] + rng.normal(0, 0.012, (3, *shape))
    return to_bytes(image), mask.astype(np.uint8)


def _tissue(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return the tissue mask: everywhere, or up to a wavy edge next to bare glass."""
    if rng.random() > 0.3:
        return np.ones(shape, dtype=bool)
    rows, columns = grid(shape)
    angle = rng.uniform(0, 2 * np.pi)
    across = (rows - 0.5) * np.sin(angle) + (columns - 0.5) * np.cos(angle)
    return across + 0.07 * fractal_noise(rng, shape, 4) < rng.uniform(0.1, 0.45)


def _glands(
    rng: np.random.Generator, architecture: Architecture, shape: tuple[int, ...], tissue: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw separate, deformed ellipses. Return the level of the nearest, the depth below its border (px) and the mask."""
    rows, columns = grid(shape)
    bend = architecture.warp
    rows = rows + bend * fractal_noise(rng, shape, 5)
    columns = columns + bend * fractal_noise(rng, shape, 5)
    direction = rng.uniform(0, np.pi)
    crowding = rng.uniform(0.85, 1.5)
    zoom = rng.uniform(0.7, 1.6)
    placed: list[tuple[float, float, float]] = []
    nearest = np.full(shape, 9.0)
    second = np.full(shape, 9.0)
    for _ in range(150):
        radius = zoom * rng.uniform(*architecture.radius)
        stretch = rng.uniform(*architecture.stretch)
        row, column = rng.uniform(-0.1, 1.1, 2)
        reach = radius * np.sqrt(stretch)
        if any(np.hypot(row - r, column - c) < crowding * 0.88 * (reach + q) for r, c, q in placed):
            continue
        placed.append((row, column, reach))
        angle = direction + architecture.spread_of_direction * rng.uniform(-1, 1)
        radii = (radius * stretch, radius)
        level = ellipse_level(rows, columns, (row, column), radii, angle)
        second = np.minimum(second, np.maximum(nearest, level))
        nearest = np.minimum(nearest, level)
    mask = (nearest < 1) & (second - nearest > architecture.gap) & tissue
    # Remove small holes and small objects, which annotators do not draw.
    mask = ndimage.binary_fill_holes(ndimage.binary_opening(mask, iterations=max(1, min(shape) // 100)))
    pieces, _ = ndimage.label(mask)
    mask = mask & (np.bincount(pieces.ravel())[pieces] > 0.001 * mask.size)
    return nearest, ndimage.distance_transform_edt(np.pad(mask, 1, mode="edge"))[1:-1, 1:-1], mask


def _stroma(
    rng: np.random.Generator, shape: tuple[int, ...], level: np.ndarray, tissue: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return eosin and hematoxylin of the connective tissue, with vessels and tears, and the mask of bare glass."""
    fibres = smooth_noise(rng, shape, (size / 3, size / 9)) * 0.7 + smooth_noise(rng, shape, (size / 9, size / 3)) * 0.7
    eosin = np.clip(0.50 + 0.13 * fibres + 0.10 * smooth_noise(rng, shape, 6), 0.05, 1.5)
    haematoxylin = np.clip(0.14 + 0.05 * fibres + 0.05 * smooth_noise(rng, shape, 6), 0, 1)
    empty = ~tissue
    # Tears: zero crossings of a smooth field, restricted by another field.
    tear = np.abs(fractal_noise(rng, shape, 4)) - 0.10 * (fractal_noise(rng, shape, 3) - rng.uniform(0.4, 1.4))
    empty = empty | ((tear < 0) & (level > 1.12))
    # Fat: white cells with thin pink walls, as bright as a lumen.
    fat = soft_step(fractal_noise(rng, shape, 2) - rng.uniform(0.3, 2.2), 0.1) > 0.5
    empty = empty | (fat & (level > 1.12) & (np.abs(smooth_noise(rng, shape, size / 11)) > 0.22))
    rows, columns = grid(shape)
    blood = np.zeros(shape)
    for _ in range(rng.integers(0, 7)):
        # Vessels: white or full of red cells, with a thin pink wall and no epithelium; they resemble glands.
        centre, radius = rng.uniform(0, 1, 2), rng.uniform(0.02, 0.075)
        bent = 0.006 * smooth_noise(rng, shape, 8)
        radii = (radius * rng.uniform(1, 2.2), radius)
        vessel = ellipse_level(rows + bent, columns, centre, radii, rng.uniform(0, np.pi))
        here = (vessel < 1) & (level > 1.1)
        wall = np.exp(-(((vessel - 1.08) * radius / 0.010) ** 2)) * (level > 1.05)
        eosin = eosin + 0.45 * wall
        if rng.random() < 0.55:
            blood = np.maximum(blood, here * rng.uniform(0.6, 1.0))
        else:
            empty = empty | here
    if blood.any():
        cells = np.argwhere((blood > 0) & (rng.random(shape) < 0.12 * (128 / size) ** 2)) + 0.5
        discs = np.zeros(shape)
        cell_radii = np.full((len(cells), 2), 0.011 * size)
        stamp_ellipses(discs, cells, cell_radii, np.zeros(len(cells)), rng.uniform(0.7, 1.1, len(cells)))
        eosin = np.where(blood > 0, 0.06 + discs, eosin)
        haematoxylin = np.where(blood > 0, 0.02, haematoxylin)
    glass = ndimage.gaussian_filter(empty.astype(float), 0.6)
    return eosin * (1 - 0.97 * glass), haematoxylin * (1 - 0.97 * glass), empty | (blood > 0)


def _nuclei(
    rng: np.random.Generator,
    architecture: Architecture,
    mask: np.ndarray,
    layer: np.ndarray,
    depth: np.ndarray,
    lumen: np.ndarray,
    empty: np.ndarray,
    size: int,
) -> np.ndarray:
    """Return nuclei: rings at the base of glands, spindles and lymphocytes elsewhere."""
    shape = mask.shape
    step = 0.0185 * size
    counts = [int(extent / step) + 1 for extent in shape]
    cells = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, 2)  # (cells, 2)
    points = (cells + rng.uniform(0.1, 0.9, cells.shape)) * step
    at = tuple(np.clip(points[:, axis].astype(int), 0, shape[axis] - 1) for axis in (0, 1))
    in_gland, here = mask[at], layer[at]
    # Lymphocytes form clusters as dark as epithelium.
    swarm = soft_step(fractal_noise(rng, shape, 4)[at] - rng.uniform(0.3, 1.6), 0.8)
    basal_limit = 0.42 + 0.45 * architecture.stratified
    # Nuclei keep a distance from the base of the cell.
    basal = (here < basal_limit) & (depth[at] > 0.008 * size)
    chance_gland = np.where(basal, 0.92, 0.10) * (lumen[at] < 0.5) + 0.02
    chance_stroma = (0.10 + rng.uniform(0.05, 0.2) + 0.6 * swarm) * ~empty[at]
    kept = rng.random(len(points)) < np.where(in_gland, chance_gland, chance_stroma)
    points, in_gland = points[kept], in_gland[kept]
    at = (at[0][kept], at[1][kept])
    inwards = np.gradient(ndimage.gaussian_filter(depth, 1.0))
    radial = np.arctan2(inwards[1][at], inwards[0][at])
    fibre = 1.6 * smooth_noise(rng, shape, 3)[at]
    spindle = rng.random(len(points)) > 0.45 + 0.5 * swarm[kept]
    long_gland = 0.0125 * (1 + 0.5 * architecture.stratified)
    long = np.where(in_gland, long_gland, np.where(spindle, 0.016, 0.0095)) * rng.uniform(0.8, 1.25, len(points))
    short = np.where(in_gland, 0.0085, np.where(spindle, 0.0052, 0.0085)) * rng.uniform(0.8, 1.2, len(points))
    angles = np.where(in_gland, radial, fibre) + rng.normal(0, 0.25, len(points))
    values = rng.uniform(0.75, 1.35, len(points)) * np.where(in_gland, 1.0, 1.1)
    canvas = np.zeros(shape)
    stamp_ellipses(canvas, points, np.stack([long, short], axis=1) * size, angles, values)
    return canvas


def _fold(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return a tissue fold: a rare dark band across the image."""
    if rng.random() > 0.15:
        return np.zeros(shape)
    rows, columns = grid(shape)
    angle, offset = rng.uniform(0, np.pi), rng.uniform(-0.3, 0.3)
    across = (rows - 0.5) * np.sin(angle) + (columns - 0.5) * np.cos(angle) + 0.03 * smooth_noise(rng, shape, 3)
    return 0.8 * np.exp(-(((across - offset) / 0.035) ** 2))
