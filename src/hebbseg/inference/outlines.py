"""Outlines of objects as GeoJSON polygons for QuPath, along the edges of pixels."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.ndimage import find_objects as boxes_of
from skimage.measure import label

from hebbseg.data.cases import ClassInfo
from hebbseg.data.labels.instances import Objects
from hebbseg.reporting.plots.overlay import PALETTE

Point = tuple[int, int]
Ring = list[Point]
Starts = dict[Point, list[Point]]


def feature_collection(objects: Objects, classes: Sequence[ClassInfo], kind: str) -> dict[str, Any]:
    """Return a GeoJSON FeatureCollection with one feature per object, named by its number, see `features_of`."""
    return {"type": "FeatureCollection", "features": list(features_of(objects, classes, kind))}


def features_of(
    objects: Objects,
    classes: Sequence[ClassInfo],
    kind: str,
    *,
    numbers: Sequence[int] | np.ndarray | None = None,
    offset: Sequence[int] = (0, 0),
) -> Iterator[dict[str, Any]]:
    """Yield a GeoJSON feature per object.

    Coordinates are (column, row) in pixels of the image from its upper left corner, as in QuPath: pixel (r, c) is the square
    from (c, r) to (c + 1, r + 1).

    Args:
        objects: (H, W).
        classes: names and colors the classes.
        kind: QuPath's objectType, "annotation" or "detection".
        numbers: names of the objects; default: 1 … n.
        offset: row and column of the labels in the image.
    """
    names = range(1, len(objects) + 1) if numbers is None else numbers
    for label_number, (box, index) in enumerate(zip(boxes_of(objects.labels), objects.classes, strict=True), start=1):
        place = (offset[1] + box[1].start, offset[0] + box[0].start)
        polygons = polygons_of(objects.labels[box] == label_number, offset=place)
        yield feature(polygons, int(index), int(names[label_number - 1]), classes, kind)


def feature(polygons: Sequence[Any], index: int, number: int, classes: Sequence[ClassInfo], kind: str) -> dict[str, Any]:
    """Return the GeoJSON feature of an object of class ``index``."""
    one = len(polygons) == 1
    color = classes[index].colour or PALETTE[(index - 1) % len(PALETTE)]
    return {
        "type": "Feature",
        "geometry": {
            "type": "Polygon" if one else "MultiPolygon",
            "coordinates": polygons[0] if one else polygons,
        },
        "properties": {
            "objectType": kind,
            "name": str(number),
            "classification": {"name": classes[index].name or f"class {index}", "color": list(color)},
        },
    }


def as_text(collection: dict[str, Any]) -> str:
    """Return the JSON text of a feature collection, one feature per line."""
    return "".join(text_parts(collection["features"]))


def text_parts(features: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the JSON text of a feature collection, feature by feature."""
    yield '{"type":"FeatureCollection","features":['
    for number, each in enumerate(features):
        yield ("," if number else "") + "\n" + json.dumps(each, separators=(",", ":"))
    yield "\n]}\n"


def polygons_of(mask: np.ndarray, offset: Point = (0, 0)) -> list[list[list[list[int]]]]:
    """Return the polygons of a mask (H, W): for each part, whose pixels share edges, its outer ring and those of its holes.

    Rings are closed, have vertices at corners only, visit no vertex twice and follow RFC 7946: outer rings counterclockwise
    (with y upwards), holes clockwise. A ring may touch another one of its polygon at single points.
    """
    parts, n = label(np.pad(mask, 1), connectivity=1, return_num=True)
    polygons = []
    for part, box in zip(range(1, n + 1), boxes_of(parts), strict=True):
        padded = np.pad(parts[box] == part, 1)
        starts: Starts = {}
        _add_edges(padded, np.roll(padded, 1, axis=0), starts)
        polygons.append(_polygon(starts, (offset[0] + box[1].start - 2, offset[1] + box[0].start - 2)))
    return polygons


def polygon_of_rows(read: Callable[[slice], np.ndarray], bands: Iterable[slice], width: int) -> list[list[list[int]]]:
    """Return the polygon of a mask of one connected part that is read by ranges of rows.

    Args:
        read: returns the mask of a range of rows (h, width).
        bands: consecutive ranges of all rows.
        width: number of columns.
    """
    starts: Starts = {}
    last, end = np.zeros((1, width + 2), bool), 0
    for rows in bands:
        here = np.pad(read(rows), ((0, 0), (1, 1)))
        _add_edges(here, np.concatenate([last, here[:-1]]), starts, top=rows.start)
        last, end = here[-1:].copy(), rows.stop
    _add_edges(np.zeros_like(last), last, starts, top=end)
    return _polygon(starts, (-1, 0))


def _polygon(starts: Starts, shift: Point) -> list[list[list[int]]]:
    """Return the outer ring and those of holes, moved by (columns, rows)."""
    # The outer ring has the only positive area.
    rings = sorted(_simple_rings(starts), key=_doubled_area, reverse=True)
    return [[[x + shift[0], y + shift[1]] for x, y in [*ring, ring[0]]] for ring in rings]


def _simple_rings(starts: Starts) -> Iterator[Ring]:
    """Yield the boundaries of a mask, with the mask on the right hand of rows and columns."""
    for walk in _walks(starts):
        path: Ring = []
        position: dict[Point, int] = {}
        for point in walk:
            if point in position:  # the part since the last visit is a ring of its own
                start = position[point]
                yield _corners(path[start:])
                for passed in path[start:]:
                    del position[passed]
                del path[start:]
            position[point] = len(path)
            path.append(point)
        yield _corners(path)


def _add_edges(inside: np.ndarray, above: np.ndarray, starts: Starts, top: int = 0) -> None:
    """Add the edges between mask and background to ``starts``.

    Args:
        inside: some rows of the mask, with a column of background on both sides.
        above: the row above each of them.
        starts: vertex → directions of its edges.
        top: number of the first row.
    """
    left = np.roll(inside, 1, axis=1)
    for edges, (dy, dx), direction in (
        (inside & ~above, (0, 0), (1, 0)),  # upper edge, to the right
        (~inside & above, (0, 1), (-1, 0)),  # lower edge of the pixel above, to the left
        (inside & ~left, (1, 0), (0, -1)),  # left edge, upwards
        (~inside & left, (0, 0), (0, 1)),  # right edge of the pixel on the left, downwards
    ):
        rows, columns = np.nonzero(edges)
        for x, y in zip((columns + dx).tolist(), (rows + dy + top).tolist(), strict=True):
            starts.setdefault((x, y), []).append(direction)


def _walks(starts: Starts) -> Iterator[Ring]:
    """Yield closed walks along the edges, which are used up, without the return to the first vertex."""
    while starts:
        first = next(iter(starts))
        point, direction = first, (0, 0)
        walk: Ring = []
        while point in starts:
            directions = starts[point]
            turned = (-direction[1], direction[0])
            # Where two pixels touch by a corner, the walk stays at its pixel.
            direction = turned if turned in directions else directions[0]
            directions.remove(direction)
            if not directions:
                del starts[point]
            walk.append(point)
            point = (point[0] + direction[0], point[1] + direction[1])
            if point == first:
                break
        yield walk


def _corners(ring: Ring) -> Ring:
    """Return the vertices at which the direction changes."""
    points = np.array(ring)
    before, after = points - np.roll(points, 1, axis=0), np.roll(points, -1, axis=0) - points
    return [(int(x), int(y)) for x, y in points[(before != after).any(axis=1)]]


def _doubled_area(ring: Ring) -> int:
    x, y = np.array(ring).T
    return int((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())
