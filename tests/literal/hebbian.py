"""The equations of the method, one sample, one unit, one weight at a time, in float64. Slow on purpose.

Nothing here is shared with the package: patches are cut out of padded arrays by index.
Letters: n a sample, s its signal, y activations, g gate, W weights, κ an offset of the kernel.
"""

from itertools import product

import numpy as np
from torch import nn


def _softmax(y: np.ndarray, t: float) -> np.ndarray:
    e = np.exp((y - y.max()) / t)
    return e / e.sum()


def gate(rule: str, y: np.ndarray, t: float) -> np.ndarray:
    return _softmax(y, t) if rule == "swta" else y


def rule_on_samples(rule: str, S: np.ndarray, Y: np.ndarray, W: np.ndarray, t: float = 1.0) -> np.ndarray:
    """ΔW_j = E_n[g_nj (s_n − ŝ_nj)] for signals S (N, D), activations Y (N, J) and filters W (J, D)."""
    dW = np.zeros_like(W)
    for s, y in zip(S, Y, strict=True):
        g = gate(rule, y, t)
        for j in range(len(W)):
            s_hat = sum(y[l] * W[l] for l in range(j + 1)) if rule == "hpca" else W[j]
            dW[j] += g[j] * (s - s_hat)
    return dW / len(S)


def _pad(x: np.ndarray, layer: nn.Module) -> np.ndarray:
    """A convolution's input (B, C, *n) padded as the layer pads it, by numpy."""
    kernel, dilation = layer.kernel_size, layer.dilation
    if layer.padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        sides = [(p // 2, p - p // 2) for p in total]
    elif layer.padding == "valid":
        sides = [(0, 0) for _ in kernel]
    else:
        sides = [(p, p) for p in layer.padding]
    mode = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[layer.padding_mode]
    return np.pad(x, [(0, 0), (0, 0), *sides], mode=mode)


def _patch(padded: np.ndarray, b: int, n: tuple[int, ...], layer: nn.Module, size: tuple[int, ...]) -> np.ndarray:
    """u_n[c, κ]: (C, *kernel), the window at position n of image b."""
    u = np.zeros((padded.shape[1], *layer.kernel_size))
    for k in product(*(range(m) for m in layer.kernel_size)):
        position = tuple(i * s + j * d for i, s, j, d in zip(n, layer.stride, k, layer.dilation))
        u[(slice(None), *k)] = padded[(b, slice(None), *position)]
    return u


def convolution(rule: str, layer: nn.Module, x: np.ndarray, t: float = 1.0) -> np.ndarray:
    """ΔW of a convolution; each group is a population of its own."""
    W = layer.weight.detach().numpy()
    G, size = layer.groups, layer.kernel_size
    padded = _pad(x, layer)
    out = [(m - d * (k - 1) - 1) // s + 1 for m, d, k, s in zip(padded.shape[2:], layer.dilation, size, layer.stride)]
    units, channels = W.shape[0] // G, W.shape[1]
    dW = np.zeros_like(W)
    for group in range(G):
        Wg = W[group * units : (group + 1) * units].reshape(units, -1)
        S = []
        for b in range(len(x)):
            for n in product(*(range(m) for m in out)):
                u = _patch(padded, b, n, layer, size)
                S.append(u[group * channels : (group + 1) * channels].ravel())
        S = np.array(S)
        Y = np.array([[w @ s for w in Wg] for s in S])
        dW[group * units : (group + 1) * units] = rule_on_samples(rule, S, Y, Wg, t).reshape(units, *W.shape[1:])
    return dW


def transposed_forward(layer: nn.Module, x: np.ndarray, large: tuple[int, ...]) -> np.ndarray:
    """The transposed convolution without its bias, by scattering each small vector into the padded large map."""
    W = layer.weight.detach().numpy()
    G = layer.groups
    in_group, out_group = W.shape[0] // G, W.shape[1]
    y = np.zeros((len(x), G * out_group, *(m + 2 * p + 64 for m, p in zip(large, layer.padding))))
    for b in range(len(x)):
        for n in product(*(range(m) for m in x.shape[2:])):
            for k in product(*(range(m) for m in layer.kernel_size)):
                position = tuple(i * s + j * d for i, s, j, d in zip(n, layer.stride, k, layer.dilation))
                for i in range(W.shape[0]):
                    group = i // in_group
                    for o in range(out_group):
                        y[(b, group * out_group + o, *position)] += x[(b, i, *n)] * W[(i, o, *k)]
    crop = tuple(slice(p, p + m) for m, p in zip(large, layer.padding))
    return y[(slice(None), slice(None), *crop)]


def transposed(rule: str, layer: nn.Module, x: np.ndarray, large: tuple[int, ...], variant: str, t: float = 1.0) -> np.ndarray:
    """ΔW of a transposed convolution in the variants "s", "tsa" and "tsa-literal", from section 3 of the method."""
    W = layer.weight.detach().numpy()
    G = layer.groups
    in_group, out_group = W.shape[0] // G, W.shape[1]
    y = transposed_forward(layer, x, large)
    sides = [(p, p + 64) for p in layer.padding]  # room at the far side: windows may reach beyond the map
    small = list(product(range(len(x)), *(range(m) for m in x.shape[2:])))
    offsets = list(product(*(range(m) for m in layer.kernel_size)))
    dW = np.zeros_like(W)
    for group in range(G):
        inside = slice(group * in_group, (group + 1) * in_group)
        outside = slice(group * out_group, (group + 1) * out_group)
        Wg, xg, yg = W[inside], x[:, inside], y[:, outside]
        padded_y = np.pad(yg, [(0, 0), (0, 0), *sides])
        if variant == "s":
            S = np.array([_patch(padded_y, b, n, layer, layer.kernel_size).ravel() for b, *n in small])
            X = np.array([xg[(b, slice(None), *n)] for b, *n in small])
            dW[inside] = rule_on_samples(rule, S, X, Wg.reshape(in_group, -1), t).reshape(Wg.shape)
            continue
        gates = np.zeros_like(yg)
        for b, *p in product(range(len(x)), *(range(m) for m in large)):
            gates[(b, slice(None), *p)] = gate(rule, yg[(b, slice(None), *p)], t)
        padded_gates = np.pad(gates, [(0, 0), (0, 0), *sides])
        total = np.zeros_like(Wg)
        for b, *n in small:
            x_n = xg[(b, slice(None), *n)]
            u = _patch(padded_y, b, n, layer, layer.kernel_size)
            g = _patch(padded_gates, b, n, layer, layer.kernel_size)
            for o in range(out_group):
                for k in offsets:
                    if rule == "hpca":
                        s_hat = sum(u[(l, *q)] * Wg[(slice(None), l, *q)] for l in range(o + 1) for q in offsets)
                    elif variant == "tsa-literal":
                        s_hat = sum(Wg[(slice(None), o, *q)] for q in offsets)
                    else:
                        s_hat = Wg[(slice(None), o, *k)]
                    total[(slice(None), o, *k)] += g[(o, *k)] * (x_n - s_hat)
        dW[inside] = total / len(small)
    return dW


def patch_covariance(x: np.ndarray, kernel: tuple[int, ...], dilation: tuple[int, ...], groups: int) -> np.ndarray:
    """C[(c, κ), (c', κ')] = (1/N) Σ_p x[c, p] x[c', p + (κ' − κ)·dilation], zero outside the map; (G, D, D)."""
    B, channels = x.shape[:2]
    per_group, offsets = channels // groups, list(product(*(range(k) for k in kernel)))
    positions = list(product(*(range(m) for m in x.shape[2:])))
    size = per_group * len(offsets)
    C = np.zeros((groups, size, size))
    for group in range(groups):
        for (c, (a, k)), (e, (f, q)) in product(product(range(per_group), enumerate(offsets)), repeat=2):
            value = 0.0
            for b, p in product(range(B), positions):
                other = tuple(i + (v - u) * d for i, u, v, d in zip(p, k, q, dilation))
                if all(0 <= i < m for i, m in zip(other, x.shape[2:])):
                    value += x[(b, group * per_group + c, *p)] * x[(b, group * per_group + e, *other)]
            C[group, c * len(offsets) + a, e * len(offsets) + f] = value / (B * len(positions))
    return C
