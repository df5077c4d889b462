import math

import pytest

from hebbseg.training.schedules import rate_factor


@pytest.mark.parametrize(
    "schedule, progress, expected",
    [
        ("cosine", 0.0, 1.0),
        ("cosine", 0.5, 0.5),
        ("cosine", 1.0, 0.0),
        ("poly", 0.5, 0.5**0.9),
        ("step", 0.24, 1.0),
        ("step", 0.26, 0.1),
        ("step", 0.99, 0.001),
        ("constant", 0.7, 1.0),
    ],
)
def test_factor(schedule: str, progress: float, expected: float) -> None:
    assert math.isclose(rate_factor(schedule, progress), expected, abs_tol=1e-12)


def test_warm_up_rises_in_a_line_then_the_schedule_begins() -> None:
    assert rate_factor("cosine", 0.05, warm_up=0.1) == pytest.approx(0.5)
    assert rate_factor("cosine", 0.1, warm_up=0.1) == pytest.approx(1.0)
    assert rate_factor("cosine", 0.55, warm_up=0.1) == pytest.approx(0.5)
