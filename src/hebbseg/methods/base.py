"""The interface of stage-2 methods."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NotRequired, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hebbseg.data.augment.views import Augment
from hebbseg.errors import HebbsegError
from hebbseg.methods.losses import segmentation_loss
from hebbseg.methods.ops import Ramp, ramp_up
from hebbseg.methods.options import Share, Weight


class Labelled(NamedTuple):
    """Images (B, C, *S) and their masks (B, *S) of class indices."""

    images: Tensor
    masks: Tensor


@dataclass(frozen=True, kw_only=True)
class Step:
    """The number of the update, the fraction of training that is done (0 to 1) and the random generator of the update."""

    number: int
    progress: float
    generator: torch.Generator


class Parts(TypedDict):
    """The keywords of the `Method` constructor. All other keywords of a subclass are its options."""

    network: nn.Module
    another: Callable[[], nn.Module]
    loss: str
    augment: NotRequired[Augment | None]


class Method(nn.Module):
    """Base class of supervised and semi-supervised training methods.

    A subclass registers every network as a submodule, so that its ``state_dict`` is a complete checkpoint. Teachers have
    ``requires_grad=False``. Options are typed keywords of the constructor, with the values of the original paper as
    defaults and one entry each under "Options" in the docstring, from which the command line and the documentation read
    them. ``title`` is the display name in reports; ``networks`` counts the networks that need an initialization: the given
    one and one for each call of ``another``.

    Args:
        network: the initialized network to train; it is saved as the final model.
        another: returns a further network with the same initialization and a different seed.
        loss: the supervised loss, ``"dice+ce"`` or ``"dice"``.
        augment: creates strongly augmented views; defaults to `Augment` with its default strengths.
    """

    title: ClassVar[str] = ""
    networks: ClassVar[int] = 1
    uses_unlabelled: ClassVar[bool] = True
    needs_unet: ClassVar[bool] = False
    """Whether the method uses the UNet's encoder and decoder feature maps (UniMatch: unless feature_view=False)."""

    def __init__(
        self, *, network: nn.Module, another: Callable[[], nn.Module], loss: str, augment: Augment | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self.loss_name = loss
        self.criterion = segmentation_loss(loss)
        self.augment = augment or Augment(spatial_dims=_spatial_dims(network))

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        """Return the weighted terms of the loss; the training loop minimizes their sum."""
        raise NotImplementedError

    def supervised(self, labelled: Labelled) -> dict[str, Tensor]:
        """Return the supervised loss as the only term."""
        return {"supervised": self.criterion(self.network(labelled.images), labelled.masks)}

    def forward(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        # DDP synchronizes gradients only for calls of forward.
        return self.loss(labelled, unlabelled, step)

    def after_step(self, step: Step) -> None:
        """Run after each optimizer step, for example to update a teacher."""

    def predict(self, images: Tensor) -> Tensor:
        """Return logits (B, K, *S) of the final model."""
        logits = self.network(images)
        assert isinstance(logits, Tensor)
        return logits

    def needed(self, unlabelled: Tensor | None) -> Tensor:
        """Return the unlabelled images, or raise an error if the batch has none."""
        if unlabelled is None or not len(unlabelled):
            raise HebbsegError(
                f"Method {self.title or type(self).__name__} needs unlabelled images, but the batch has none. Set "
                "unlabelled_batch to 1 or more, or use method=supervised."
            )
        return unlabelled


class RampedMethod(Method):
    """A method whose unlabelled loss has the weight λ(t) = weight · ramp(t / ramp_share), t the fraction of training."""

    def __init__(self, *, weight: Weight, ramp: Ramp, ramp_share: Share, **parts: Unpack[Parts]) -> None:
        super().__init__(**parts)
        self.weight = weight
        self.ramp = ramp
        self.ramp_share = ramp_share

    def lambda_(self, step: Step) -> float:
        return self.weight * ramp_up(self.ramp, step.progress, self.ramp_share)


def _spatial_dims(network: nn.Module) -> int:
    return next(len(module.kernel_size) for module in network.modules() if isinstance(module, _ConvNd))
