"""From class probabilities to objects: connected components, seeded watershed, or the inside of a border model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from scipy.ndimage import binary_fill_holes, distance_transform_edt, generate_binary_structure
from skimage.measure import label
from skimage.morphology import local_maxima, reconstruction
from skimage.segmentation import relabel_sequential, watershed
from torch import Tensor, nn

from hebbseg.data.labels.instances import Objects
from hebbseg.errors import HebbsegError, did_you_mean

Probabilities = TypeVar("Probabilities", np.ndarray, Tensor)
OBJECT_METHODS = ("components", "watershed")
NECK = 0.75


@dataclass(frozen=True, kw_only=True)
class ObjectOptions:
    """How objects are found.

    Args:
        method: ``"components"``: connected areas, neighbors share a face. ``"watershed"``: areas are also cut at their
            necks, see `neck_seeds`.
        min_size: objects of fewer pixels (voxels) are removed.
        fill_holes: background enclosed by the pixels of a class becomes part of the object.
    """

    method: str = "components"
    min_size: int = 0
    fill_holes: bool = True

    def __post_init__(self) -> None:
        if self.method not in OBJECT_METHODS:
            raise HebbsegError(f"--objects {self.method!r} is unknown. {did_you_mean(self.method, OBJECT_METHODS)}")
        if self.min_size < 0:
            raise HebbsegError(f"--min-size {self.min_size}: allowed are numbers of pixels from 0.")

    def check(self, size: int) -> None:
        """Raise if no object of an image of ``size`` pixels could be that large."""
        if self.min_size > size:
            raise HebbsegError(
                f"--min-size {self.min_size} is larger than the image ({size} pixels), so that no object would remain. Use a "
                "smaller number."
            )


def find_objects(
    probabilities: np.ndarray, options: ObjectOptions, *, borders: bool = False, spacing: Sequence[float] | None = None
) -> Objects:
    """Return the objects of each foreground class, numbered class by class.

    With ``borders``, the last class is the border: each connected area of inside pixels is the seed of an object, which
    grows over inside and border by watershed on the inside probability; connected areas without inside are one object.

    Args:
        probabilities: (K, *S).
        borders: the classes are background, inside and border.
        spacing: distance of neighboring pixels along each axis, for the watershed; default: equal.
    """
    options.check(math.prod(probabilities.shape[1:]))
    classes = merged_border(probabilities) if borders else probabilities
    indices = classes.argmax(0)
    labels = np.zeros(indices.shape, np.int32)
    counts: list[int] = []
    for index in range(1, len(classes)):
        mask = indices == index
        if options.fill_holes:
            mask |= binary_fill_holes(mask) & (indices == 0) & (labels == 0)
        if borders:
            found = grown(mask, probabilities[1], mask & (probabilities[1] > probabilities[2]), options, spacing)
        elif options.method == "watershed":
            seeds, distance = neck_seeds(mask, spacing)
            found = watershed(-distance, seeds, mask=mask)
        else:
            found = label(mask, connectivity=1)
        found = _without_small(found, options.min_size)
        labels[found > 0] = found[found > 0] + sum(counts)
        counts.append(int(found.max(initial=0)))
    return Objects(labels=labels, classes=np.repeat(np.arange(1, len(classes)), counts))


class MergedBorder(nn.Module):
    """A network whose foreground is inside or border: softmax(logits) of both are equal to the merged softmax.

    Shapes: logits (B, 3, *S) of background, inside and border → logits (B, 2, *S).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images).float()
        return torch.stack([logits[:, 0], torch.logsumexp(logits[:, 1:], 1)], 1)


def merged_border(probabilities: Probabilities) -> Probabilities:
    """Return background and foreground, (2, *S), of background, inside and border, (3, *S)."""
    merged = probabilities[:2] + 0
    merged[1] += probabilities[2]
    return merged


def neck_seeds(mask: np.ndarray, spacing: Sequence[float] | None = None, neck: float = NECK) -> tuple[np.ndarray, np.ndarray]:
    """Return one seed per convex-like part of a mask, (*S) integers, and the distance transform (*S).

    With D the distance to the background in pixels of the smallest spacing, two maxima of D have separate seeds if every
    path between them passes a neck

        1 + D(neck) < neck · (1 + min(D₁, D₂))

    which are the h-maxima of log(1 + D) with h = −log(neck), computed by morphological reconstruction.
    """
    steps = None if spacing is None else np.asarray(spacing) / min(spacing)
    if mask.all():
        return mask.astype(np.int32), np.ones(mask.shape)
    distance = distance_transform_edt(mask, sampling=steps)
    height = np.log1p(distance)
    faces = generate_binary_structure(mask.ndim, 1)  # paths go from face to face: every connected area has a seed
    lowered = reconstruction(height + math.log(neck), height, footprint=faces)
    seeds = local_maxima(np.where(mask, lowered, -1.0), connectivity=1) & mask
    return label(seeds, connectivity=1), distance


def grown(
    mask: np.ndarray, probability: np.ndarray, inside: np.ndarray, options: ObjectOptions, spacing: Sequence[float] | None
) -> np.ndarray:
    """Return the objects of a mask, grown from the areas inside: from their middle, and from more to less probable pixels."""
    seeds, height = label(inside, connectivity=1), probability
    if options.method == "watershed":
        seeds, distance = neck_seeds(inside, spacing)
        height = probability + distance
    found = watershed(-height, seeds, mask=mask)
    without = label(mask & (found == 0), connectivity=1)
    return np.where(without > 0, without + seeds.max(initial=0), found)


def _without_small(labels: np.ndarray, min_size: int) -> np.ndarray:
    sizes = np.bincount(labels.ravel())
    small = sizes < min_size
    small[0] = False
    return relabel_sequential(np.where(small[labels], 0, labels))[0]
