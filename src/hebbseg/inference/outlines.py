"""Outlines of objects as GeoJSON polygons for QuPath, along the edges of pixels."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.ndimage import find_objects as boxes_of
from skimage.measure import label

from hebbseg.data.cases import ClassInfo
from hebbseg.data.labels.instances import Objects
from hebbseg.reporting.plots.overlay import PALETTE

Point = tuple[int, int]
Ring = list[Point]


def feature_collection(objects: Objects, classes: Sequence[ClassInfo], kind: str) -> dict[str, Any]:
    """Return a GeoJSON FeatureCollection with one feature per object, named by its number.

    Coordinates are (column, row) in pixels of the image from its upper left corner, as in QuPath: pixel (r, c) is the square
    from (c, r) to (c + 1, r + 1).

    Args:
        objects: (H, W).
        classes: names and colors the classes.
        kind: QuPath's objectType, "annotation" or "detection".
    """
    features = []
    for number, (box, index) in enumerate(zip(boxes_of(objects.labels), objects.classes, strict=True), start=1):
        polygons = polygons_of(objects.labels[box] == number, offset=(box[1].start, box[0].start))
        one = len(polygons) == 1
        color = classes[index].colour or PALETTE[(index - 1) % len(PALETTE)]
        features.append(
            {
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
        )
    return {"type": "FeatureCollection", "features": features}


def as_text(collection: dict[str, Any]) -> str:
    """Return the JSON text of a feature collection, one feature per line."""
    features = ",\n".join(json.dumps(feature, separators=(",", ":")) for feature in collection["features"])
    return f'{{"type":"FeatureCollection","features":[\n{features}\n]}}\n'


def polygons_of(mask: np.ndarray, offset: Point = (0, 0)) -> list[list[list[list[int]]]]:
    """Return the polygons of a mask (H, W): for each part, whose pixels share edges, its outer ring and those of its holes.

    Rings are closed, have vertices at corners only, visit no vertex twice and follow RFC 7946: outer rings counterclockwise
    (with y upwards), holes clockwise. A ring may touch another one of its polygon at single points.
    """
    parts, n = label(np.pad(mask, 1), connectivity=1, return_num=True)
    polygons = []
    for part, box in zip(range(1, n + 1), boxes_of(parts), strict=True):
        rings = list(_simple_rings(np.pad(parts[box] == part, 1)))
        shift = (offset[0] + box[1].start - 2, offset[1] + box[0].start - 2)
        rings.sort(key=_doubled_area, reverse=True)  # the outer ring has the only positive area
        polygons.append([[[x + shift[0], y + shift[1]] for x, y in [*ring, ring[0]]] for ring in rings])
    return polygons


def _simple_rings(mask: np.ndarray) -> Iterator[Ring]:
    """Yield the boundaries of a mask that is padded by background, with the mask on the right hand of rows and columns."""
    for walk in _walks(mask):
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


def _walks(mask: np.ndarray) -> Iterator[Ring]:
    """Yield closed walks along the edges between mask and background, without the return to the first vertex."""
    inside = mask.astype(bool)
    starts: dict[Point, list[Point]] = {}  # vertex → directions of its edges
    above, left = np.roll(inside, 1, axis=0), np.roll(inside, 1, axis=1)
    for edges, (dy, dx), direction in (
        (inside & ~above, (0, 0), (1, 0)),  # upper edge, to the right
        (~inside & above, (0, 1), (-1, 0)),  # lower edge of the pixel above, to the left
        (inside & ~left, (1, 0), (0, -1)),  # left edge, upwards
        (~inside & left, (0, 0), (0, 1)),  # right edge of the pixel on the left, downwards
    ):
        rows, columns = np.nonzero(edges)
        for x, y in zip((columns + dx).tolist(), (rows + dy).tolist(), strict=True):
            starts.setdefault((x, y), []).append(direction)
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
