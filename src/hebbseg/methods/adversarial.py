"""Virtual adversarial perturbation of features."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.methods.ops import softmax


def virtual_adversarial(
    maps: Sequence[Tensor],
    decode: Callable[[Sequence[Tensor]], Tensor],
    generator: torch.Generator,
    *,
    ξ: float = 0.01,
    ε: float = 2.0,
) -> Tensor:
    """Return a perturbation r of the deepest feature map to which the prediction is most sensitive.

        d = u / ‖u‖,    u ~ U(−½, ½)
        g = ∇_d Σ_v KL( p(z) ‖ p(z + ξ d) )
        r = ε g / ‖g‖

    where z is the deepest map, p the softmax of ``decode``, v the positions and ‖·‖ the norm per image. This is one power
    iteration. The other maps are not perturbed. Where the gradient is 0, so is r. The result has no gradient and is computed
    in at least single precision. The original's ξ = 10⁻⁶ is below the rounding error of z in single precision, so that g is
    mostly rounding error; ξ = 0.01 gives the direction that 10⁻⁶ gives in double precision.

    Shapes: feature maps (B, C, *S), deepest last → (B, C, *S) of the deepest.

    Args:
        maps: the encoder's feature maps.
        decode: returns logits (B, K, *S) for such maps.
        generator: draws u.
        ξ: length of the step at which the gradient is computed.
        ε: norm of the perturbation, per image.

    Miyato et al., Virtual adversarial training, TPAMI 2019, section 3.3; for features, Ouali et al., CVPR 2020.
    """
    with torch.enable_grad(), torch.autocast(maps[-1].device.type, enabled=False):
        *skips, z = (x.detach() if x.dtype == torch.float64 else x.detach().float() for x in maps)
        d = _unit(torch.rand(z.shape, generator=generator).sub(0.5).to(z)).requires_grad_()
        with torch.no_grad():
            p = softmax(decode([*skips, z]))
        divergence = F.kl_div(F.log_softmax(decode([*skips, z + ξ * d]), dim=1), p, reduction="sum")
        (g,) = torch.autograd.grad(divergence, d)
    return ε * _unit(g)


def _unit(x: Tensor) -> Tensor:
    """Divide each image by its norm; zeros remain. Shapes: (B, C, *S) → (B, C, *S)."""
    norm = x.flatten(1).norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    return x / norm.reshape(-1, *(1,) * (x.ndim - 1))  # (B,) → (B, 1, …)
