"""The terms of the methods' losses, position by position, in float64. Arrays: (B, K, *S) probabilities, (B, *S) labels."""

import math
from itertools import product

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.empty_like(logits, dtype=np.float64)
    for b, s in positions(logits):
        e = [math.exp(v) for v in logits[(b, slice(None), *s)]]
        p[(b, slice(None), *s)] = [v / sum(e) for v in e]
    return p


def positions(p: np.ndarray):
    return ((b, s) for b in range(p.shape[0]) for s in product(*(range(n) for n in p.shape[2:])))


def vector(p: np.ndarray, b: int, s: tuple[int, ...]) -> list[float]:
    return [float(v) for v in p[(b, slice(None), *s)]]


def mean(values) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def H(p: list[float]) -> float:
    return -math.fsum(v * math.log(v) for v in p if v > 0)


def normalized_entropy(p: np.ndarray) -> float:
    return mean(H(vector(p, b, s)) for b, s in positions(p)) / math.log(p.shape[1])


def distance(p: list[float], q: list[float]) -> float:
    return mean((a - b) ** 2 for a, b in zip(p, q))


def squared_distance(p: np.ndarray, q: np.ndarray) -> float:
    return mean(distance(vector(p, b, s), vector(q, b, s)) for b, s in positions(p))


def certain_distance(p: np.ndarray, target: np.ndarray, passes: list[np.ndarray], progress: float) -> float:
    """UAMT's consistency; a threshold of (¾ + ¼ e^(−5 (1 − t)²)) ln K."""
    threshold = (0.75 + 0.25 * math.exp(-5 * (1 - progress) ** 2)) * math.log(p.shape[1])
    kept = []
    for b, s in positions(p):
        average = [mean(each[(b, c, *s)] for each in passes) for c in range(p.shape[1])]
        if H(average) < threshold:
            kept.append(distance(vector(p, b, s), vector(target, b, s)))
    return mean(kept) if kept else 0.0


def cross_entropy(p: np.ndarray, label: np.ndarray, trusted: np.ndarray | None = None) -> float:
    """Untrusted positions count as 0 and in the number of all."""
    return mean(
        -math.log(p[(b, int(label[(b, *s)]), *s)]) if trusted is None or trusted[(b, *s)] else 0.0 for b, s in positions(p)
    )


def argmax(p: np.ndarray) -> np.ndarray:
    label = np.zeros((p.shape[0], *p.shape[2:]), dtype=int)
    for b, s in positions(p):
        v = vector(p, b, s)
        label[(b, *s)] = v.index(max(v))
    return label


def confidence(p: np.ndarray) -> np.ndarray:
    return np.array([[max(v) for v in image.reshape(image.shape[0], -1).T] for image in p]).reshape(p.shape[0], *p.shape[2:])


def rectified(scales: list[np.ndarray]) -> float:
    """URPC's unsupervised term."""
    count = len(scales)
    total = 0.0
    for p in scales:
        weighted, weights, divergences = [], [], []
        for b, s in positions(p):
            average = [mean(each[(b, c, *s)] for each in scales) for c in range(p.shape[1])]
            D = math.fsum(m * (math.log(m) - math.log(v)) for m, v in zip(average, vector(p, b, s)))
            weights.append(math.exp(-D))
            weighted.append(math.exp(-D) * distance(average, vector(p, b, s)))
            divergences.append(D)
        total += mean(weighted) / mean(weights) + mean(divergences)
    return total / count


def signed_distance(inside: np.ndarray) -> np.ndarray:
    """Every pixel against every pixel of the other side."""
    cells = list(product(*(range(n) for n in inside.shape)))
    if inside.all() or not inside.any():
        return np.full(inside.shape, -1.0 if inside.any() else 1.0)
    nearest = {
        c: min(math.dist(c, d) for d in cells if inside[d] != inside[c])
        for c in cells
    }  # fmt: skip
    # The inner border is at 0.
    depth = {c: 0.0 if nearest[c] == 1 else nearest[c] for c in cells if inside[c]}
    out = max(nearest[c] for c in cells if not inside[c])
    deep = max(1.0, *depth.values()) if len(depth) > 1 else 1.0
    field = np.empty(inside.shape)
    for c in cells:
        field[c] = -depth[c] / deep if inside[c] else nearest[c] / out
    return field


def region_loss(p: np.ndarray, label: np.ndarray, region: np.ndarray, *, cross: bool) -> float:
    """Dice over the batch with 1 added above and below, mean over classes; cross-entropy, mean over the region."""
    losses = []
    for c in range(p.shape[1]):
        both = sums = 0.0
        for b, s in positions(p):
            if region[(b, *s)]:
                t = float(label[(b, *s)] == c)
                both += p[(b, c, *s)] * t
                sums += p[(b, c, *s)] + t
        losses.append(1 - (2 * both + 1) / (sums + 1))
    inside = [-math.log(p[(b, int(label[(b, *s)]), *s)]) for b, s in positions(p) if region[(b, *s)]]
    return mean(losses) + (mean(inside) if cross else 0.0)


def foreground_dice(p: np.ndarray, label: np.ndarray) -> float:
    """Over the batch, mean over the foreground classes that are there."""
    found = []
    for c in range(1, p.shape[1]):
        there = [(b, s) for b, s in positions(p) if label[(b, *s)] == c]
        if there:
            both = math.fsum(p[(b, c, *s)] for b, s in there)
            found.append(2 * both / (math.fsum(p[(b, c, *s)] for b, s in positions(p)) + len(there)))
    return mean(found)


def annotated(label: np.ndarray) -> np.ndarray:
    """Pixels whose index is not 255."""
    found = np.zeros(label.shape, dtype=bool)
    for cell in product(*(range(n) for n in label.shape)):
        found[cell] = label[cell] != 255
    return found


def annotated_dice(p: np.ndarray, label: np.ndarray) -> float:
    """`foreground_dice` over the annotated pixels."""
    found = []
    for c in range(1, p.shape[1]):
        known = [(b, s) for b, s in positions(p) if label[(b, *s)] != 255]
        there = [(b, s) for b, s in known if label[(b, *s)] == c]
        if there:
            both = math.fsum(p[(b, c, *s)] for b, s in there)
            found.append(2 * both / (math.fsum(p[(b, c, *s)] for b, s in known) + len(there)))
    return mean(found) if found else 0.0


def annotated_regression(s: np.ndarray, truth: np.ndarray, label: np.ndarray) -> float:
    """DTC: the mean of (s − s*)² over annotated pixels and foreground classes."""
    return mean(
        (s[(b, c, *x)] - truth[(b, c, *x)]) ** 2 for b, x in positions(s) for c in range(s.shape[1]) if label[(b, *x)] != 255
    )


def largest_part(area: np.ndarray) -> np.ndarray:
    """Flood fill, diagonal neighbours included; the first of equally large parts."""
    left = {tuple(int(i) for i in c) for c in np.argwhere(area)}
    best: set[tuple[int, ...]] = set()
    for start in sorted(left):
        if start not in left:
            continue
        part, edge = {start}, [start]
        left.discard(start)
        while edge:
            cell = edge.pop()
            for step in product((-1, 0, 1), repeat=area.ndim):
                near = tuple(a + d for a, d in zip(cell, step))
                if near in left:
                    left.discard(near)
                    part.add(near)
                    edge.append(near)
        best = part if len(part) > len(best) else best
    kept = np.zeros(area.shape, dtype=bool)
    for cell in best:
        kept[cell] = True
    return kept


def gaussian_divergence(mean_: np.ndarray, log_variance: np.ndarray) -> list[float]:
    return [
        math.fsum(0.5 * (m * m + math.exp(v) - v - 1) for m, v in zip(a.ravel(), b.ravel()))
        for a, b in zip(mean_, log_variance)
    ]


def episode(support: np.ndarray, mask: np.ndarray, query: np.ndarray, cells: int) -> np.ndarray:
    """The two logits of one image in 2D: features (F, H, W), coverage (H, W), features (F, H, W) → (2, H, W)."""

    def cosine(a, b) -> float:
        norms = [max(1e-4, math.sqrt(math.fsum(v * v for v in vector))) for vector in (a, b)]
        return math.fsum(x * y for x, y in zip(a, b)) / (norms[0] * norms[1])

    def within(weights) -> list[float]:
        total = max(1e-5, math.fsum(weights[i, j] for i, j in product(range(height), range(width))))
        pairs = list(product(range(height), range(width)))
        return [math.fsum(channel[i, j] * weights[i, j] for i, j in pairs) / total for channel in support]

    height, width = mask.shape
    segment, background = [within(mask)], []
    h, w = height // cells, width // cells
    for i, j in product(range(cells), range(cells)):
        pixels = [(i * h + k, j * w + l) for k, l in product(range(h), range(w))]
        covered = math.fsum(mask[pixel] for pixel in pixels) / len(pixels)
        prototype = [math.fsum(channel[pixel] for pixel in pixels) / len(pixels) for channel in support]
        if covered >= 0.95:
            segment.append(prototype)
        if covered <= 0.05:
            background.append(prototype)
    background = background or [within(1 - mask)]
    logits = np.empty((2, height, width))
    for row, (i, j) in product((0, 1), product(range(height), range(width))):
        d = [20 * cosine(query[:, i, j], prototype) for prototype in (background, segment)[row]]
        weights = [math.exp(v) for v in d]
        logits[row, i, j] = math.fsum(a * b for a, b in zip(weights, d)) / math.fsum(weights)
    return logits


def weighted_cross_entropy(logits: np.ndarray, mask: np.ndarray, weights: tuple[float, float]) -> float:
    """Of one image in 2D: the mean of −ln softmax(logits)[mask], weighted by class. Shapes: (2, H, W), (H, W)."""
    terms, total = [], []
    for i, j in product(*map(range, mask.shape)):
        wanted = int(mask[i, j])
        terms.append(weights[wanted] * (math.log(sum(math.exp(v) for v in logits[:, i, j])) - logits[wanted, i, j]))
        total.append(weights[wanted])
    return math.fsum(terms) / math.fsum(total)
