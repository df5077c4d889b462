"""The running covariance of a layer's signal, and the partial whitening that follows from it.

With C the covariance of the centered patch, λ the mean of its eigenvalues and ε the strength,

    P² = (1 + ε) (C/λ + ε)⁻¹

decorrelates a correlation (`decorrelate`), and P⁻² measures a filter as its twin in the whitened space (`norms`).
Patches of up to `LARGEST` numbers have their full covariance. Larger ones (deep layers of volumes) have a separable one,
channels ⊗ offsets, as a full one would cost more than the network itself.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from hebbseg.hebbian.conv_geometry import patch_covariance
from hebbseg.hebbian.running_stats import Running

EVERY = 16  # forwards between two looks at the covariance: it costs more than a forward and moves slowly
LARGEST = 2400  # numbers in a patch; 256 channels of 3 × 3 have 2304


class Whitening(Protocol):
    """What a layer needs of a whitening. Rows are (groups, units, size), a patch each."""

    forwards: int
    averages: dict[str, Running]

    def include(self, signal: Tensor) -> None:
        """Looks at the centered signal (B, C, *n) every `EVERY` forwards."""
        ...

    def decorrelate(self, rows: Tensor) -> Tensor:
        """rows · P²."""
        ...

    def norms(self, rows: Tensor) -> Tensor:
        """√(row · P⁻² · rowᵀ), (groups, units, 1)."""
        ...

    def forget_derived(self) -> None:
        """To be called when the averages were set from outside."""
        ...


def make_whitening(
    *, strength: float, channels: int, kernel: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> Whitening:
    """Full or separable, by the size of the patch; ``channels`` are those of one group."""
    kind = FullWhitening if channels * math.prod(kernel) <= LARGEST else SeparableWhitening
    return kind(strength=strength, kernel=kernel, dilation=dilation, groups=groups)


@dataclass
class FullWhitening:
    """With the covariance of whole patches, (groups, size, size)."""

    strength: float
    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    averages: dict[str, Running] = field(default_factory=lambda: {"covariance": Running()})
    forwards: int = 0
    _metric: Tensor | None = None
    _inverse: Tensor | None = None

    def include(self, signal: Tensor) -> None:
        if self.forwards % EVERY == 0:
            covariance = patch_covariance(signal, self.kernel, self.dilation, self.groups)
            self.averages["covariance"].include(covariance)
            self.forget_derived()
        self.forwards += 1

    def decorrelate(self, rows: Tensor) -> Tensor:
        if self._inverse is None:
            self._inverse = torch.cholesky_inverse(torch.linalg.cholesky(self.metric()))
        return rows @ self._inverse

    def norms(self, rows: Tensor) -> Tensor:
        metric = self.metric()
        rows = rows.to(metric.dtype)
        return ((rows @ metric) * rows).sum(-1, keepdim=True).clamp_min(0).sqrt()

    def metric(self) -> Tensor:
        """P⁻² = (C/λ + ε) / (1 + ε)."""
        if self._metric is None:
            covariance = self.averages["covariance"].value
            assert covariance is not None
            scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(torch.finfo(covariance.dtype).tiny)
            eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
            self._metric = (covariance / scale[:, None, None] + self.strength * eye) / (1 + self.strength)
        return self._metric

    def forget_derived(self) -> None:
        self._metric = self._inverse = None


@dataclass
class SeparableWhitening:
    """With C ≈ A ⊗ B: A the covariance of channels at one position, B that of offsets, the mean over channels.

    In the eigenvectors of A and B, P² is a division by α_i β_k / λ + ε, so whitening costs three small products.
    """

    strength: float
    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    averages: dict[str, Running] = field(default_factory=lambda: {"channels": Running(), "offsets": Running()})
    forwards: int = 0
    _eigen: tuple[Tensor, Tensor, Tensor] | None = None

    def include(self, signal: Tensor) -> None:
        if self.forwards % EVERY == 0:
            one = (1,) * len(self.kernel)
            self.averages["channels"].include(patch_covariance(signal, one, one, self.groups))
            each = patch_covariance(signal, self.kernel, self.dilation, signal.shape[1])  # (C, K, K)
            self.averages["offsets"].include(each.unflatten(0, (self.groups, -1)).mean(1))
            self.forget_derived()
        self.forwards += 1

    def decorrelate(self, rows: Tensor) -> Tensor:
        return self._in_eigenvectors(rows, lambda part, metric: part / metric)

    def norms(self, rows: Tensor) -> Tensor:
        weighted = self._in_eigenvectors(rows, lambda part, metric: part * metric)
        return (weighted * rows.to(weighted.dtype)).sum(-1, keepdim=True).clamp_min(0).sqrt()

    def forget_derived(self) -> None:
        self._eigen = None

    def _in_eigenvectors(self, rows: Tensor, act: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Rows (G, U, c·K) → eigenvectors → ``act`` with P⁻²'s eigenvalues (G, 1, c, K) → back."""
        u, v, metric = self._decomposed()
        part = rows.to(metric.dtype).unflatten(-1, (u.shape[-1], v.shape[-1]))  # (G, U, c, K)
        part = act(u.mT[:, None] @ part @ v[:, None], metric[:, None])
        return (u[:, None] @ part @ v.mT[:, None]).flatten(-2)

    def _decomposed(self) -> tuple[Tensor, Tensor, Tensor]:
        if self._eigen is None:
            channels, offsets = self.averages["channels"].value, self.averages["offsets"].value
            assert channels is not None and offsets is not None
            (a, u), (b, v) = torch.linalg.eigh(channels), torch.linalg.eigh(offsets)
            spectrum = a.clamp_min(0)[:, :, None] * b.clamp_min(0)[:, None, :]  # (G, c, K)
            scale = spectrum.mean((1, 2), keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)
            self._eigen = u, v, (spectrum / scale + self.strength) / (1 + self.strength)
        return self._eigen
