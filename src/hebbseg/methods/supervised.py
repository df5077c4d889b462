"""Supervised training on the labelled images only."""

from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Step


class Supervised(Method):
    """Supervised training on the labelled images only: L = Dice + cross-entropy, or Dice alone."""

    title = "Supervised"
    uses_unlabelled = False

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        return self.supervised(labelled)
