"""Hebbian learning rules.

Every rule has the form

    ΔW_j = E_n[ g_nj · (s_n − ŝ_nj) ],

where s_n is the signal of sample n, g the *gate* (how much unit j learns from it) and ŝ the *reconstruction* of the
signal. Both terms are linear in sums over the samples,

    ΔW = corr(g, s) − M W,        M = diag(E[g])          for ŝ_j = W_j,
                                  M = tril(E[g yᵀ])       for ŝ_j = Σ_{l≤j} y_l W_l,

so a rule only specifies its gate and its reconstruction.
"""

import math
from dataclasses import dataclass, is_dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from hebbseg.errors import HebbsegError, look_up
from hebbseg.hebbian.fast_softmax import softmax_across_units


class Rule(Protocol):
    """Interface of a learning rule.

    ``reconstruction`` is ``"own"`` (ŝ_j = W_j) or ``"preceding"`` (ŝ_j = Σ_{l≤j} y_l W_l, which requires the gate y).
    ``competitive``: whether the units compete for each sample, a prerequisite of `standardize`.
    """

    reconstruction: ClassVar[Literal["own", "preceding"]]
    competitive: ClassVar[bool]

    def gate(self, y: Tensor, dim: int) -> Tensor:
        """Return the gate g, with the shape of the activations ``y``; ``dim`` is the axis of the units."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hebb:
    """Hebbian rule with weight decay (Eq. 1 of the paper), a baseline without competition.

        ΔW_j = E_n[ y_nj (s_n − W_j) ]

    where y_nj is the activation of unit j for sample n. Units with equal initial weights stay equal.
    """

    reconstruction: ClassVar[Literal["own", "preceding"]] = "own"
    competitive: ClassVar[bool] = False

    def gate(self, y: Tensor, dim: int) -> Tensor:
        return y


@dataclass(frozen=True, kw_only=True)
class SoftWTA:
    """Soft winner-takes-all (Eq. 2): units compete for each sample, and the winner moves toward it.

        ΔW_j = E_n[ softmax(y_n / t)_j (s_n − W_j) ]

    where y_n are the activations of all units for sample n.

    Args:
        temperature: t > 0. Small: a single winner; large: all units learn the mean. The paper's tables list k = 1/t.

    >>> SoftWTA(temperature=0.05)
    SoftWTA(temperature=0.05)
    """

    temperature: float = 0.05
    reconstruction: ClassVar[Literal["own", "preceding"]] = "own"
    competitive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise HebbsegError(
                f"SoftWTA(temperature={self.temperature!r}): temperature must be a finite number above 0. Start with 0.05; "
                "the paper's k is 1/temperature."
            )

    def gate(self, y: Tensor, dim: int) -> Tensor:
        return softmax_across_units(y, dim, 1 / self.temperature)


@dataclass(frozen=True, kw_only=True)
class HebbianPCA:
    """Hebbian principal component analysis, Sanger's rule (Eq. 3).

        ΔW_j = E_n[ y_nj (s_n − Σ_{l≤j} y_nl W_l) ]

    where y_nj is the activation of unit j for sample n. Unit j converges to the j-th principal component.
    """

    reconstruction: ClassVar[Literal["own", "preceding"]] = "preceding"
    competitive: ClassVar[bool] = False

    def gate(self, y: Tensor, dim: int) -> Tensor:
        return y


RULES: dict[str, type[Rule]] = {"hebb": Hebb, "swta": SoftWTA, "hpca": HebbianPCA}


def rule_class(name: str) -> type[Rule]:
    """Return the built-in rule or the entry point in ``hebbseg.rules`` with this name."""
    found = look_up(name, RULES, "rule", "hebbseg.rules")
    if not (is_dataclass(found) and all(hasattr(found, part) for part in ("reconstruction", "competitive", "gate"))):
        raise HebbsegError(f"Rule {name!r}: {found!r} is not a dataclass with reconstruction, competitive and gate(y, dim).")
    return found
