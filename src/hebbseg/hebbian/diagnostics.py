"""Whether Hebbian learning does anything, and whether it collapses: how far weights moved, who wins, how alike filters are."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from hebbseg.hebbian.plastic_layer import PlasticLayer
from hebbseg.hebbian.plasticity import Plasticity


@dataclass(frozen=True, kw_only=True)
class LayerDiagnostics:
    """How one layer fares.

    ``moved``: ‖W − W₀‖ / ‖W₀‖ since plasticity was attached (0 is untouched).
    ``effective_units``: exp of the entropy of the units' shares in learning; ``units`` if all take part alike, 1 if one
    wins all. None before the first forward. Of grouped layers, the mean over groups.
    ``cosine``: mean |cosine| between two different filters (0 orthogonal, 1 all the same).
    ``rank``: effective rank of the filter bank, exp of the entropy of its normalized singular values.
    ``norm``: mean norm of a filter.
    """

    units: int
    moved: float
    effective_units: float | None
    cosine: float
    rank: float
    norm: float


def effective_number(shares: Tensor) -> Tensor:
    """exp of the entropy of non-negative shares along the last axis: how many equal ones they are worth."""
    p = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
    return torch.special.entr(p).sum(-1).exp()


def mean_abs_cosine(filters: Tensor) -> Tensor:
    """Mean |cosine| over pairs of different filters, (…, units, size) → (…); 0 for a single filter."""
    units = filters.shape[-2]
    directions = torch.nn.functional.normalize(filters, dim=-1)
    cosines = (directions @ directions.mT).abs()
    others = cosines.sum((-2, -1)) - cosines.diagonal(dim1=-2, dim2=-1).sum(-1)
    return others / max(units * (units - 1), 1)


def effective_rank(filters: Tensor) -> Tensor:
    """exp of the entropy of the normalized singular values, (…, units, size) → (…).

    The singular values come from the smaller Gram matrix: much less work than a decomposition of wide filters. In double
    precision, as filters that have become alike leave a matrix that is hard to decompose.
    """
    filters = filters.double()
    gram = filters @ filters.mT if filters.shape[-2] <= filters.shape[-1] else filters.mT @ filters
    return effective_number(torch.linalg.eigvalsh(gram).clamp_min(0).sqrt())


def diagnose(plasticity: Plasticity) -> dict[str, LayerDiagnostics]:
    """Every plastic layer's diagnostics, by name."""
    return {name: _diagnose(plastic) for name, plastic in plasticity.plastic_layers.items()}


@torch.no_grad()
def _diagnose(plastic: PlasticLayer) -> LayerDiagnostics:
    filters = plastic.rows(plastic.weight).float()  # (G, units, size)
    before = plastic.initial.float()
    return LayerDiagnostics(
        units=filters.shape[1],
        moved=float((plastic.weight.float() - before).norm() / before.norm()),
        effective_units=None if plastic.usage is None else float(effective_number(plastic.usage.float()).mean()),
        cosine=float(mean_abs_cosine(filters).mean()),
        rank=float(effective_rank(filters).mean()),
        norm=float(filters.norm(dim=-1).mean()),
    )


def as_dict(diagnostics: dict[str, LayerDiagnostics]) -> dict[str, dict[str, float | int | None]]:
    """Plain numbers, for JSON and for a history."""
    return {name: asdict(layer) for name, layer in diagnostics.items()}
