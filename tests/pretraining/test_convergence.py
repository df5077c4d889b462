"""The rule that ends a pretext task."""

import math

import pytest

from hebbseg.pretraining.convergence import Convergence


def run(losses, initial=1.0, **options):
    """The number of validations until the end, and the rule."""
    rule = Convergence(initial=initial, **options)
    for number, loss in enumerate(losses, start=1):
        rule.add(loss)
        if rule.reached:
            return number, rule
    return None, rule


def test_a_plateau_is_five_validations_without_improvement():
    assert run([0.5] * 20) == (11, run([0.5] * 11)[1])
    assert run([0.5] * 20, plateaus=1)[0] == 6
    assert run([0.5] * 5 + [0.3] * 20, plateaus=1)[0] == 11  # the improvement came in time


def test_creeping_by_less_than_a_percent_of_the_fall_is_no_improvement():
    """The fall is 0.5 so far; 0.004 is less than 1 % of it, but two such falls together are more."""
    creeping = [0.5 - 0.0005 * n for n in range(40)]
    assert run(creeping, plateaus=1)[0] == 6
    assert run([0.5 - 0.004 * n for n in range(40)], plateaus=1)[0] is None


def test_unit_and_offset_of_the_loss_do_not_matter():
    losses = [0.5, 0.4, 0.3, 0.299, 0.31, 0.3, 0.3, 0.298, 0.2, *[0.2] * 20]
    expected = run(losses)[0]
    for scale, offset in ((10, 0), (1, -3), (0.01, -0.5)):
        assert run([scale * loss + offset for loss in losses], initial=scale + offset)[0] == expected


def test_the_lowest_loss_is_that_of_any_validation():
    rule = Convergence(initial=1.0)
    assert [rule.add(loss) for loss in (0.5, 0.499, 0.6, 0.498)] == [True, True, False, True]
    assert rule.lowest == 0.498 and rule.reference == 0.5


def test_a_loss_that_never_falls_or_is_no_number_ends_too():
    assert run([1.5 + n for n in range(20)])[0] == 11
    number, rule = run([math.nan] * 20)
    assert number == 10 and rule.lowest == math.inf


@pytest.mark.parametrize("passed, factor", [(0, 1.0), (1, 0.1)])
def test_the_rate_is_a_tenth_after_the_first_plateau(passed, factor):
    assert Convergence(initial=1.0, passed=passed).rate_factor == factor
