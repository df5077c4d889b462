"""The labelled images alone: the baseline that everything else is measured against."""

from typing import ClassVar

from torch import Tensor

from hebbseg.methods.base import Labelled, Method, Step


class Supervised(Method):
    """L = Dice (+ cross-entropy) on the labelled images."""

    title = "Supervised"
    uses_unlabelled: ClassVar[bool] = False

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        return {"supervised": self.criterion(self.network(labelled.images), labelled.masks)}
