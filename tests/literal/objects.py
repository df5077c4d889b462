"""Object metrics and object borders, written as their definitions are read: object by object, pixel by pixel."""

import math

import numpy as np

Pixels = set[tuple[int, ...]]


def objects(labels: np.ndarray) -> list[Pixels]:
    found: dict[int, Pixels] = {}
    for place, value in np.ndenumerate(labels):
        if value:
            found.setdefault(int(value), set()).add(place)
    return [found[value] for value in sorted(found)]


def dice(a: Pixels, b: Pixels) -> float:
    return 2 * len(a & b) / (len(a) + len(b))


def hausdorff(a: Pixels, b: Pixels, spacing: tuple[float, ...]) -> float:
    def distance(p: tuple[int, ...], q: tuple[int, ...]) -> float:
        return math.sqrt(sum(((x - y) * s) ** 2 for x, y, s in zip(p, q, spacing)))

    return max(
        max(min(distance(p, q) for q in b) for p in a),
        max(min(distance(p, q) for p in a) for q in b),
    )


def most_overlapping(a: Pixels, others: list[Pixels]) -> Pixels | None:
    best = None
    for other in others:
        if len(a & other) > (len(a & best) if best is not None else 0):
            best = other
    return best


def metrics(prediction: np.ndarray, target: np.ndarray, spacing: tuple[float, ...]) -> dict[str, float]:
    S, G = objects(prediction), objects(target)
    counts = {"n_target": len(G), "n_prediction": len(S)}
    names = ("object_dice", "f1_glas", "f1", "aji", "pq", "sq")
    if not S and not G:
        return {**dict.fromkeys(names, 1.0), "object_hausdorff": 0.0, **counts}
    if not S or not G:
        diagonal = math.sqrt(sum((n * s) ** 2 for n, s in zip(target.shape, spacing)))
        return {**dict.fromkeys(names, 0.0), "object_hausdorff": diagonal, **counts}

    sums = {"dice": 0.0, "hausdorff": 0.0}
    for one, other in ((G, S), (S, G)):
        total = sum(map(len, one))
        for a in one:
            b = most_overlapping(a, other)
            sums["dice"] += 0.5 * len(a) / total * (0.0 if b is None else dice(a, b))
            h = min(hausdorff(a, c, spacing) for c in other) if b is None else hausdorff(a, b, spacing)
            sums["hausdorff"] += 0.5 * len(a) / total * h

    true_positives = 0
    for s in S:
        g = most_overlapping(s, G)
        true_positives += g is not None and len(s & g) > 0.5 * len(g)
    false_positives, false_negatives = len(S) - true_positives, len(G) - true_positives
    f1_glas = 2 * true_positives / (2 * true_positives + false_positives + false_negatives)

    ious = [len(g & s) / len(g | s) for g in G for s in S if len(g & s) / len(g | s) > 0.5]
    quality = len(ious) / (len(ious) + 0.5 * (len(S) - len(ious)) + 0.5 * (len(G) - len(ious)))
    mean_iou = sum(ious) / len(ious) if ious else 0.0

    intersection = union = 0
    used = set()
    for g in G:
        best, best_iou = None, 0.0
        for number, s in enumerate(S):
            iou = len(g & s) / len(g | s)
            if iou > best_iou:
                best, best_iou = number, iou
        if best is None:
            union += len(g)
        else:
            used.add(best)
            intersection += len(g & S[best])
            union += len(g | S[best])
    union += sum(len(s) for number, s in enumerate(S) if number not in used)

    return {
        "object_dice": sums["dice"],
        "object_hausdorff": sums["hausdorff"],
        "f1_glas": f1_glas,
        "f1": quality,
        "aji": intersection / union,
        "pq": quality * mean_iou,
        "sq": mean_iou,
        **counts,
    }


def border(ids: np.ndarray, width: int) -> np.ndarray:
    """Layer d of a pixel: the number of steps over face neighbours to the nearest pixel of another value (in the image)."""
    result = np.zeros(ids.shape, bool)

    def neighbours(place: tuple[int, ...]) -> list[tuple[int, ...]]:
        found = []
        for axis in range(ids.ndim):
            for step in (-1, 1):
                other = (*place[:axis], place[axis] + step, *place[axis + 1 :])
                if 0 <= other[axis] < ids.shape[axis]:
                    found.append(other)
        return found

    for pixels in objects(ids):
        layer: dict[tuple[int, ...], int] = {}
        current = {p for p in pixels if any(q not in pixels for q in neighbours(p))}
        depth = 1
        while current:
            layer |= dict.fromkeys(current, depth)
            current = {q for p in current for q in neighbours(p) if q in pixels and q not in layer}
            depth += 1
        for p in pixels:
            layer.setdefault(p, 10**6)  # an object without outline: it covers the image
        deepest = max(layer.values())
        for p in pixels:
            result[p] = layer[p] <= min(width, deepest / 2)
    return result
