"""Partial whitening with the running covariance of a layer's signal.

    P² = (1 + ε) (C/λ + ε)⁻¹

where C is the covariance of the centered patch, λ the mean of its eigenvalues and ε the strength. P² multiplies the
correlation (`decorrelate`), P⁻² is the metric of filter norms (`norms`). Patches with more than `LARGEST` elements (deep
layers of volumes) use a separable covariance, channels ⊗ offsets, to limit the cost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from hebbseg.hebbian.conv_geometry import patch_covariance
from hebbseg.hebbian.running_stats import Running

EVERY = 16  # forward passes between updates of the covariance
LARGEST = 2400  # elements of a patch; 256 channels of 3 × 3 have 2304


class Whitening(Protocol):
    """Interface of a whitening. Rows have the shape (groups, units, size)."""

    forwards: int
    averages: dict[str, Running]

    def include(self, signal: Tensor) -> None:
        """Update the covariance with the centered signal (B, C, *n) every `EVERY` forward passes."""
        ...

    def decorrelate(self, rows: Tensor) -> Tensor:
        """Return rows · P²."""
        ...

    def norms(self, rows: Tensor) -> Tensor:
        """Return √(row · P⁻² · rowᵀ), (groups, units, 1)."""
        ...

    def forget_derived(self) -> None:
        """Discard cached results after a change of the averages."""
        ...


def make_whitening(
    *, strength: float, channels: int, kernel: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> Whitening:
    """Return full or separable whitening, by patch size; ``channels`` counts those of one group."""
    kind = FullWhitening if channels * math.prod(kernel) <= LARGEST else SeparableWhitening
    return kind(strength=strength, kernel=kernel, dilation=dilation, groups=groups)


@dataclass
class FullWhitening:
    """Whitening with the full patch covariance (groups, size, size)."""

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
            self.averages["covariance"].include(patch_covariance(signal, self.kernel, self.dilation, self.groups))
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
        """Return P⁻² = (C/λ + ε) / (1 + ε)."""
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
    """Whitening with C ≈ A ⊗ B, A the covariance of channels, B that of offsets averaged over channels.

    In the eigenbases of A and B, with eigenvalues α_i and β_k, P² is (1 + ε) / (α_i β_k / λ + ε).
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
        return self._in_eigenbasis(rows, lambda part, metric: part / metric)

    def norms(self, rows: Tensor) -> Tensor:
        weighted = self._in_eigenbasis(rows, lambda part, metric: part * metric)
        return (weighted * rows.to(weighted.dtype)).sum(-1, keepdim=True).clamp_min(0).sqrt()

    def forget_derived(self) -> None:
        self._eigen = None

    def _in_eigenbasis(self, rows: Tensor, act: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Apply ``act`` to rows (G, U, c·K) in the eigenbasis, with the eigenvalues of P⁻² (G, 1, c, K)."""
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
