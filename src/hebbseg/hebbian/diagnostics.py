"""Diagnostics of Hebbian learning: weight change, use of units, similarity of filters."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from hebbseg.hebbian.plastic_layer import PlasticLayer
from hebbseg.hebbian.plasticity import Plasticity


@dataclass(frozen=True, kw_only=True)
class LayerDiagnostics:
    """Diagnostics of one layer; for grouped layers, means over the groups.

    ``moved``: ‖W − W₀‖ / ‖W₀‖ since plasticity was attached.
    ``effective_units``: exp of the entropy of the units' shares in learning, from 1 (one unit wins all samples) to
    ``units``; None before the first forward pass.
    ``cosine``: mean |cosine| between two different filters (0: orthogonal, 1: identical up to sign).
    ``rank``: effective rank of the filters, exp of the entropy of their normalized singular values.
    ``norm``: mean norm of the filters.
    """

    units: int
    moved: float
    effective_units: float | None
    cosine: float
    rank: float
    norm: float


def effective_number(shares: Tensor) -> Tensor:
    """Return exp of the entropy of non-negative shares along the last axis."""
    p = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
    return torch.special.entr(p).sum(-1).exp()


def mean_abs_cosine(filters: Tensor) -> Tensor:
    """Return the mean |cosine| over pairs of different filters, (…, units, size) → (…); 0 for a single filter."""
    units = filters.shape[-2]
    directions = torch.nn.functional.normalize(filters, dim=-1)
    cosines = (directions @ directions.mT).abs()
    others = cosines.sum((-2, -1)) - cosines.diagonal(dim1=-2, dim2=-1).sum(-1)
    return others / max(units * (units - 1), 1)


def effective_rank(filters: Tensor) -> Tensor:
    """Return exp of the entropy of the normalized singular values, (…, units, size) → (…)."""
    filters = filters.double()  # near-identical filters have an ill-conditioned Gram matrix
    gram = filters @ filters.mT if filters.shape[-2] <= filters.shape[-1] else filters.mT @ filters
    return effective_number(torch.linalg.eigvalsh(gram).clamp_min(0).sqrt())


def diagnose(plasticity: Plasticity) -> dict[str, LayerDiagnostics]:
    """Return the diagnostics of every plastic layer by name."""
    return {name: _diagnose(layer) for name, layer in plasticity.plastic_layers.items()}


@torch.no_grad()
def _diagnose(layer: PlasticLayer) -> LayerDiagnostics:
    filters = layer.rows(layer.weight).float()  # (G, units, size)
    before = layer.initial.float()
    return LayerDiagnostics(
        units=filters.shape[1],
        moved=float((layer.weight.float() - before).norm() / before.norm()),
        effective_units=None if layer.usage is None else float(effective_number(layer.usage.float()).mean()),
        cosine=float(mean_abs_cosine(filters).mean()),
        rank=float(effective_rank(filters).mean()),
        norm=float(filters.norm(dim=-1).mean()),
    )


def as_dict(diagnostics: dict[str, LayerDiagnostics]) -> dict[str, dict[str, float | int | None]]:
    """Return the diagnostics as plain numbers."""
    return {name: asdict(layer) for name, layer in diagnostics.items()}
