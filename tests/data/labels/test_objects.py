"""Object numbers are told from classes."""

import pytest

from hebbseg.data.labels.objects import MaskValues, has_ignore_value, number_objects


def masks(*values: tuple[int, ...], areas: int = 1) -> list[MaskValues]:
    return [MaskValues(values=each, areas=areas * len(each)) for each in values]


NUMBERED = [tuple(range(1, n + 1)) for n in (2, 5, 3, 7, 0)]


def test_numbers_from_one_in_connected_areas_are_objects():
    assert number_objects(masks(*NUMBERED))
    assert not number_objects(masks(*NUMBERED, areas=4)), "classes consist of several areas"


def test_numbers_of_cropped_masks_are_objects():
    assert number_objects(masks((3, 9), (1, 4, 12), (7,), (2, 5, 6, 8)))


@pytest.mark.parametrize(
    "values",
    [
        [(1,), (1, 2), (1, 2, 3)],  # three classes
        [(1, 2, 3, 4, 5)] * 9,  # every mask has all classes
        [(1, 2, 4, 5), (1, 2, 3, 4), (2, 3, 4, 5), (1, 2, 4), (3, 4)],  # organs, some outside the volume
        [(), ()],
    ],
)
def test_classes_are_not_objects(values: list[tuple[int, ...]]):
    assert not number_objects(masks(*values))


def test_ignore_values():
    assert has_ignore_value([0, 1, 255]) and has_ignore_value([0, 1, 2, 3, 255])
    for values in ([0, 255], [0, 1], [0, 2, 255], [0, 1, 254]):
        assert not has_ignore_value(values)
