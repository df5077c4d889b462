"""Masks from points and boxes, pixel by pixel."""

import math
from itertools import product
from pathlib import Path

import pytest

from hebbseg.data.cases import IGNORE
from hebbseg.data.labels.points import from_boxes, from_points, read_table
from hebbseg.errors import HebbsegError


@pytest.mark.parametrize("shape", [(20, 30), (8, 10, 12)])
def test_discs_and_rings(shape: tuple[int, ...]):
    points = [tuple(n // 4 for n in shape), tuple(n - 2 for n in shape)]
    mask = from_points(points, shape, radius=2, ring=1.5)
    for cell in product(*(range(n) for n in shape)):
        nearest = min(math.dist(cell, point) for point in points)
        assert mask[cell] == (1 if nearest <= 2 else IGNORE if nearest <= 3.5 else 0)
    assert not from_points([], shape, radius=2, ring=1).any()


def test_boxes():
    mask = from_boxes([(2, 3, 7, 12), (6, 10, 9, 19)], (12, 24))
    for cell in product(range(12), range(24)):
        inside = [
            ((cell[0] - (a + c) / 2) / ((c - a + 1) / 2)) ** 2 + ((cell[1] - (b + d) / 2) / ((d - b + 1) / 2)) ** 2 <= 1
            for a, b, c, d in ((2, 3, 7, 12), (6, 10, 9, 19))
        ]
        boxed = (2 <= cell[0] <= 7 and 3 <= cell[1] <= 12) or (6 <= cell[0] <= 9 and 10 <= cell[1] <= 19)
        assert mask[cell] == (1 if any(inside) else IGNORE if boxed else 0), cell
    volume = from_boxes([(1, 1, 1, 4, 5, 6)], (8, 8, 8))
    assert (volume == 1).any() and (volume != 0).sum() == 4 * 5 * 6


def test_tables(tmp_path: Path):
    table = tmp_path / "points.csv"
    table.write_text("name,x,y\na,1.5,2\nb,3,4\n")
    assert read_table(table, ("y", "x")) == [(2.0, 1.5), (4.0, 3.0)]
    with pytest.raises(HebbsegError, match=r"points\.csv: no column 'z'; found name, x, y.*header with z, y, x"):
        read_table(table, ("z", "y", "x"))
    table.write_text("x,y\n1,2\nleft,4\n")
    with pytest.raises(HebbsegError, match=r"points\.csv: row 2 is not numbers: left, 4"):
        read_table(table, ("y", "x"))


def test_what_does_not_fit_is_named():
    with pytest.raises(HebbsegError, match=r"point 1, \(5\.0, 30\.0\): expected 2 numbers within the image of 20×30 pixels"):
        from_points([(5, 30)], (20, 30), radius=2, ring=1)
    with pytest.raises(HebbsegError, match=r"box .*expected 4 numbers"):
        from_boxes([(1, 2)], (20, 30))
    with pytest.raises(HebbsegError, match="last pixel lies before the first"):
        from_boxes([(5, 5, 2, 9)], (20, 30))
    with pytest.raises(HebbsegError, match=r"radius=0, ring=1: allowed are"):
        from_points([], (9, 9), radius=0, ring=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_places_and_radii_are_finite(value: float) -> None:
    with pytest.raises(HebbsegError, match=r"point .*expected 2 numbers within the image"):
        from_points([(value, 3)], (9, 9), radius=2, ring=1)
    with pytest.raises(HebbsegError, match=r"box .*expected 4 numbers within the image"):
        from_boxes([(1, 2, value, 4)], (9, 9))
    for sizes in ({"radius": value, "ring": 1}, {"radius": 2, "ring": value}):
        with pytest.raises(HebbsegError, match=r"allowed are a radius above 0 and a ring of 0 or more"):
            from_points([(3, 3)], (9, 9), **sizes)
