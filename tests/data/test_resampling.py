"""Resampling of masks against a loop over pixels, and what it keeps."""

import pytest
import torch
import torch.nn.functional as F

from hebbseg.data.resampling import resized_mask, resized_probabilities
from tests.literal import resampling as literal


@pytest.mark.parametrize(
    ("old", "new"),
    [((7, 9), (3, 4)), ((8, 8), (4, 2)), ((10, 6), (4, 6)), ((5, 6), (7, 13)), ((9, 4), (4, 7)), ((6, 5, 7), (3, 4, 2))],
)
def test_each_new_pixel_has_the_class_that_covers_most_of_it(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    for seed in range(5):
        mask = torch.randint(0, 3, old, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
        assert torch.equal(resized_mask(mask, new, 3), literal.resized_mask(mask, new, 3))


def test_enlarging_is_nearest_exact() -> None:
    mask = torch.randint(0, 4, (11, 13), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    expected = F.interpolate(mask[None, None].float(), size=(29, 40), mode="nearest-exact")[0, 0].to(torch.uint8)
    assert torch.equal(resized_mask(mask, (29, 40), 4), expected)


def test_ties_go_to_the_lowest_class_in_every_place() -> None:
    stripes = torch.tensor([1, 0, 2], dtype=torch.uint8).repeat(30)[None].repeat(3, 1)
    assert resized_mask(stripes, (3, 30), 3).unique().tolist() == [0]
    assert resized_mask(torch.tensor([[2, 1]], dtype=torch.uint8), (1, 1), 3).item() == 1


def test_the_area_of_a_class_is_kept_better_than_by_the_nearest_pixel() -> None:
    lines = torch.zeros(96, 96, dtype=torch.uint8)
    lines[::12] = 1  # two of twelve rows
    lines[1::12] = 1
    shrunk = resized_mask(lines, (32, 96), 2)
    nearest = F.interpolate(lines[None, None].float(), size=(32, 96), mode="nearest-exact")[0, 0]
    share = lines.float().mean().item()
    assert abs(shrunk.float().mean().item() - share) <= abs(nearest.mean().item() - share)
    assert shrunk.any(dim=1).sum() == 8, "every line is still there"


def test_pixels_to_ignore_stay() -> None:
    mask = torch.zeros(8, 8, dtype=torch.uint8)
    mask[:, 4:] = 255
    assert resized_mask(mask, (4, 4), 2).tolist() == [[0, 0, 255, 255]] * 4


def test_the_same_size_is_the_same_mask() -> None:
    mask = torch.ones(4, 5, dtype=torch.uint8)
    probabilities = torch.rand(2, 4, 5)
    assert resized_mask(mask, (4, 5), 2) is mask
    assert resized_probabilities(probabilities, (4, 5)) is probabilities


@pytest.mark.parametrize(("old", "new"), [((4, 6), (8, 9)), ((3, 4, 5), (6, 4, 10))])
def test_probabilities_are_interpolated_between_pixel_centers(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    places = torch.stack(torch.meshgrid(*(torch.arange(n) + 0.5 for n in old), indexing="ij"))  # a linear function of place
    found = resized_probabilities(places, new)
    assert found.shape == (len(old), *new)
    for axis, (n, m) in enumerate(zip(old, new, strict=True)):
        wanted = ((torch.arange(m) + 0.5) * n / m).clamp(0.5, n - 0.5)
        along = found[axis].movedim(axis, 0).flatten(1)[:, 0]
        assert torch.allclose(along, wanted, atol=1e-5)
