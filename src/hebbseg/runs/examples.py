"""Test cases with the lowest, median and highest Dice: chosen during the test, drawn after it for the page of the run."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from hebbseg.atomic_files import replacing, write_json
from hebbseg.data.cases import Source
from hebbseg.runs.pictures import Shown, drawn, shown

FOLDER = "figures/cases"
INDEX = "cases.json"
ROLES = ("worst", "median", "best")
EACH = {2: 3, 3: 1}  # cases per role, by spatial dimensions
QUALITY = 88  # of the JPEG files


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """The masks of a case, compressed: those of all test cases are in memory until the last one is evaluated."""

    case: str
    dice: float
    shape: tuple[int, ...]
    masks: tuple[tuple[bytes, np.dtype], tuple[bytes, np.dtype]]

    @classmethod
    def of(cls, one: Shown) -> "_Kept":
        first, second = ((zlib.compress(mask.tobytes(), 1), mask.dtype) for mask in (one.prediction, one.target))
        return cls(case=one.case, dice=one.dice, shape=one.target.shape, masks=(first, second))

    def shown(self) -> Shown:
        first, second = (np.frombuffer(zlib.decompress(data), dtype).reshape(self.shape) for data, dtype in self.masks)
        return Shown(case=self.case, prediction=first, target=second, dice=self.dice)


class Examples:
    """The tested cases, of which a few are drawn."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    def look(self, case: str, prediction: np.ndarray, target: np.ndarray, classes: int) -> None:
        self._kept.append(_Kept.of(shown(case, prediction, target, classes)))

    def draw(self, source: Source, run: Path) -> None:
        """Write one picture per chosen case, and a list of them, to the folder of a run."""
        kept = sorted(self._kept, key=lambda each: (each.dice, each.case))
        entries = []
        for number, (role, position) in enumerate(chosen(len(kept), EACH[source.spatial_dims])):
            name = f"{number:02d}-{role}.jpg"
            with replacing(run / FOLDER / name) as temporary:
                picture = Pillow.fromarray(drawn(source, kept[position].shown()))
                picture.save(temporary, format="JPEG", quality=QUALITY, subsampling=0)
            entries.append({"role": role, "case": kept[position].case, "dice": kept[position].dice, "file": name})
        write_json(run / FOLDER / INDEX, {"cases": entries})


def chosen(cases: int, each: int) -> Sequence[tuple[str, int]]:
    """Return roles and positions in ascending order of Dice: at most ``each`` per role, no case twice.

    With one case, it is the median; with two, worst and best.

    >>> chosen(5, 1)
    [('worst', 0), ('median', 2), ('best', 4)]
    """
    if cases < len(ROLES):
        return [("median", 0)] * cases if cases < 2 else [("worst", 0), ("best", 1)]
    count = min(each, cases // len(ROLES))
    starts = {"worst": 0, "median": (cases - count) // 2, "best": cases - count}
    return [(role, starts[role] + k) for role in ROLES for k in range(count)]
