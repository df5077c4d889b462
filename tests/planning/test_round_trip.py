"""The size at which masks survive: against loops over pixels, and on structures of known thickness."""

import pytest
import torch

from hebbseg.planning.round_trip import (
    LEAST_DICE,
    MOST_PIXELS,
    candidate_sizes,
    reference_mask,
    round_trip_dice,
    try_sizes,
)
from tests.literal import resampling as literal
from tests.planning.masks import blobs, lines


@pytest.mark.parametrize(("shape", "size"), [((14, 11), (5, 4)), ((12, 12), (6, 6)), ((9, 16), (4, 11)), ((6, 5), (8, 9))])
def test_the_round_trip_is_that_of_a_loop_over_pixels(shape: tuple[int, int], size: tuple[int, int]) -> None:
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        coarse = torch.randint(0, 3, (3, 3), generator=generator, dtype=torch.uint8)
        mask = coarse.repeat_interleave(-(-shape[0] // 3), 0).repeat_interleave(-(-shape[1] // 3), 1)[: shape[0], : shape[1]]
        found, expected = round_trip_dice(mask, size, 3), literal.round_trip_dice(mask, size, 3)
        assert found.keys() == expected.keys()
        # A tie of two classes may be decided either way by rounding, one pixel each.
        assert all(abs(found[k] - expected[k]) <= 0.1 for k in found)
        assert sum(abs(found[k] - expected[k]) > 1e-6 for k in found) <= 1


def test_the_same_size_keeps_everything_and_an_absent_class_has_no_dice() -> None:
    mask = lines((64, 64))
    assert round_trip_dice(mask, (64, 64), 3) == {1: 1.0}


def test_pixels_to_ignore_do_not_count() -> None:
    mask = blobs((128, 128), radius=20)
    ignored = mask.clone()
    ignored[:, 100:] = 255
    cut = mask.clone()
    cut[:, 100:] = 0
    assert round_trip_dice(ignored, (128, 128), 2) == {1: 1.0}
    assert abs(round_trip_dice(ignored, (64, 64), 2)[1] - round_trip_dice(cut, (64, 64), 2)[1]) < 0.03


def chosen(masks: list[torch.Tensor], sizes: list[tuple[int, ...]]) -> tuple[tuple[int, ...], float]:
    return list(try_sizes(masks, sizes, 2))[-1]


def test_thin_lines_need_a_larger_size_than_blobs() -> None:
    sizes = candidate_sizes((400, 400), 1.0)
    assert chosen([blobs(seed=n) for n in range(3)], sizes)[0] == (128, 128)
    assert chosen([lines(width=9, seed=n) for n in range(2)], sizes)[0] > (192, 192)
    size, dice = chosen([lines(width=1.5, seed=n) for n in range(2)], sizes)
    assert size == sizes[-1] and dice < LEAST_DICE, "no size suffices"


def test_giving_up_early_chooses_the_size_that_all_masks_choose() -> None:
    sizes = candidate_sizes((400, 400), 1.0)
    for masks in ([blobs(seed=1), lines(width=6), lines(width=12)], [lines(width=2), blobs(), blobs(seed=3)]):
        means = {size: sum(round_trip_dice(mask, size, 2)[1] for mask in masks) / len(masks) for size in sizes}
        first = next((size for size in sizes if means[size] >= LEAST_DICE), sizes[-1])
        assert chosen(masks, sizes)[0] == first


def test_the_worst_class_decides() -> None:
    mask = blobs()
    mask[lines(width=3) > 0] = 2
    both = list(try_sizes([mask], candidate_sizes((400, 400), 1.0), 3))
    thin = list(try_sizes([lines(width=3)], candidate_sizes((400, 400), 1.0), 2))
    assert len(both) == len(thin)


@pytest.mark.parametrize(
    ("median", "aspect"), [((261, 387), 0.67), ((387, 261), 1.48), ((1000, 1000), 1.0), ((584, 565), 1.03), ((480, 1920), 0.25)]
)
def test_candidates_keep_the_aspect_ratio_and_never_enlarge(median: tuple[int, int], aspect: float) -> None:
    sizes = candidate_sizes(median, aspect)
    assert sizes == sorted(sizes) and sizes
    for height, width in sizes:
        assert height % 16 == width % 16 == 0
        assert height <= median[0] and width <= median[1] and height * width <= MOST_PIXELS
        assert abs(height / width / aspect - 1) < 0.1


def test_images_below_128_pixels_are_enlarged_to_it() -> None:
    assert candidate_sizes((64, 96), 64 / 96) == [(128, 192)]
    assert candidate_sizes((100, 100_000), 0.001) == [], "too large and narrow for any size"


def test_large_masks_are_compared_at_a_smaller_size() -> None:
    mask = blobs((2000, 3000), radius=300)
    small = reference_mask(mask, 2)
    assert small.numel() <= 2**21 and abs(small.float().mean() - mask.float().mean()) < 0.01
    assert reference_mask(small, 2) is small
