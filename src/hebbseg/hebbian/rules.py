r"""The Hebbian rules: which units learn, and what each believes it saw.

Every rule is one equation,

    ΔW_j = E_n[ g_nj · (s_n − ŝ_nj) ],

where s_n is the signal of sample n, g the *gate* (how much unit j learns from it) and ŝ the *reconstruction* (what unit
j already accounts for). Both terms are linear in a few sums over the samples,

    ΔW = corr(g, s) − M W,        M = diag(E[g])          if a unit accounts for its own weights,
                                  M = tril(E[g yᵀ])       if it accounts for its own and all units before it,

so a rule needs only to name its gate and its reconstruction; `hebbseg.hebbian.plasticity` gathers the sums.
"""

import math
from dataclasses import dataclass, is_dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from hebbseg.errors import HebbsegError, look_up
from hebbseg.hebbian.fast_softmax import softmax_across_units


class Rule(Protocol):
    """What `Plasticity` needs to know of a rule.

    ``reconstruction`` is ``"own"`` (ŝ_j = W_j) or ``"preceding"`` (ŝ_j = Σ_{l≤j} y_l W_l, which needs the gate to be y).
    ``competitive`` tells whether the units' activations are weighed against each other, so that putting them on one
    scale first (`standardize`) means something.
    """

    reconstruction: ClassVar[Literal["own", "preceding"]]
    competitive: ClassVar[bool]

    def gate(self, y: Tensor, dim: int) -> Tensor:
        """The gate g for activations ``y`` whose units lie along ``dim``; the same shape as ``y``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hebb:
    """The plain rule with forgetting (Eq. 1 of the paper).

        ΔW_j = E_n[ y_nj (s_n − W_j) ]

    It has no competition: units that start alike stay alike. It is here as the reference the others improve on.
    """

    reconstruction: ClassVar[Literal["own", "preceding"]] = "own"
    competitive: ClassVar[bool] = False

    def gate(self, y: Tensor, dim: int) -> Tensor:
        return y


@dataclass(frozen=True, kw_only=True)
class SoftWTA:
    """Soft winner takes all (Eq. 2): units compete for each sample, and the winner moves towards it.

        ΔW_j = E_n[ softmax(y_n / t)_j (s_n − W_j) ]

    Args:
        temperature: t > 0. Small: one winner; large: every unit learns the same mean. The paper's tables list k = 1/t.

    >>> SoftWTA(temperature=0.05)
    SoftWTA(temperature=0.05)
    """

    temperature: float = 0.05
    reconstruction: ClassVar[Literal["own", "preceding"]] = "own"
    competitive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise HebbsegError(
                f"SoftWTA(temperature={self.temperature!r}): the temperature divides the activations in a softmax, so it "
                "must be a finite number above 0 (0.05 is a good start; the paper's K is 1/temperature)."
            )

    def gate(self, y: Tensor, dim: int) -> Tensor:
        return softmax_across_units(y, dim, 1 / self.temperature)


@dataclass(frozen=True, kw_only=True)
class HebbianPCA:
    """Hebbian principal component analysis, Sanger's rule (Eq. 3).

        ΔW_j = E_n[ y_nj (s_n − Σ_{l≤j} y_nl W_l) ]

    Each unit learns what the units before it leave unexplained: the principal components, in order.
    """

    reconstruction: ClassVar[Literal["own", "preceding"]] = "preceding"
    competitive: ClassVar[bool] = False

    def gate(self, y: Tensor, dim: int) -> Tensor:
        return y


RULES: dict[str, type[Rule]] = {"hebb": Hebb, "swta": SoftWTA, "hpca": HebbianPCA}


def rule_class(name: str) -> type[Rule]:
    """The class behind a name, built in or from an entry point in ``hebbseg.rules``."""
    found = look_up(name, RULES, "rule", "hebbseg.rules")
    if not (is_dataclass(found) and all(hasattr(found, part) for part in ("reconstruction", "competitive", "gate"))):
        raise HebbsegError(f"Rule {name!r}: {found!r} is not a dataclass with reconstruction, competitive and gate(y, dim).")
    return found
