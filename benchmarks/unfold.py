"""The Hebbian rules written straight from the equations, with a matrix of patches: what the field does, and our reference.

Convolutions and transposed convolutions (kernel = stride, as in the UNet), SWTA; attaches like `Plasticity`.
"""

import torch
from torch import Tensor, nn

from hebbseg.hebbian.conv_geometry import is_plastic


def unfold(x: Tensor, layer: nn.Module) -> Tensor:
    """(B, C, *n) → (N, C·K): one row per window, in 2D and 3D."""
    dims = len(layer.kernel_size)
    if not layer.transposed:
        x = nn.functional.pad(x, [p for p in reversed(layer.padding) for _ in range(2)])
    for axis in range(dims):
        x = x.unfold(2 + axis, layer.kernel_size[axis], layer.stride[axis])
    # (B, C, *n, *k) → (B, *n, C, *k)
    order = [0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims)]
    return x.permute(order).flatten(1 + dims).flatten(0, dims)


class UnfoldPlasticity:
    """ΔW_j = E_n[softmax(y_n/t)_j (s_n − W_j)], with every s_n in memory."""

    def __init__(self, model: nn.Module, *, temperature: float, exclude: str = "head") -> None:
        self.temperature = temperature
        self.layers = {n: m for n, m in model.named_modules() if is_plastic(m) and n != exclude}
        self.handles = [m.register_forward_hook(self.observe) for m in self.layers.values()]
        self.updates: dict[nn.Module, Tensor] = {}

    def observe(self, layer: nn.Module, args: tuple[Tensor, ...], y: Tensor) -> None:
        with torch.no_grad():
            x, W = args[0], layer.weight
            if layer.bias is not None:
                y = y - layer.bias.view(-1, *[1] * (y.dim() - 2))
            g = (y / self.temperature).softmax(1)
            if layer.transposed:  # SWTA-TSA: units are the pairs (o, κ), signals the vectors of the small map
                signals = x.flatten(2).transpose(1, 2).flatten(0, 1)  # (N, I)
                gates = unfold(g, layer)  # (N, O·K)
                filters = W.flatten(1).T  # (O·K, I)
                update = (gates.T @ signals - gates.sum(0)[:, None] * filters) / len(signals)
                self.updates[layer] = update.T.reshape(W.shape)
            else:
                signals = unfold(x, layer)  # (N, I·K): the matrix of patches
                gates = g.flatten(2).transpose(1, 2).flatten(0, 1)  # (N, O)
                update = (gates.T @ signals - gates.sum(0)[:, None] * W.flatten(1)) / len(signals)
                self.updates[layer] = update.reshape(W.shape)

    def write_gradients(self) -> None:
        for layer, update in self.updates.items():
            layer.weight.grad = -update
        self.updates.clear()

    def detach(self) -> None:
        for handle in self.handles:
            handle.remove()
