"""What a plastic layer knows of its inputs and activations from earlier forwards: means, spreads, covariance.

All are running estimates that include the current forward: plain averages over the first ten forwards, then moving
averages with weight 1/10. Under torch.distributed every process holds the same ones.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch import distributed as dist

from hebbseg.errors import HebbsegError

SLOWEST = 10  # forwards a running estimate looks back on


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """What is done to signals and filters so that competition does not collapse; all off is the equation to the letter.

    Args:
        unit_norm: `Plasticity.normalize` keeps filters at norm 1 (in the whitened space where there is one).
        center: the signal comes from the map less the running mean μ of each channel, as if the layer had been given
            that map: zeros that pad it are added afterwards, so that the border of an image is nothing special.
        standardize: a competitive rule sees activations with their running mean taken away, divided by their spread.
        whiten: strength ε > 0 of a partial whitening of the signal, small is strong; implies ``center``. With C the
            running covariance of the centered signal and λ the mean of its eigenvalues, competition is between unit
            vectors V of the whitened space, V = W P⁻¹ with P² = (1 + ε) (C/λ + ε)⁻¹, and

                ΔW = corr(g, s − μ) P² − M W.

            Activations W·(s − μ) = V·P(s − μ) are the layer's own: nothing is transformed but the small correlation.
            See `hebbseg.hebbian.whitening`.
    """

    unit_norm: bool = False
    center: bool = False
    standardize: bool = False
    whiten: float | None = None

    def __post_init__(self) -> None:
        if self.whiten is not None and not (self.whiten > 0 and self.whiten < float("inf")):
            raise HebbsegError(
                f"whiten={self.whiten!r}: the strength must be a number above 0 (1 is a good start, 0.1 is nearly full "
                "whitening, 10 is nearly none), or None for no whitening."
            )

    @property
    def centered(self) -> bool:
        return self.center or self.whiten is not None


@dataclass
class Running:
    """A running average of tensors of one shape."""

    value: Tensor | None = None
    seen: int = 0

    def include(self, new: Tensor) -> Tensor:
        if dist.is_available() and dist.is_initialized():
            new = new.clone()
            dist.all_reduce(new)
            new /= dist.get_world_size()
        self.seen += 1
        self.value = new if self.value is None else self.value.lerp(new, max(1 / self.seen, 1 / SLOWEST))
        return self.value


@dataclass
class Moments:
    """Running mean and mean square of each channel of a map (B, C, *n)."""

    running: Running = field(default_factory=Running)

    def include(self, map_: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the standard deviation by channel, (C,) each."""
        dims = (0, *range(2, map_.dim()))
        samples = map_.numel() // map_.shape[1]
        # A sum and a norm are each one fast pass; torch.var_mean over several axes takes ten times as long.
        square = torch.linalg.vector_norm(map_, dim=dims) ** 2 / samples
        mean, square = self.running.include(torch.stack([map_.mean(dims), square]))
        return mean, (square - mean**2).clamp_min(0).sqrt()
