"""A source of arrays held by the test, which counts every reading."""

from collections import Counter

import numpy as np

from hebbseg.data.cases import Case, ClassInfo


class ArraysSource:
    def __init__(self, cases, *, images=None, masks=None, spatial_dims=2, channels=1, name="arrays"):
        self.name = name
        self.cases = tuple(cases)
        self.problems = ()
        self.spatial_dims = spatial_dims
        self.channels = channels
        self.classes = (ClassInfo(index=0, value=0), ClassInfo(index=1, value=1))
        self.images = images or {}
        self.masks = masks or {}
        self.reads = Counter()

    def image(self, case: Case) -> np.ndarray:
        self.reads["image", case.id] += 1
        return self.images[case.id]

    def mask(self, case: Case) -> np.ndarray:
        self.reads["mask", case.id] += 1
        return self.masks[case.id]


def listed(n, *, groups=None, subsets=None, unmasked=(), **options) -> ArraysSource:
    """Cases c000 … with masks that exist by name only."""
    return ArraysSource(
        [
            Case(
                id=f"c{i:03d}",
                mask=None if i in unmasked else (),
                group=groups[i] if groups else None,
                subset=subsets[i] if subsets else None,
            )
            for i in range(n)
        ],
        **options,
    )
