"""Which images to annotate next: greedy criteria on descriptors of images, without masks.

Every criterion picks one image at a time, given those already labelled or picked, so rankings are nested: the first n of a
ranking of 2n images are the ranking of n images.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from hebbseg.data.progress import counted
from hebbseg.data.splits.draw import drawn_order
from hebbseg.errors import HebbsegError, look_up

NEIGHBORS = 20
"""Nearest neighbors that typicality averages over (TypiClust, arXiv:2202.02794)."""


@dataclass(frozen=True, kw_only=True)
class Pick:
    """A picked image: its index in the pool, the criterion's score (larger is better) and the reason in words."""

    index: int
    score: float
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """The images to choose from, and those that are labelled already.

    Args:
        names: name of each of the n images.
        descriptors: (n, d), standardized.
        groups: patient of each image, or None; an image without a patient counts as a patient of its own.
        labelled: indices of the images that are labelled already.
        barred: indices of images that cannot be picked, such as images without a mask when a split is drawn.
        uncertainty: (n,) of a model's predictions, for the criterion ``uncertainty``.
        seed: random seed of the criterion ``random``.
    """

    names: Sequence[str]
    descriptors: np.ndarray
    groups: Sequence[str | None]
    labelled: tuple[int, ...] = ()
    barred: frozenset[int] = frozenset()
    uncertainty: np.ndarray | None = None
    seed: int = 0

    @cached_property
    def distances(self) -> np.ndarray:
        """Euclidean distances (n, n), divided by √d."""
        return squareform(pdist(self.descriptors)) / self.descriptors.shape[1] ** 0.5

    @cached_property
    def random_ranks(self) -> dict[str, int]:
        """The rank of each name in a random order that depends on the seed and the names alone."""
        return {name: rank for rank, name in enumerate(drawn_order(self.names, seed=self.seed, purpose="next"))}

    @cached_property
    def tree(self) -> "Tree":
        return Tree(self.descriptors)

    def nearest(self, taken: Sequence[int]) -> np.ndarray:
        """Return the distance of each image to the nearest of ``taken``, (n,)."""
        return self.distances[:, list(taken)].min(axis=1)

    def group_key(self, index: int) -> str | int:
        group = self.groups[index]
        return index if group is None else group


class Tree:
    """Ward's hierarchical clustering of the rows of a matrix. Its cuts into 1, 2, 3, … clusters are nested."""

    def __init__(self, descriptors: np.ndarray) -> None:
        n = self.leaves = len(descriptors)
        self.members: list[list[int]] = [[i] for i in range(n)]
        self.children: list[tuple[int, int]] = []
        if n > 1:
            for left, right, *_ in linkage(descriptors, method="ward"):
                self.children.append((int(left), int(right)))
                self.members.append(sorted(self.members[int(left)] + self.members[int(right)]))

    def cut(self, clusters: int) -> list[list[int]]:
        """Return the members of each cluster, largest cluster first; undoes the last ``clusters`` − 1 merges."""
        root = 2 * self.leaves - 2
        split = {root - i for i in range(clusters - 1)}
        nodes = [root] if not split else [c for node in split for c in self.children[node - self.leaves] if c not in split]
        return sorted((self.members[node] for node in nodes), key=lambda members: (-len(members), members))


Criterion = Callable[[Pool, list[int], list[int]], Pick]
"""(pool, indices labelled or picked, indices that may be picked) → the next pick. Ties go to the first index."""


def random(pool: Pool, taken: list[int], allowed: list[int]) -> Pick:
    """Pick an image at random."""
    index = min(allowed, key=lambda i: pool.random_ranks[pool.names[i]])
    return Pick(index=index, score=1 - pool.random_ranks[pool.names[index]] / len(pool.names), reason="drawn at random")


def coverage(pool: Pool, taken: list[int], allowed: list[int]) -> Pick:
    """Pick the image farthest from all taken ones (k-center, farthest first); the first one is the most central image,

    argmax_i min_{j ∈ taken} d_ij.
    """
    if not taken:
        return _central(pool, allowed)
    index, distance = _largest(pool.nearest(taken), allowed)
    closest = min(taken, key=lambda j: pool.distances[index, j])
    return Pick(
        index=index,
        score=distance,
        reason=f"unlike the images labelled or ranked yet: the nearest is {pool.names[closest]}, at distance {distance:.2f}",
    )


def typical(pool: Pool, taken: list[int], allowed: list[int]) -> Pick:
    """Pick the most typical image of the largest cluster without a taken image, of as many clusters as images are taken + 1.

    Typicality is 1 / mean distance to the (at most `NEIGHBORS`) nearest neighbors in the cluster. Clusters are cuts of
    Ward's tree, so each pick keeps the clusters of the picks before it (TypiClust with nested clusters).
    """
    without, among = set(taken), set(allowed)
    for count in range(min(len(taken) + 1, len(pool.names)), len(pool.names) + 1):
        for members in pool.tree.cut(count):
            candidates = [i for i in members if i in among]
            if without.isdisjoint(members) and candidates:
                index, score = _most_typical(pool, members, candidates)
                size = len(members)
                reason = f"typical of {size} similar images, none of them labelled or ranked yet"
                return Pick(index=index, score=score, reason=reason if size > 1 else "similar to no other image")
    index, _ = _most_typical(pool, list(range(len(pool.names))), allowed)  # every image is in a cluster with a taken one
    return Pick(index=index, score=0.0, reason="every cluster has a labelled or ranked image")


def facility(pool: Pool, taken: list[int], allowed: list[int]) -> Pick:
    """Pick the image that reduces the mean distance of all images to their nearest taken image the most,

    argmax_i Σ_j max(0, min_{k ∈ taken} d_jk − d_ij):

    the greedy maximization of facility location Σ_j max_{i ∈ taken} (D − d_ij), with D the largest distance.
    """
    before = pool.nearest(taken) if taken else np.full(len(pool.names), pool.distances.max())
    gains = np.maximum(0, before - pool.distances[allowed]).sum(axis=1)  # (allowed, n) → (allowed,)
    index = allowed[int(gains.argmax())]
    closer = int((pool.distances[index] < before).sum()) if taken else len(pool.names)
    score = float(gains.max()) / len(pool.names)
    return Pick(
        index=index,
        score=score,
        reason=f"closer to {closer} images than those labelled or ranked yet: the mean distance to the nearest falls from "
        f"{before.mean():.2f} to {before.mean() - score:.2f}"
        if taken
        else f"the most central of {counted(len(pool.names), 'image')}",
    )


def uncertainty(pool: Pool, taken: list[int], allowed: list[int]) -> Pick:
    """Pick the image with the largest u_i · min_{j ∈ taken} d_ij, where u_i is the uncertainty of the model's prediction."""
    assert pool.uncertainty is not None
    distance = pool.nearest(taken) if taken else np.ones(len(pool.names))
    index, score = _largest(pool.uncertainty * distance, allowed)
    higher = sum(pool.uncertainty[i] > pool.uncertainty[index] for i in range(len(pool.names)) if i not in pool.labelled)
    reason = f"uncertainty {pool.uncertainty[index]:.2f} (number {higher + 1} of {len(pool.names) - len(pool.labelled)})"
    if taken:
        closest = min(taken, key=lambda j: pool.distances[index, j])
        reason += f", at distance {distance[index]:.2f} from {pool.names[closest]}, the nearest labelled or ranked image"
    return Pick(index=index, score=score, reason=reason)


CRITERIA: dict[str, Criterion] = {
    "random": random,
    "coverage": coverage,
    "typical": typical,
    "facility": facility,
    "uncertainty": uncertainty,
}

DEFAULT_CRITERION = "typical"


def rank_images(criterion: str, pool: Pool, count: int, *, spread: bool = True) -> list[Pick]:
    """Return ``count`` images in the order in which to annotate them.

    Args:
        criterion: a name in `CRITERIA`.
        spread: choose among the patients with the fewest labelled and picked images, so that no patient with images left
            has fewer than another minus one (as far as the labelled images allow).
    """
    choose = look_up(criterion, CRITERIA, "criterion")
    taken = list(pool.labelled)
    left = [i for i in range(len(pool.names)) if i not in pool.barred and i not in set(taken)]
    if count > len(left):
        raise HebbsegError(f"{count} images are requested, but only {len(left)} can be chosen. Request at most {len(left)}.")
    picks = []
    for _ in range(count):
        picks.append(choose(pool, taken, fewest(pool, taken, left) if spread else left))
        taken.append(picks[-1].index)
        left.remove(picks[-1].index)
    return picks


def fewest(pool: Pool, taken: Sequence[int], left: Sequence[int]) -> list[int]:
    """Return the images of ``left`` whose patients have the fewest taken images."""
    counts = Counter(map(pool.group_key, taken))
    least = min(counts[pool.group_key(i)] for i in left)
    return [i for i in left if counts[pool.group_key(i)] == least]


def _central(pool: Pool, allowed: list[int]) -> Pick:
    index, score = _largest(-pool.distances.mean(axis=1), allowed)
    return Pick(index=index, score=-score, reason=f"the most central of {counted(len(pool.names), 'image')}")


def _largest(values: np.ndarray, allowed: list[int]) -> tuple[int, float]:
    position = int(values[allowed].argmax())
    return allowed[position], float(values[allowed[position]])


def _most_typical(pool: Pool, members: list[int], candidates: list[int]) -> tuple[int, float]:
    """Return the candidate with the smallest mean distance to its neighbors among the members, and its typicality."""
    if len(members) == 1:
        return candidates[0], 0.0
    among = np.sort(pool.distances[np.ix_(candidates, members)], axis=1)[:, 1 : NEIGHBORS + 1]  # without itself
    spread = among.mean(axis=1)
    best = int(spread.argmin())
    return candidates[best], float(1 / spread[best]) if spread[best] > 0 else float("inf")
