"""Learning rate schedules, as factors of the highest learning rate."""

import math
from typing import Literal

Schedule = Literal["cosine", "poly", "step", "linear", "constant"]


def rate_factor(schedule: Schedule, progress: float, warm_up: float = 0.0) -> float:
    """Return the factor at ``progress`` (0 at the first update, 1 after the last).

    cosine: ½ (1 + cos πp);  poly: (1 − p)^0.9;  step: divided by 10 after each quarter, as in the paper (every 50 of 200
    epochs);  linear: 1 − 0.9 p;  constant: 1. The rate rises linearly over the first fraction ``warm_up``; p counts from
    its end.

    >>> rate_factor("step", 0.6)
    0.01
    """
    if progress < warm_up:
        return progress / warm_up
    p = min(1.0, (progress - warm_up) / (1 - warm_up))
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * p))
    if schedule == "poly":
        return (1 - p) ** 0.9
    if schedule == "step":
        return 10.0 ** -min(3, math.floor(4 * p))
    if schedule == "linear":
        return 1 - 0.9 * p
    return 1.0
