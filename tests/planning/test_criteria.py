"""The criteria against slow literal versions, nested rankings, and patients."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

from hebbseg.errors import HebbsegError
from hebbseg.planning.criteria import CRITERIA, Pool, Tree, fewest, rank_images
from tests.literal import selection as literal

GEOMETRIC = ("coverage", "typical", "facility", "uncertainty")


def pool(n: int = 30, seed: int = 0, groups: int | None = None, **options) -> Pool:
    random = np.random.default_rng(seed)
    centers = 4 * random.normal(size=(5, 3))
    return Pool(
        names=[f"c{i:02d}" for i in range(n)],
        descriptors=centers[random.integers(5, size=n)] + random.normal(size=(n, 3)),
        groups=[None if groups is None else f"p{random.integers(groups)}" for _ in range(n)],
        uncertainty=random.random(n),
        **options,
    )


def indices(criterion: str, source: Pool, count: int, **options) -> list[int]:
    return [pick.index for pick in rank_images(criterion, source, count, **options)]


@pytest.mark.parametrize("labelled", [(), (3, 17)])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("criterion", GEOMETRIC)
def test_criteria_pick_what_their_definitions_say(criterion: str, seed: int, labelled: tuple[int, ...]) -> None:
    source = pool(n=20, seed=seed, labelled=labelled)
    taken = list(labelled)
    for pick in rank_images(criterion, source, 5):
        best = getattr(literal, criterion)(source.descriptors, source.uncertainty, taken)
        assert pick.index == best, f"after {taken}"
        taken.append(best)


@pytest.mark.parametrize("groups", [None, 4])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_rankings_are_nested_and_repeatable(criterion: str, groups: int | None) -> None:
    source = pool(groups=groups, labelled=(2,))
    whole = indices(criterion, source, 29)
    assert sorted(whole) == sorted(set(range(30)) - {2})
    for n in (1, 5, 14):
        assert indices(criterion, pool(groups=groups, labelled=(2,)), n) == whole[:n]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_patients_differ_by_at_most_one_image(criterion: str) -> None:
    source = pool(n=40, groups=5)
    sizes = Counter(source.groups)
    counts = Counter(dict.fromkeys(sizes, 0))
    for pick in rank_images(criterion, source, 40):
        counts[source.groups[pick.index]] += 1
        for group, count in counts.items():
            assert count == sizes[group] or count >= max(counts.values()) - 1
    free = indices(criterion, source, 15, spread=False)
    assert free != indices(criterion, source, 15), "without spreading, the order is another one"


def test_labelled_images_count_for_their_patient() -> None:
    source = replace(pool(n=6), groups=["a", "a", "a", "b", "b", None], labelled=(0, 1))
    assert fewest(source, [0, 1], [2, 3, 4, 5]) == [3, 4, 5]
    assert fewest(source, [0, 1, 3, 5], [2, 4]) == [4]
    assert set(indices("random", source, 2)) in ({3, 5}, {4, 5})


def test_barred_images_are_described_but_never_picked() -> None:
    source = pool(barred=frozenset(range(10)))
    for criterion in CRITERIA:
        assert not set(indices(criterion, source, 20)) & set(range(10))
    with pytest.raises(HebbsegError, match="21 images are requested, but only 20"):
        rank_images("coverage", source, 21)


def test_random_depends_on_the_seed_and_the_names_alone() -> None:
    first = indices("random", pool(), 10)
    assert first == indices("random", pool(seed=1), 10), "other descriptors, same names"
    assert first != [pick.index for pick in rank_images("random", replace(pool(), seed=1), 10)]


def test_cuts_of_the_tree_are_wards_clusters_and_nested() -> None:
    source = pool(n=25)
    tree = Tree(source.descriptors)
    cuts = [tree.cut(count) for count in range(1, 26)]
    for count, clusters in enumerate(cuts, start=1):
        found = AgglomerativeClustering(n_clusters=count, linkage="ward").fit_predict(source.descriptors)
        assert sorted(clusters) == sorted(np.flatnonzero(found == label).tolist() for label in range(count))
    for coarse, fine in pairwise(cuts):
        assert all(any(set(part) <= set(whole) for whole in coarse) for part in fine)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_identical_images_and_a_single_image_are_ranked_too(criterion: str) -> None:
    same = Pool(names=list("abcd"), descriptors=np.zeros((4, 2)), groups=[None] * 4, uncertainty=np.ones(4))
    assert sorted(indices(criterion, same, 4)) == [0, 1, 2, 3]
    one = Pool(names=["a"], descriptors=np.zeros((1, 2)), groups=[None], uncertainty=np.ones(1))
    assert indices(criterion, one, 1) == [0]


def test_reasons_name_what_decided() -> None:
    source = pool(labelled=(4,))
    for criterion, word in (
        ("coverage", "nearest is c"),
        ("typical", "similar"),
        ("facility", "mean distance"),
        ("uncertainty", "uncertainty 0"),
    ):
        assert word in rank_images(criterion, source, 1)[0].reason
    with pytest.raises(HebbsegError, match="Did you mean 'typical'"):
        rank_images("tpical", source, 1)
