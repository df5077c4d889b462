"""What the training loop asks of a method, and all it knows of one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NotRequired, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hebbseg.data.augment.views import Augment
from hebbseg.errors import HebbsegError
from hebbseg.methods.losses import segmentation_loss


class Labelled(NamedTuple):
    """Images (B, C, *S) and their masks (B, *S) of class indices."""

    images: Tensor
    masks: Tensor


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where the training stands: the update's number, how much of the way is done (0 … 1), and this update's randomness."""

    number: int
    progress: float
    generator: torch.Generator


class Parts(TypedDict):
    """What every method is made of; see `Method`. The other keywords of a method's constructor are its options."""

    network: nn.Module
    another: Callable[[], nn.Module]
    loss: str
    augment: NotRequired[Augment | None]


class Method(nn.Module):
    """A way to learn from a few masks and, perhaps, from images without.

    A subclass holds all networks it trains as submodules, so that its ``state_dict`` is all that a checkpoint needs.
    ``network`` is the one that is kept in the end. Networks that follow (teachers) have ``requires_grad`` off.
    Its own options are typed keywords of its constructor, with the values of the original paper as defaults and a line
    each under "Options" in its docstring: the command line and the docs take them from there. ``title`` is its name in
    reports, ``networks`` how many networks start from weights of stage 1: the given one, and one for each call of
    ``another``.

    Args:
        network: initialised already.
        another: makes a further network, initialised the same way from another seed; for methods with several.
        loss: the supervised criterion, ``"dice+ce"`` or ``"dice"``.
        augment: gives strong views; default `Augment` with its own strengths.
    """

    title: ClassVar[str] = ""
    networks: ClassVar[int] = 1
    uses_unlabelled: ClassVar[bool] = True
    needs_unet: ClassVar[bool] = False
    """Whether it reads the UNet's encoder and decoder, so that no other network will do (unless feature_view=False)."""

    def __init__(
        self, *, network: nn.Module, another: Callable[[], nn.Module], loss: str, augment: Augment | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self.loss_name = loss
        self.criterion = segmentation_loss(loss)
        self.augment = augment or Augment(spatial_dims=_spatial_dims(network))

    def loss(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        """The terms of this update's loss, each already weighted; the loop minimises their sum."""
        raise NotImplementedError

    def forward(self, labelled: Labelled, unlabelled: Tensor | None, step: Step) -> dict[str, Tensor]:
        # Distributed wrappers only see forward.
        return self.loss(labelled, unlabelled, step)

    def after_step(self, step: Step) -> None:
        """Called when the optimiser has stepped: a teacher follows its student here."""

    def predict(self, images: Tensor) -> Tensor:
        """Logits (B, K, *S) of the network that is kept."""
        logits = self.network(images)
        assert isinstance(logits, Tensor)
        return logits

    def needed(self, unlabelled: Tensor | None) -> Tensor:
        """The unlabelled images, or an error that says why there are none."""
        if unlabelled is None or not len(unlabelled):
            raise HebbsegError(
                f"{type(self).__name__} learns from unlabelled images, and the batch has none. Set unlabelled_batch to 1 or "
                "more, or use method supervised."
            )
        return unlabelled


def _spatial_dims(network: nn.Module) -> int:
    """As many as its first convolution has."""
    return next(len(module.kernel_size) for module in network.modules() if isinstance(module, _ConvNd))
