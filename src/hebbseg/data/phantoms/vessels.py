"""Vessels of the retina: thin branching structures on a textured background, in uneven light."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hebbseg.data.phantoms.drawing import (
    Numbers,
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

BLOOD = np.array([0.25, 1.15, 0.85])
PIGMENT = np.array([0.45, 0.95, 1.35])
FORK = 2.3  # width^FORK is kept where a vessel forks
THICKEST, THINNEST = 0.013, 0.0017  # width relative to the image

Vessel = tuple[np.ndarray, float]  # points (K, 2), width


@dataclass(frozen=True, kw_only=True)
class Eye:
    """Properties shared by the two images of one patient; lengths are fractions of the image."""

    pigment: float
    blood: float
    contrast: float
    width: float
    winding: float
    branches: int
    texture: float
    lamp: np.ndarray


def patient(rng: np.random.Generator) -> Eye:
    return Eye(
        pigment=rng.uniform(0.25, 0.8),
        blood=rng.uniform(0.2, 0.6),
        contrast=rng.uniform(0.35, 0.9),
        width=rng.uniform(0.75, 1.25),
        winding=rng.uniform(0.15, 0.5),
        branches=int(rng.integers(3, 7)),
        texture=rng.uniform(0.5, 1.6),
        lamp=np.array([1.0, 0.82, 0.62]) * rng.uniform(0.85, 1.15) + rng.normal(0, 0.03, 3),
    )


def draw(rng: np.random.Generator, eye: Eye, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (3, H, W) uint8 and its mask (H, W) uint8: the vessels inside the field of view."""
    size = min(shape)
    rows, columns = grid(shape)
    side = rng.choice([-1.0, 1.0])
    disc = np.array([0.5 + rng.normal(0, 0.03), 0.5 + side * rng.uniform(0.15, 0.3)])
    field = np.hypot((rows - 0.5) * shape[0], (columns - 0.5) * shape[1]) / size
    inside = soft_step(rng.uniform(0.47, 0.53) - field, 0.01)

    vessels = _trees(rng, eye, disc * shape, side, shape)
    coverage, density, reflex = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for path, width in vessels:
        stamp_strokes(coverage, [path], [width])
        # Thin vessels are faint: they absorb less, and less than a pixel of some is covered.
        stamp_strokes(density, [path], [width], value=min(1.0, 0.45 + 0.55 * width / (0.008 * size)))
        if width > 6:
            stamp_strokes(reflex, [path], [0.3 * width])
    pigment = eye.pigment * (1 + 0.2 * fractal_noise(rng, shape, 5) + 0.08 * eye.texture * smooth_noise(rng, shape, size / 6))
    blood = eye.blood * (1 + 0.2 * fractal_noise(rng, shape, 4))
    # Ridges of the choroid, exudates and hemorrhages resemble pieces of vessels.
    ridges = np.exp(-((smooth_noise(rng, shape, rng.uniform(9, 16)) / 0.22) ** 2)) * soft_step(smooth_noise(rng, shape, 3), 0.8)
    blood = blood + 0.35 * eye.contrast * eye.texture * ridges + 0.9 * _spots(rng, shape, size)
    pigment = pigment * (1 - 0.5 * soft_step(0.11 - _distance(rows, columns, disc, shape), 0.03))
    macula = disc - (0, side * rng.uniform(0.28, 0.34))
    pigment = pigment + rng.uniform(0.1, 0.4) * np.exp(-((_distance(rows, columns, macula, shape) / 0.07) ** 2))

    blood = blood + 1.1 * eye.contrast * ndimage.gaussian_filter(density, max(0.4, 0.0007 * size))
    light = transmitted_light([np.clip(pigment, 0, None), np.clip(blood, 0, None)], [PIGMENT, BLOOD])
    light = light + 0.06 * ndimage.gaussian_filter(reflex, max(0.4, 0.001 * size))
    light = light * eye.lamp[:, None, None] * _illumination(rng, rows, columns, shape) * inside
    light = ndimage.gaussian_filter(light, (0, *[rng.uniform(0.3, 0.9) * max(0.5, size / 1000)] * 2))
    mask = (coverage >= 0.5) & (inside > 0.5)
    return to_bytes(light + rng.normal(0, rng.uniform(0.008, 0.025), light.shape)), mask.astype(np.uint8)


def _trees(rng: np.random.Generator, eye: Eye, disc: np.ndarray, side: float, shape: tuple[int, ...]) -> list[Vessel]:
    """Return the vessels of trees that leave the optic disc, up and down, more of them towards the macula."""
    size = min(shape)
    vessels: list[Vessel] = []
    for number in range(eye.branches):
        up = -1.0 if number % 2 else 1.0
        towards = np.pi if side > 0 else 0.0
        spread = rng.uniform(0.9, 1.5) if number < 4 else rng.uniform(2.0, 2.8)
        angle = towards + (up if side < 0 else -up) * spread
        width = max(THICKEST * size * eye.width * rng.uniform(0.6, 1.1), 2.2)
        vessels += _tree(rng, eye, disc + rng.normal(0, 0.01 * size, 2), angle, width, shape)
    return vessels


def _tree(
    rng: np.random.Generator, eye: Eye, start: Numbers, angle: float, width: float, shape: tuple[int, ...]
) -> list[Vessel]:
    """Grow a vessel that forks until its branches are thin or outside the image."""
    size = min(shape)
    thinnest = max(THINNEST * size, 1.1)
    growing = [(np.asarray(start), angle, width)]
    vessels: list[Vessel] = []
    while growing:
        start, angle, width = growing.pop()
        length = size * rng.uniform(0.04, 0.12)
        bend = rng.normal(0, eye.winding)
        path = curve(start, angle, length, bend, spacing=max(0.4, 0.25 * width))
        vessels.append((path, width))
        end = path[-1]
        if np.any(end < 0) or np.any(end >= shape):
            continue
        share = rng.uniform(0.08, 0.5)  # of the smaller branch
        turn = rng.choice([-1.0, 1.0])
        for part, deviation in ((1 - share, 0.5 * share), (share, -rng.uniform(0.6, 1.2))):
            branch = width * part ** (1 / FORK)
            if branch >= thinnest:
                growing.append((end, angle + bend + turn * deviation, branch))
    return vessels


def _spots(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Return small dark spots, many in some images and none in others."""
    count = int(rng.choice([0, 4, 15, 50]))
    spots = np.zeros(shape)
    radii = rng.uniform(0.002, 0.009, (count, 1)) * size * rng.uniform(0.6, 1.6, (count, 2))
    stamp_ellipses(
        spots, rng.uniform(0, 1, (count, 2)) * shape, radii, rng.uniform(0, np.pi, count), rng.uniform(0.2, 0.8, count)
    )
    return ndimage.gaussian_filter(spots, 0.001 * size)


def _illumination(rng: np.random.Generator, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the light: uneven, weaker towards the border, with a haze in some images."""
    distance = np.hypot(rows - 0.5 + rng.normal(0, 0.05), columns - 0.5 + rng.normal(0, 0.05))
    light = (1 + rng.uniform(0.1, 0.3) * smooth_noise(rng, shape, 2)) * (1 - rng.uniform(0.3, 1.4) * distance**2)
    light = light + rng.uniform(-0.4, 0.4) * (columns - 0.5) + rng.uniform(-0.4, 0.4) * (rows - 0.5)
    return np.clip(light, 0.15, 1.6)


def _distance(rows: np.ndarray, columns: np.ndarray, centre: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the distance from a point, relative to the shorter side."""
    short = min(shape)
    return ellipse_level(rows * shape[0] / short, columns * shape[1] / short, centre * shape / np.array(short), (1.0, 1.0), 0.0)
