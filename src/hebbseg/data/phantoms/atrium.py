"""Left atrium in contrast-enhanced MRI, among chambers of similar brightness."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hebbseg.data.phantoms.drawing import Numbers, fractal_noise, grid, smooth_noise, soft_step


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Properties shared by the volumes of one patient: heart size, contrast agent, noise, coil."""

    scale: float
    blood: float
    muscle: float
    fat: float
    noise: float
    bias: float
    turn: float


def patient(rng: np.random.Generator) -> Scan:
    return Scan(
        scale=rng.uniform(0.95, 1.4),
        blood=rng.uniform(0.55, 1.0),
        muscle=rng.uniform(0.22, 0.42),
        fat=rng.uniform(0.2, 0.55),
        noise=rng.uniform(0.025, 0.085),
        bias=rng.uniform(0.1, 0.35),
        turn=rng.normal(0, 0.25),
    )


def draw(rng: np.random.Generator, scan: Scan, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return a volume (1, X, Y, Z) float32 of mean 0 and variance 1 and its mask (X, Y, Z) uint8."""
    place = _bent_space(rng, scan, shape)
    body = _ellipsoid(place, rng.normal(0, 0.02, 3), np.array([0.20, 0.145, 0.24]) * rng.uniform(0.85, 1.15, 3))
    atrium = body
    for side in (-1, 1):
        for height in (-0.10, 0.10):
            # Pulmonary veins leave at the back; the mask includes only their first part, by convention.
            start = np.array([side * 0.13, 0.05, height]) + rng.normal(0, 0.015, 3)
            way = np.array([side * rng.uniform(0.8, 1.2), rng.uniform(0.1, 0.7), np.sign(height) * rng.uniform(0, 0.6)])
            radius = rng.uniform(0.030, 0.052)
            atrium = _blend(atrium, _tube(place, start, start + 0.10 * way, radius), 0.04)
            # Beyond the mask, the vein is equally bright.
            body = _blend(body, _tube(place, start, start + 0.45 * way, radius * 0.9), 0.03)
    appendage = np.array([0.17, -0.09, 0.10]) + rng.normal(0, 0.02, 3)
    atrium = _blend(atrium, _ellipsoid(place, appendage, rng.uniform(0.05, 0.09, 3)), 0.05)
    body = _blend(body, atrium, 0.02)

    others = _neighbours(rng, place)
    wall = 0.016
    chambers = np.minimum(body, others)
    edge = 1.5 / min(shape)
    torso = _ellipsoid(place, (0.0, 0.0, 0.0), np.array([0.62, 0.55, 1.2]) * rng.uniform(0.9, 1.1, 3))
    lungs = np.minimum(
        _ellipsoid(place, (0.48, 0.14, 0.0), np.array([0.20, 0.34, 0.7]) * rng.uniform(0.8, 1.2)),
        _ellipsoid(place, (-0.50, 0.14, 0.0), np.array([0.20, 0.34, 0.7]) * rng.uniform(0.8, 1.2)),
    )
    image = scan.fat * (1 + 0.35 * fractal_noise(rng, shape, 7))
    image = image + (0.05 - image) * soft_step(-lungs, edge * 2)
    vessels = np.clip(smooth_noise(rng, shape, min(shape) / 5) - 1.4, 0, 1)
    image = image + 0.6 * vessels * soft_step(-lungs, edge * 2)
    image = image + (scan.muscle - image) * soft_step(wall * 2.2 - chambers, edge)
    # The brightness of blood differs between chambers and varies with flow.
    pool_left = scan.blood * (1 + 0.06 * smooth_noise(rng, shape, 5))
    pool_other = scan.blood * rng.uniform(0.75, 1.15) * (1 + 0.08 * smooth_noise(rng, shape, 5))
    image = image + (pool_other - image) * soft_step(-others, edge)
    image = image + (scan.muscle * 0.8 - image) * soft_step(wall - np.abs(body), edge) * (rng.random() < 0.85)
    image = image + (pool_left - image) * soft_step(-body, edge)
    scar = np.exp(-(((body - 0.008) / 0.014) ** 2)) * np.clip(smooth_noise(rng, shape, 8) - 0.6, 0, 1)
    image = image + 0.5 * scan.blood * scar
    image = image * soft_step(-torso, edge * 3) + 0.02

    image = ndimage.gaussian_filter(image, rng.uniform(0.4, 0.8))
    image = image * np.exp(scan.bias * smooth_noise(rng, shape, 2))
    # Magnitude of a complex signal: Rician noise.
    image = np.hypot(image + rng.normal(0, scan.noise, shape), rng.normal(0, scan.noise, shape))
    image = (image - image.mean()) / image.std()
    return image.astype(np.float32)[None], (atrium < 0).astype(np.uint8)


def _bent_space(rng: np.random.Generator, scan: Scan, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return coordinates, about −½ … ½, centered on the heart, rotated, scaled and deformed per patient."""
    axes = [axis - 0.5 + rng.normal(0, 0.04) for axis in grid(shape)]
    bent = [axis + 0.018 * smooth_noise(rng, shape, 4) for axis in axes]
    angle = scan.turn + rng.normal(0, 0.08)
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = [cosine * bent[0] - sine * bent[1], sine * bent[0] + cosine * bent[1], bent[2]]
    return [axis / scan.scale for axis in turned]


def _neighbours(rng: np.random.Generator, place: list[np.ndarray]) -> np.ndarray:
    """Return the distance to the nearest of right atrium, ventricles, ascending and descending aorta."""

    def moved(centre: Sequence[float]) -> np.ndarray:
        return np.asarray(centre) + rng.normal(0, 0.02, 3)

    def sized(radii: Sequence[float]) -> np.ndarray:
        return np.asarray(radii) * rng.uniform(0.8, 1.2)

    distances = [
        _ellipsoid(place, moved((-0.27, -0.17, -0.05)), sized((0.13, 0.13, 0.19))),
        _ellipsoid(place, moved((0.20, -0.30, -0.18)), sized((0.15, 0.13, 0.22))),
        _ellipsoid(place, moved((-0.05, -0.38, -0.22)), sized((0.17, 0.10, 0.22))),
        _tube(place, moved((-0.02, -0.24, -0.02)), moved((-0.05, -0.26, 0.6)), 0.070 * rng.uniform(0.85, 1.2)),
        _tube(place, moved((0.16, 0.27, -0.7)), moved((0.17, 0.26, 0.7)), 0.058 * rng.uniform(0.85, 1.2)),
    ]
    return np.minimum.reduce(distances)


def _ellipsoid(place: list[np.ndarray], centre: Numbers, radii: np.ndarray) -> np.ndarray:
    """Return the approximate signed distance to an ellipsoid, negative inside."""
    level = np.sqrt(sum(((axis - c) / r) ** 2 for axis, c, r in zip(place, centre, radii, strict=True)))
    return (level - 1) * float(np.min(radii))


def _tube(place: list[np.ndarray], start: np.ndarray, end: np.ndarray, radius: float) -> np.ndarray:
    """Return the signed distance to a straight tube with round ends."""
    way = end - start
    offset = [axis - s for axis, s in zip(place, start, strict=True)]
    along = np.clip(sum(o * w for o, w in zip(offset, way, strict=True)) / float(way @ way), 0, 1)
    return np.sqrt(sum((o - along * w) ** 2 for o, w in zip(offset, way, strict=True))) - radius


def _blend(first: np.ndarray, second: np.ndarray, width: float) -> np.ndarray:
    """Return the smooth union (smooth minimum) of two signed distances."""
    overlap = np.clip(width - np.abs(first - second), 0, None)
    return np.minimum(first, second) - overlap**2 / (4 * width)
