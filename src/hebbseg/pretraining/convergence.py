"""When a pretext task has converged."""

import math
from dataclasses import dataclass

MARGIN = 0.01  # of the fall of the loss so far: a smaller fall is no improvement
PATIENCE = 5  # validations without improvement
PLATEAUS = 2  # the learning rate is divided by 10 after the first, training ends after the last


@dataclass
class Convergence:
    """Divides the learning rate by 10 at the first plateau of the validation loss and ends training at the second.

    A plateau is 5 validations in a row in which the loss did not fall by more than 1 % of its total fall since the first
    validation, before training. The rule is the same for any unit and offset of the loss.

    Args:
        plateaus: number of plateaus until the end: 2, or 1 for a constant learning rate.
        initial: loss before training.
        lowest: lowest loss so far.
        reference: loss at the last improvement.
        waited: validations since then.
        passed: number of plateaus so far.

    Example:
        >>> rule = Convergence(initial=1.0)
        >>> [rule.add(loss) for loss in (0.5, 0.499, 0.4)]
        [True, True, True]
        >>> (rule.reference, rule.waited, rule.rate_factor)
        (0.4, 0, 1.0)
    """

    initial: float
    plateaus: int = PLATEAUS
    lowest: float = math.inf
    reference: float = math.inf
    waited: int = 0
    passed: int = 0

    def add(self, loss: float) -> bool:
        """Take the loss of a validation into account; return whether it is the lowest so far."""
        margin = MARGIN * max(0.0, self.initial - self.reference)  # 0 before the first improvement
        if loss < self.reference - margin:
            self.reference, self.waited = loss, 0
        else:
            self.waited += 1
        if self.waited >= PATIENCE:
            self.passed, self.waited = self.passed + 1, 0
        if not loss < self.lowest:  # also if it is not a number
            return False
        self.lowest = loss
        return True

    @property
    def rate_factor(self) -> float:
        return 10.0**-self.passed

    @property
    def reached(self) -> bool:
        return self.passed >= self.plateaus
