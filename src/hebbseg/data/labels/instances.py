"""Objects of masks: ids as annotated, or connected areas; and the border of each object."""

from dataclasses import dataclass

import numpy as np
from skimage.measure import label
from skimage.segmentation import find_boundaries, relabel_sequential

from hebbseg.data.cases import IGNORE, Case, Source
from hebbseg.data.io.image_file import RawMask
from hebbseg.data.labels.masks import MaskRule, pack_colours

BORDER_WIDTH = 2  # pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class Objects:
    """Numbered objects of an image.

    Shapes:
        labels: (*S) int32; 0 is background, objects are 1 … n.
        classes: (n,) class index of each object.
    """

    labels: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.classes)

    def of_class(self, index: int) -> np.ndarray:
        """Return ``labels`` with the objects of this class only."""
        return np.concatenate([[0], np.where(self.classes == index, np.arange(1, len(self) + 1), 0)])[self.labels]


def connected_objects(indices: np.ndarray) -> Objects:
    """Return the areas of equal class (*S), connected by faces: diagonal neighbors are different objects."""
    labels, n = label(indices, background=0, connectivity=1, return_num=True)
    classes = np.zeros(n + 1, np.int64)
    classes[labels.ravel()] = indices.ravel()
    return Objects(labels=labels.astype(np.int32), classes=classes[1:])


def objects_of(source: Source, case: Case) -> tuple[Objects, bool]:
    """Return the objects of a case's mask, and whether they are annotated, otherwise they are its connected areas.

    Pixels that are not annotated belong to no object. Objects are annotated if the source has a method ``instances`` that
    returns ids (*spatial), not None.
    """
    instances = getattr(source, "instances", None)
    ids = None if instances is None else instances(case)
    if ids is None:
        mask = source.mask(case)
        return connected_objects(np.where(mask == IGNORE, 0, mask)), False
    labels, _, values = relabel_sequential(ids)
    return Objects(labels=labels.astype(np.int32), classes=np.ones(len(values) - 1, np.int64)), True


def id_values(raw: RawMask, rule: MaskRule) -> np.ndarray:
    """Return the values (*spatial) of a mask that number objects, colors packed into one integer."""
    if not raw.colour:
        return raw.values
    return raw.values[..., rule.channel] if rule.channel is not None else pack_colours(raw.values)


def object_ids(raw: RawMask, rule: MaskRule) -> np.ndarray:
    """Return the ids (*spatial) int32 of a mask whose values or colors number objects: 1 … n, and 0 for value 0 and black."""
    values = id_values(raw, rule)
    ids = np.zeros(values.shape, np.int32)
    inside = values > 0
    ids[inside] = np.unique(values[inside], return_inverse=True)[1] + 1
    return ids


def border_of(ids: np.ndarray, width: int = BORDER_WIDTH) -> np.ndarray:
    """Return the pixels (*S) of the objects' inner outline.

        border = {p : d(p) ≤ min(width, R / 2)}

    where d(p) = 1, 2, … is the layer of pixel p counted from the outline of its object, by faces, and R is the largest d of
    the object. The innermost layer (d = R) never belongs to the border, so that an object of any size has an inside, and
    the border is a part of the mask: inside and border together are the foreground. The image border is no outline.

    Args:
        ids: (*S), 0 is background.
    """
    layer = np.zeros(ids.shape, np.int32)
    rest = ids.copy()
    for depth in range(1, 2 * width + 1):
        outline = find_boundaries(rest, connectivity=1, mode="inner") & (rest > 0)
        layer[outline] = depth
        rest[outline] = 0
    layer[rest > 0] = 2 * width + 1
    deepest = np.zeros(int(ids.max(initial=0)) + 1, np.int32)
    np.maximum.at(deepest, ids.ravel(), layer.ravel())
    return (ids > 0) & (layer <= np.minimum(width, deepest[ids] / 2))
