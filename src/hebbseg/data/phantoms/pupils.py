"""Infrared images of eyes: pupils partly covered by lids, lashes and reflections, in uneven light."""

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
    stamp_strokes,
    to_bytes,
)


@dataclass(frozen=True, kw_only=True)
class Face:
    """Properties shared by the images of one subject; lengths are fractions of the image, brightness is 0 … 1."""

    centre: tuple[float, float]
    iris_radius: float
    lid_height: float
    lid_slant: float
    skin: float
    iris: float
    sclera: float
    pupil: float
    lashes: int
    lash_length: float
    make_up: float
    exposure: float
    side: float
    glasses: bool


def patient(rng: np.random.Generator) -> Face:
    return Face(
        centre=(rng.uniform(0.45, 0.58), rng.uniform(0.42, 0.58)),
        iris_radius=rng.uniform(0.17, 0.28),
        lid_height=rng.uniform(0.15, 0.30),
        lid_slant=rng.normal(0, 0.12),
        skin=rng.uniform(0.45, 0.8),
        iris=rng.uniform(0.20, 0.45),
        sclera=rng.uniform(0.45, 0.75),
        pupil=rng.uniform(0.03, 0.12),
        lashes=int(rng.integers(8, 45)),
        lash_length=rng.uniform(0.06, 0.17),
        make_up=rng.uniform(0, 0.8),
        exposure=rng.uniform(0.32, 0.95),
        side=rng.uniform(-0.5, 0.5),
        glasses=bool(rng.random() < 0.25),
    )


def draw(rng: np.random.Generator, face: Face, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (1, H, W) uint8 and its mask (H, W) uint8: the visible pupil including reflections."""
    size = min(shape)
    rows, columns = grid(shape)
    centre = np.asarray(face.centre) + rng.normal(0, 0.03, 2)
    gaze = rng.normal(0, 1, 2) * (0.045, 0.10)
    eye = centre + gaze
    # Seen from the side, a round pupil is an ellipse.
    foreshortening = np.cos(np.clip(np.hypot(*gaze) * 5, 0, 0.9))
    direction = np.arctan2(gaze[1], gaze[0])
    dilation = rng.uniform(0.26, 0.66)
    iris_radii = (face.iris_radius * foreshortening, face.iris_radius)
    bent = rows + 0.004 * smooth_noise(rng, shape, 9)
    iris_level = ellipse_level(bent, columns, eye, iris_radii, direction)
    pupil_centre = eye + rng.normal(0, 0.006, 2)
    pupil_radii = (iris_radii[0] * dilation, iris_radii[1] * dilation)
    pupil_level = ellipse_level(bent, columns, pupil_centre, pupil_radii, direction)

    openness = rng.choice([1.0, 0.75, 0.42], p=[0.6, 0.27, 0.13]) * face.lid_height * rng.uniform(0.85, 1.1)
    upper, lower = _lids(rng, face, columns, centre, openness, eye)
    opening = soft_step(rows - upper, 0.02) * soft_step(lower - rows, 0.02)

    edge = 1.2 / size
    image = face.skin * (1 + 0.06 * fractal_noise(rng, shape, 5) + 0.03 * smooth_noise(rng, shape, size / 4))
    image = image * (1 - 0.35 * np.exp(-(((rows - upper + 0.06) / 0.03) ** 2)))  # the crease above the lid
    image = image * (1 - 0.25 * np.exp(-(((rows - lower - 0.05) / 0.05) ** 2)))
    white = face.sclera * (1 - 0.9 * np.abs(columns - centre[1])) * (1 - 0.5 * np.exp(-(rows - upper) / 0.05))
    angle = np.arctan2(rows - eye[0], columns - eye[1])
    fibres = np.sin(angle * 37 + 5 * smooth_noise(rng, shape, 8)) * np.clip(iris_level, 0, 1)
    iris = face.iris * (1 + 0.10 * fibres + 0.10 * smooth_noise(rng, shape, 10))
    iris = iris * (1 - 0.45 * soft_step(iris_level - 0.93, 0.15))
    eyeball = white + (iris - white) * soft_step(1 - iris_level, edge / face.iris_radius * 3)
    pupil_edge = edge / min(pupil_radii) * rng.uniform(1.5, 4.0)
    eyeball = eyeball + (face.pupil - eyeball) * soft_step(1 - pupil_level, pupil_edge)
    # The lid casts a shadow as dark as a pupil.
    eyeball = eyeball * (1 - 0.75 * np.exp(-np.clip(rows - upper, 0, None) / rng.uniform(0.015, 0.05)))
    image = image * (1 - opening) + eyeball * opening
    image = image * (1 - face.make_up * np.exp(-(((rows - upper) / 0.016) ** 2)))
    image = _lashes(rng, face, image, upper, lower, centre)
    image = _brow(rng, image, rows, columns, upper)
    image = _reflections(rng, face, image, rows, columns, eye)

    light = np.clip(1 + face.side * (columns - 0.5) * 1.6 + 0.10 * smooth_noise(rng, shape, 2), 0.15, 2)
    image = np.minimum(image, 4.0) * light * face.exposure * rng.uniform(0.75, 1.2)
    image = ndimage.gaussian_filter(image, rng.uniform(0.3, 1.3) * size / 128)
    image = image + rng.normal(0, rng.uniform(0.004, 0.02), shape)
    mask = (pupil_level < 1) & (rows > upper) & (rows < lower)
    return to_bytes(image)[None], mask.astype(np.uint8)


def _lids(
    rng: np.random.Generator, face: Face, columns: np.ndarray, centre: np.ndarray, openness: float, eye: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of the upper and of the lower lid at each column."""
    across = (columns - centre[1]) / rng.uniform(0.40, 0.55)
    arch = np.clip(1 - np.abs(across) ** 2.2, 0, 1)
    tilt = centre[0] + face.lid_slant * (columns - centre[1])
    follows_gaze = 0.6 * (eye[0] - centre[0])
    upper = tilt - openness * arch + follows_gaze
    lower = tilt + 0.85 * openness * arch + 0.3 * follows_gaze
    return upper, np.maximum(lower, upper + 0.005)


def _lashes(
    rng: np.random.Generator, face: Face, image: np.ndarray, upper: np.ndarray, lower: np.ndarray, centre: np.ndarray
) -> np.ndarray:
    shape, size = image.shape, min(image.shape)
    canvas = np.zeros(shape)
    paths, widths = [], []
    droop = rng.random() < 0.4
    for _ in range(face.lashes):
        column = rng.uniform(max(0.02, centre[1] - 0.4), min(0.98, centre[1] + 0.4))
        index = int(column * shape[1])
        outwards = (column - centre[1]) * 1.5
        if rng.random() < 0.8:
            start = (upper[0, index] * shape[0], column * shape[1])
            # Most lashes point up and out; some hang over the eye.
            angle = (np.pi / 2 - outwards) if droop and rng.random() < 0.6 else (-np.pi / 2 + outwards)
            length = face.lash_length * rng.uniform(0.5, 1.2)
        else:
            start = (lower[0, index] * shape[0], column * shape[1])
            angle, length = np.pi / 2 - outwards, 0.4 * face.lash_length
        paths.append(curve(start, angle + rng.normal(0, 0.2), length * size, rng.normal(0, 0.6)))
        widths.append(rng.uniform(0.8, 1.8) * size / 128)
    stamp_strokes(canvas, paths, widths)
    return image * (1 - rng.uniform(0.5, 0.92) * np.clip(ndimage.gaussian_filter(canvas, 0.35 * size / 128), 0, 1))


def _brow(rng: np.random.Generator, image: np.ndarray, rows: np.ndarray, columns: np.ndarray, upper: np.ndarray) -> np.ndarray:
    if rng.random() < 0.5:
        return image
    height = upper - rng.uniform(0.16, 0.3) + 0.1 * (columns - 0.5) ** 2
    hairs = 0.7 + 0.3 * smooth_noise(rng, image.shape, (24, image.shape[1] / 2.5))
    return image * (1 - 0.75 * np.clip(hairs, 0, 1) * np.exp(-(((rows - height) / 0.05) ** 2)))


def _reflections(
    rng: np.random.Generator, face: Face, image: np.ndarray, rows: np.ndarray, columns: np.ndarray, eye: np.ndarray
) -> np.ndarray:
    """Add reflections on cornea and lid, and glasses."""
    spots = [(eye + rng.normal(0, 0.03, 2), rng.uniform(0.008, 0.022)) for _ in range(rng.integers(1, 4))]
    spots += [(rng.uniform(0.3, 0.9, 2), rng.uniform(0.004, 0.010)) for _ in range(rng.integers(0, 3))]
    if face.glasses:
        spots += [(rng.uniform(0.1, 0.9, 2), rng.uniform(0.02, 0.06)) for _ in range(rng.integers(1, 4))]
        frame = 0.85 + rng.normal(0, 0.03) + 0.1 * (columns - 0.5) ** 2
        image = image * (1 - 0.9 * soft_step(0.025 - np.abs(rows - frame), 0.02))
    for centre, radius in spots:
        level = ellipse_level(rows, columns, centre, (radius, radius * rng.uniform(0.7, 1.4)), rng.uniform(0, 3))
        image = image + 2.5 * soft_step(1 - level, 0.8)
    return image
