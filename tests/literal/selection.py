"""The criteria of choosing images, loop by loop. Each returns the next index; ties go to the first."""

import math

import numpy as np

NEIGHBORS = 20


def distance(x: np.ndarray, i: int, j: int) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x[i], x[j]))) / math.sqrt(len(x[i]))


def first_best(scores: dict[int, float]) -> int:
    best = max(scores.values())
    return min(i for i, score in scores.items() if score >= best - 1e-12)


def left(x: np.ndarray, taken: list[int]) -> list[int]:
    return [i for i in range(len(x)) if i not in taken]


def coverage(x: np.ndarray, u: np.ndarray, taken: list[int]) -> int:
    if not taken:
        return first_best({i: -sum(distance(x, i, j) for j in range(len(x))) for i in range(len(x))})
    return first_best({i: min(distance(x, i, j) for j in taken) for i in left(x, taken)})


def facility(x: np.ndarray, u: np.ndarray, taken: list[int]) -> int:
    """The set whose facility location Σ_j max_i (D − d_ij) is largest."""
    largest = max(distance(x, i, j) for i in range(len(x)) for j in range(len(x)))

    def value(chosen: list[int]) -> float:
        return sum(max(largest - distance(x, i, j) for i in chosen) for j in range(len(x)))

    return first_best({i: value([*taken, i]) for i in left(x, taken)})


def uncertainty(x: np.ndarray, u: np.ndarray, taken: list[int]) -> int:
    return first_best({i: u[i] * min([distance(x, i, j) for j in taken] or [1]) for i in left(x, taken)})


def typical(x: np.ndarray, u: np.ndarray, taken: list[int]) -> int:
    """The most typical image of the largest of |taken| + 1 clusters without a taken image."""
    clusters = [c for c in ward(x, len(taken) + 1) if not set(c) & set(taken)]
    largest = max(map(len, clusters))
    cluster = min(c for c in clusters if len(c) == largest)
    if len(cluster) == 1:
        return cluster[0]
    typicality = {}
    for i in cluster:
        nearest = sorted(distance(x, i, j) for j in cluster if j != i)[:NEIGHBORS]
        typicality[i] = len(nearest) / sum(nearest)
    return first_best(typicality)


def ward(x: np.ndarray, count: int) -> list[list[int]]:
    """Merge the two clusters whose union adds the least to the sum of squares within clusters, until ``count`` are left."""
    clusters = [[i] for i in range(len(x))]

    def cost(a: list[int], b: list[int]) -> float:
        between = x[a].mean(axis=0) - x[b].mean(axis=0)
        return len(a) * len(b) / (len(a) + len(b)) * float(between @ between)

    while len(clusters) > count:
        pairs = [(a, b) for a in range(len(clusters)) for b in range(a + 1, len(clusters))]
        costs = {(a, b): cost(clusters[a], clusters[b]) for a, b in pairs}
        a, b = min(costs, key=costs.get)
        clusters[a] = sorted(clusters[a] + clusters[b])
        del clusters[b]
    return clusters
