"""Pigmented skin lesions in dermoscopy, with hair, gel bubbles, rulers and vignetting."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hebbseg.data.phantoms.drawing import (
    curve,
    ellipse_level,
    fractal_noise,
    grid,
    smooth_noise,
    soft_step,
    stamp_ellipses,
    stamp_strokes,
    to_bytes,
    transmitted_light,
)

MELANIN = np.array([0.55, 1.00, 1.45])
BLOOD = np.array([0.15, 0.95, 0.75])
INK = np.array([1.3, 1.5, 0.4])


@dataclass(frozen=True, kw_only=True)
class Skin:
    """Properties shared by the images of one patient: skin color, hair, color of the light."""

    melanin: float
    blood: float
    hairs: float
    hair_darkness: float
    lamp: np.ndarray


def patient(rng: np.random.Generator) -> Skin:
    return Skin(
        melanin=rng.uniform(0.06, 0.38),
        blood=rng.uniform(0.08, 0.28),
        hairs=float(rng.choice([0, 0, 2, 6, 16])),
        hair_darkness=rng.uniform(0.5, 2.2),
        lamp=np.array([1.0, 0.97, 0.95]) * rng.uniform(0.85, 1.05) + rng.normal(0, 0.03, 3),
    )


def draw(rng: np.random.Generator, skin: Skin, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (3, H, W) uint8 and its mask (H, W) uint8: the lesion without the freckles around it."""
    size = min(shape)
    level = _lesion_level(rng, shape)
    mask = level > 0
    lesion = soft_step(level, rng.uniform(0.06, 0.45))
    melanin = skin.melanin * (1 + 0.12 * fractal_noise(rng, shape, 6) + 0.07 * smooth_noise(rng, shape, size / 4))
    blood = skin.blood * (1 + 0.25 * fractal_noise(rng, shape, 4) + 0.10 * smooth_noise(rng, shape, size / 5))
    skin_lines = 0.12 * np.exp(-((smooth_noise(rng, shape, size / 9) / 0.2) ** 2))
    melanin = melanin * (1 + skin_lines) + _freckles(rng, shape, size)
    # Red and tanned patches are background, so color alone does not identify the lesion.
    blood = blood + rng.uniform(0, 0.5) * soft_step(fractal_noise(rng, shape, 3) - 0.7, 0.8)
    melanin = melanin + rng.uniform(0, 0.25) * soft_step(fractal_noise(rng, shape, 2) - 0.5, 1.0)

    pigment = rng.choice([rng.uniform(0.25, 0.5), rng.uniform(0.4, 1.1), rng.uniform(0.9, 2.0)])
    variegation = np.clip(1 + rng.uniform(0.1, 0.7) * fractal_noise(rng, shape, rng.uniform(3, 9)), 0.15, 2.5)
    melanin = melanin + lesion * pigment * variegation * (1 + _structure(rng, shape, size))
    blood = blood + lesion * rng.uniform(-0.1, 0.5) * (1 + 0.4 * smooth_noise(rng, shape, 5))
    # Blue-whitish veil over a part of some lesions.
    veil = lesion * soft_step(smooth_noise(rng, shape, 4) - 0.8, 0.6) * (rng.random() < 0.25)

    light = transmitted_light([np.clip(melanin, 0, None), np.clip(blood, 0, None)], [MELANIN, BLOOD])
    light = light * (1 - 0.6 * veil) + 0.6 * veil * np.array([0.45, 0.52, 0.62])[:, None, None]
    illumination = np.clip(1 + 0.08 * smooth_noise(rng, shape, 2), 0.6, 1.3)
    light = light * skin.lamp[:, None, None] * illumination
    light = _overlays(rng, skin, light, shape, size)
    light = ndimage.gaussian_filter(light, (0, *[rng.uniform(0.2, 0.6) * size / 128] * 2))
    light = light * _vignette(rng, shape)
    return to_bytes(light + rng.normal(0, 0.010, light.shape)), mask.astype(np.uint8)


def _lesion_level(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return a level that is positive inside the lesion: two overlapping ellipses with an irregular border."""
    rows, columns = grid(shape)
    ragged = rng.uniform(0.01, 0.045)
    rows = rows + ragged * fractal_noise(rng, shape, 4)
    columns = columns + ragged * fractal_noise(rng, shape, 4)
    radius = rng.uniform(0.10, 0.34)
    centre = rng.uniform(0.36, 0.64, 2)
    radii = (radius * rng.uniform(1.0, 1.4), radius)
    first = ellipse_level(rows, columns, centre, radii, rng.uniform(0, np.pi))
    offset = radius * rng.uniform(0, 0.8)
    direction = rng.uniform(0, 2 * np.pi)
    second_centre = centre + offset * np.array([np.sin(direction), np.cos(direction)])
    small = radius * rng.uniform(0.4, 0.9)
    second = ellipse_level(rows, columns, second_centre, (small * 1.3, small), rng.uniform(0, np.pi))
    return 1 - np.minimum(first, second)


def _structure(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Return the structure inside the lesion: a pigment network, globules, or neither."""
    kind = rng.integers(3)
    if kind == 0:
        return 0.6 * (np.exp(-((smooth_noise(rng, shape, size / 4.5) / 0.4) ** 2)) - 0.4)
    if kind == 1:
        count = 120
        dots = np.zeros(shape)
        radii = np.repeat(rng.uniform(0.006, 0.016, (count, 1)) * size, 2, axis=1)
        stamp_ellipses(dots, rng.uniform(0, 1, (count, 2)) * shape, radii, np.zeros(count), rng.uniform(0.3, 1, count))
        return dots
    return np.zeros(shape)


def _freckles(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    count = int(rng.choice([0, 2, 6, 25]))
    spots = np.zeros(shape)
    radii = rng.uniform(0.008, 0.035, (count, 2)) * size
    angles = rng.uniform(0, np.pi, count)
    stamp_ellipses(spots, rng.uniform(0, 1, (count, 2)) * shape, radii, angles, rng.uniform(0.1, 0.7, count))
    return ndimage.gaussian_filter(spots, 0.008 * size)


def _overlays(rng: np.random.Generator, skin: Skin, light: np.ndarray, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Add hair, bubbles, a ruler and ink marks."""
    count = rng.poisson(skin.hairs)
    combed = rng.uniform(0, 2 * np.pi)
    paths = [
        curve(
            rng.uniform(-0.1, 1.0, 2) * shape,
            combed + rng.normal(0, 0.6),
            rng.uniform(0.3, 1.1) * size,
            rng.normal(0, 0.6),
            spacing=0.4,
        )
        for _ in range(count)
    ]
    hair = np.zeros(shape)
    stamp_strokes(hair, paths, [rng.uniform(0.7, 1.6) * size / 128 for _ in paths])
    light = light * np.exp(-skin.hair_darkness * hair * np.array([0.85, 1.0, 1.1])[:, None, None])
    if rng.random() < 0.25:
        number = rng.integers(3, 15)
        outer = np.zeros(shape)
        radius = np.repeat(rng.uniform(0.012, 0.04, (number, 1)) * size, 2, axis=1)
        centres = rng.uniform(0, 1, (number, 2)) * shape
        stamp_ellipses(outer, centres, radius, np.zeros(number), np.ones(number))
        rim = np.clip(outer - ndimage.gaussian_filter(outer, 0.012 * size), 0, 1)
        light = light + 0.35 * rim - 0.05 * outer
    if rng.random() < 0.2:
        light = light * np.exp(-1.8 * _ruler(rng, shape, size))
    if rng.random() < 0.15:
        stroke = np.zeros(shape)
        path = curve(rng.uniform(0, 1, 2) * shape, rng.uniform(0, 6.3), 0.4 * size, rng.normal(0, 1.5))
        stamp_strokes(stroke, [path], [0.035 * size])
        light = light * transmitted_light([stroke * (0.6 + 0.2 * smooth_noise(rng, shape, size / 4))], [INK])
    return light


def _ruler(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Return the tick marks of a ruler along one edge."""
    marks = np.zeros(shape)
    spacing, edge = rng.uniform(0.035, 0.06) * size, rng.uniform(0.03, 0.12) * size
    paths = []
    for index in range(int(size / spacing)):
        length = size * (0.07 if index % 5 == 0 else 0.035)
        paths.append(curve((edge, index * spacing), np.pi / 2, length, 0.0))
    stamp_strokes(marks, paths, [max(0.9, 0.008 * size)] * len(paths))
    return np.rot90(marks, int(rng.integers(4))) if shape[0] == shape[1] else marks


def _vignette(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return the vignette: soft in every image, black in some."""
    rows, columns = grid(shape)
    distance = np.hypot(rows - 0.5 + rng.normal(0, 0.02), columns - 0.5 + rng.normal(0, 0.02))
    soft = 1 - rng.uniform(0.1, 0.5) * distance**2 * 2
    if rng.random() < 0.3:
        soft = soft * (0.04 + 0.96 * soft_step(rng.uniform(0.50, 0.62) - distance, 0.04))
    return soft
