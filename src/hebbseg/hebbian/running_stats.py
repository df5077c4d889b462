"""Running statistics of the signals and activations of a plastic layer.

They include the current forward pass: means over the first ten passes, then exponential moving averages with weight 1/10.
Under torch.distributed they are equal in all processes.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch import distributed as dist

from hebbseg.errors import HebbsegError

WINDOW = 10  # forward passes


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """Conditioning of signals and filters, which prevents the collapse of competition.

    Args:
        unit_norm: `Plasticity.normalize` keeps the filters at norm 1 (in the whitened space with ``whiten``).
        center: subtract the running mean μ of each channel from the signal, before zero padding.
        standardize: standardize the activations with their running mean and standard deviation before the competition.
        whiten: strength ε > 0 of partial whitening of the signal (smaller is stronger); implies ``center``. With C the
            running covariance of the centered signal and λ the mean of its eigenvalues, unit vectors V = W P⁻¹ compete in
            the whitened space, with P² = (1 + ε) (C/λ + ε)⁻¹, and

                ΔW = corr(g, s − μ) P² − M W.

            The activations W·(s − μ) = V·P(s − μ) are unchanged. See `hebbseg.hebbian.whitening`.
    """

    unit_norm: bool = False
    center: bool = False
    standardize: bool = False
    whiten: float | None = None

    def __post_init__(self) -> None:
        if self.whiten is not None and not (self.whiten > 0 and self.whiten < float("inf")):
            raise HebbsegError(
                f"whiten={self.whiten!r}: the strength must be a finite number above 0, or None for no whitening. Start with "
                "1; 0.1 is nearly full whitening, 10 nearly none."
            )

    @property
    def centered(self) -> bool:
        return self.center or self.whiten is not None


@dataclass
class Running:
    """Running average of a tensor."""

    value: Tensor | None = None
    seen: int = 0

    def include(self, new: Tensor) -> Tensor:
        if dist.is_available() and dist.is_initialized():
            new = new.clone()
            dist.all_reduce(new)
            new /= dist.get_world_size()
        self.seen += 1
        self.value = new if self.value is None else self.value.lerp(new, max(1 / self.seen, 1 / WINDOW))
        return self.value


@dataclass
class Moments:
    """Running mean and mean square of each channel of a map (B, C, *n)."""

    running: Running = field(default_factory=Running)

    def include(self, map_: Tensor) -> tuple[Tensor, Tensor]:
        """Return the running mean and standard deviation of each channel, (C,) each."""
        dims = (0, *range(2, map_.dim()))
        samples = map_.numel() // map_.shape[1]
        # Ten times faster than torch.var_mean over several axes.
        square = torch.linalg.vector_norm(map_, dim=dims) ** 2 / samples
        mean, square = self.running.include(torch.stack([map_.mean(dims), square]))
        return mean, (square - mean**2).clamp_min(0).sqrt()
