"""Masks in which some pixels are not annotated: their index is `IGNORE`."""

import numpy as np
from scipy.ndimage import distance_transform_edt

from hebbseg.data.cases import IGNORE
from hebbseg.errors import HebbsegError


def completed(mask: np.ndarray) -> np.ndarray:
    """Return a mask (*S) in which each ignored pixel has the class of the nearest annotated pixel.

    A mask without ignored pixels is returned as it is; one without annotated pixels becomes background.
    """
    ignored = mask == IGNORE
    if not ignored.any():
        return mask
    if ignored.all():
        return np.zeros_like(mask)
    nearest = distance_transform_edt(ignored, return_distances=False, return_indices=True)  # (axes, *S)
    filled: np.ndarray = mask[tuple(nearest)]
    return filled


def annotated_part(prediction: np.ndarray, target: np.ndarray, name: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Return prediction and target (*S) of class indices with background where the target is not annotated.

    Raises:
        HebbsegError: if no pixel of the target is annotated. ``name`` identifies the case.
    """
    ignored = target == IGNORE
    if not ignored.any():
        return prediction, target
    if ignored.all():
        raise HebbsegError(
            f"{name or 'target'}: every pixel has the value to ignore, so there is nothing to compare a prediction with. "
            "Annotate some pixels of this mask, or leave it out."
        )
    return np.where(ignored, 0, prediction), np.where(ignored, 0, target)
