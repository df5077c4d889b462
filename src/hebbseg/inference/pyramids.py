"""The level of pyramids (OME-TIFF, OME-Zarr) at which images are predicted."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from hebbseg.data.cases import DataError
from hebbseg.data.io.formats import pyramid_levels, read_image
from hebbseg.data.io.image_file import Level, checked_level
from hebbseg.errors import HebbsegError
from hebbseg.inference.files import Input

NEAR = 1.25  # largest ratio between the requested and the chosen distance of pixels
MICROMETERS = 1000  # per millimeter


def at_level(inputs: Sequence[Input], level: int | None = None, um_per_pixel: float | None = None) -> list[Input]:
    """Return the inputs read at a level of their pyramids, or at the level of nearest pixel distance.

    Raises for the first image without this level. Images of one level are read as they are if level 0 is asked for.

    Args:
        inputs: the images.
        level: 0 is the largest.
        um_per_pixel: distance of neighboring pixels in micrometers.
    """
    if level is not None and um_per_pixel is not None:
        raise HebbsegError("--level and --um-per-pixel both choose the level of a pyramid. Pass one of the two.")
    if um_per_pixel is not None and not (math.isfinite(um_per_pixel) and um_per_pixel > 0):
        raise HebbsegError(f"--um-per-pixel {um_per_pixel:g}: allowed are numbers above 0, such as 0.5.")
    if um_per_pixel is None and not level:
        return list(inputs)
    found = []
    for each in inputs:
        if len(each.files) != 1:
            raise HebbsegError(f"{each.name}: --level and --um-per-pixel apply to images that are one file. Omit them.")
        file = each.files[0]
        levels = pyramid_levels(file)
        if um_per_pixel is not None:
            chosen = nearest_level(file, levels, um_per_pixel)
        else:
            chosen = checked_level(file, level or 0, [each.shape for each in levels])
        found.append(replace(each, level=chosen, read=partial(read_image, file, chosen)))
    return found


def nearest_level(path: Path, levels: Sequence[Level], um_per_pixel: float) -> int:
    """Return the level whose pixel distance is nearest to that in micrometers; raise if none is near."""
    ratios = [
        math.inf if each.spacing_mm is None else abs(math.log(MICROMETERS * each.spacing_mm[-1] / um_per_pixel))
        for each in levels
    ]
    nearest = min(range(len(levels)), key=ratios.__getitem__)
    if ratios[nearest] == math.inf:
        raise DataError(path, "states no pixel size", "Choose the level of the pyramid with --level.")
    if ratios[nearest] > math.log(NEAR):
        shown = "; ".join(f"{number} ({each})" for number, each in enumerate(levels))
        raise DataError(
            path,
            f"has no level near {um_per_pixel:g} µm per pixel; its levels are {shown}",
            "Pass --um-per-pixel with one of these distances, or --level.",
        )
    return nearest
