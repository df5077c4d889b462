"""One plastic layer: sums over its samples and the Hebbian update.

The three cases differ only in which map contains the units (see `hebbseg.hebbian.conv_geometry`):

| case                         | signal s_n          | activations | unit               |
|------------------------------|---------------------|-------------|--------------------|
| convolution, linear          | patch of large map  | small map   | small-map channel  |
| transposed convolution, S    | patch of large map  | small map   | small-map channel  |
| transposed convolution, TSA  | small-map vector    | large map   | (large channel, κ) |
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch import distributed as dist

from hebbseg.hebbian.conv_geometry import Geometry
from hebbseg.hebbian.rules import Rule
from hebbseg.hebbian.running_stats import Conditioning, Moments, Running
from hebbseg.hebbian.whitening import Whitening, make_whitening

Transpose = Literal["tsa", "s", "tsa-literal", "off"]


@dataclass
class Sums:
    """Sums over samples since the last reset: corr(g, s) in the layout of the weight, the terms of M and the sample count."""

    correlation: Tensor
    memory: Tensor
    count: int

    def add(self, other: "Sums") -> None:
        self.correlation += other.correlation
        self.memory += other.memory
        self.count += other.count

    def over_processes(self) -> "Sums":
        """Return the sums over all processes of the distributed group, if there is one."""
        if not (dist.is_available() and dist.is_initialized()):
            return self
        correlation, memory = self.correlation.clone(), self.memory.clone()
        count = torch.tensor(self.count, device=correlation.device)
        for part in (correlation, memory, count):
            dist.all_reduce(part)
        return Sums(correlation, memory, int(count))

    def total(self) -> Tensor:
        """Return a number that is finite only if all sums are finite."""
        return self.correlation.sum() + self.memory.sum()


@dataclass
class PlasticLayer:
    """A Hebbian rule applied to one layer, without changes to the layer itself."""

    name: str
    layer: nn.Module
    rule: Rule
    conditioning: Conditioning
    transpose: Transpose
    sums: Sums | None = None
    usage: Tensor | None = None
    """The summed gate of each unit since `Plasticity.forget_usage`; for HPCA, the summed squared activation."""
    signal_mean: Running = field(default_factory=Running)
    activation: Moments = field(default_factory=Moments)
    whitening: Whitening | None = None

    def __post_init__(self) -> None:
        self.geometry = Geometry.of(self.layer)
        self.units_on_large = self.geometry.transposed and self.transpose != "s"
        self.initial = self.weight.detach().clone()
        if self.conditioning.whiten is not None:
            one, geometry, weight = (1,) * self.geometry.spatial_dims, self.geometry, self.weight
            self.whitening = make_whitening(
                strength=self.conditioning.whiten,
                channels=weight.shape[0] // geometry.groups if self.units_on_large else weight.shape[1],
                kernel=one if self.units_on_large else geometry.kernel,
                dilation=one if self.units_on_large else geometry.dilation,
                groups=geometry.groups,
            )

    @property
    def weight(self) -> nn.Parameter:
        weight = self.layer.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def observe(self, x: Tensor, y: Tensor) -> None:
        """Add one forward pass, with input x and output y (bias included), to the sums."""
        # Half precision is too coarse for sums over 10⁵ positions.
        dtype = torch.float64 if self.weight.dtype == torch.float64 else torch.float32
        x, y = x.detach().to(dtype), y.detach().to(dtype)
        geometry = self.geometry
        if isinstance(self.layer.bias, Tensor):
            bias = self.layer.bias.detach().to(dtype)
            y = y - (bias if isinstance(self.layer, nn.Linear) else bias.view(-1, *[1] * geometry.spatial_dims))
        small, large = geometry.maps(self.layer, x, y)
        signal, activation = (small, large) if self.units_on_large else (large, small)

        if self.conditioning.centered:
            mean = self.signal_mean.include(signal.mean((0, *range(2, signal.dim()))))
            # Before padding, so that padded zeros equal the mean.
            signal = signal - _channels(mean, signal)
            activation = activation - self._response_to_mean(mean, small, large)
            if self.whitening is not None:
                self.whitening.include(signal)
        gate = self._gate(activation)
        if self.units_on_large:
            new = self._sums_of_large_units(signal, gate, activation)
        else:
            new = self._sums_of_small_units(geometry.pad(self.layer, signal), gate, activation)
        if self.sums is None:
            self.sums = new
        else:
            self.sums.add(new)

    def _gate(self, activation: Tensor) -> Tensor:
        if self.conditioning.standardize:
            mean, deviation = self.activation.include(activation)
            scale = 1 / deviation.clamp_min(torch.finfo(deviation.dtype).eps)
            activation = torch.addcmul(_channels(-mean * scale, activation), activation, _channels(scale, activation))
        if self.geometry.groups == 1:
            return self.rule.gate(activation, 1)
        by_group = activation.unflatten(1, (self.geometry.groups, -1))  # (B, G, U, *n)
        return self.rule.gate(by_group, 2).flatten(1, 2)

    def _response_to_mean(self, mean: Tensor, small: Tensor, large: Tensor) -> Tensor:
        """Return the part of the activations due to the mean signal; 0 for variant S, whose activations are the layer input."""
        geometry = self.geometry
        if geometry.transposed and not self.units_on_large:
            return mean.new_zeros(())
        weight = self.weight.detach().to(mean.dtype)
        weight = weight.unflatten(0, (geometry.groups, -1)).unflatten(-1, (-1, *[1] * isinstance(self.layer, nn.Linear)))
        per_group = mean.view(geometry.groups, -1)
        # A map of ones with weights summed over channels, each times its mean, equals the response to the map of means.
        if self.units_on_large:
            summed = torch.einsum("gsu...,gs->gu...", weight, per_group).flatten(0, 1).unsqueeze(0)  # (1, L, *k)
            return geometry.transposed_convolution(small.new_ones((1, 1, *small.shape[2:])), summed, large.shape[2:])
        summed = torch.einsum("gul...,gl->gu...", weight, per_group).flatten(0, 1).unsqueeze(1)  # (S, 1, *k)
        return geometry.convolution(geometry.pad(self.layer, large.new_ones((1, 1, *large.shape[2:]))), summed)

    def _sums_of_small_units(self, large: Tensor, gate: Tensor, activation: Tensor) -> Sums:
        geometry = self.geometry
        correlation = geometry.correlate(gate, large)
        if self.rule.reconstruction == "own":
            memory = gate.sum((0, *range(2, gate.dim()))).view(geometry.groups, -1)  # (G, U)
            self._use(memory.abs())
        else:
            units = geometry.by_group(activation)  # (B, G, U, N)
            memory = (units @ units.mT).sum(0)  # (G, U, U)
            self._use(memory.diagonal(dim1=-2, dim2=-1))
        return Sums(correlation, memory, _count(gate))

    def _sums_of_large_units(self, small: Tensor, gate: Tensor, activation: Tensor) -> Sums:
        geometry, size = self.geometry, tuple(small.shape[2:])
        correlation = geometry.correlate(small, gate)
        if self.rule.reconstruction == "own":
            memory = geometry.window_sums(gate, size).flatten(2)  # (G, U, K)
            self._use(memory.flatten(1).abs())
        else:
            memory = geometry.window_moments(activation, size)  # (G, U, K, U, K)
            self._use(torch.einsum("gukuk->guk", memory).flatten(1))
        return Sums(correlation, memory, _count(small))

    def _use(self, share: Tensor) -> None:
        self.usage = share.clone() if self.usage is None else self.usage + share

    def update(self, sums: Sums, scale: Tensor | float = 1.0) -> Tensor:
        """Return scale · ΔW in the layout of the weight."""
        weight = self.rows(self.weight.detach().to(sums.correlation.dtype))  # (G, units, size)
        correlation = self.rows(sums.correlation)
        if self.whitening is not None:
            correlation = self.whitening.decorrelate(correlation)
        return self.layout(self._less_reconstruction(correlation, sums.memory, weight).mul_(scale / sums.count))

    def natural_rate(self, sums: Sums) -> Tensor | float:
        """Return the learning rate of a full step, by which ``write_gradients(relative=True)`` scales ΔW.

        Competitive rules: the number of units, so that a unit with an equal share of the samples moves to the centroid of
        the samples it wins. Other rules: 1 / E[|y|²], the stability limit for principal components.
        """
        if self.rule.competitive:
            return float(sums.memory.shape[1])
        if self.rule.reconstruction == "preceding":
            squares = torch.einsum("gukuk->" if self.units_on_large else "guu->", sums.memory)
        else:
            squares = sums.memory.abs().sum()
        return sums.count / squares.clamp_min(torch.finfo(squares.dtype).tiny)

    def _less_reconstruction(self, correlation: Tensor, memory: Tensor, weight: Tensor) -> Tensor:
        """Return corr − M W, with rows (G, units, size)."""
        if not self.units_on_large:
            if self.rule.reconstruction == "own":
                return torch.addcmul(correlation, memory[..., None], weight, value=-1)
            return torch.baddbmm(correlation, memory.tril(), weight, alpha=-1)
        groups, units, offsets = memory.shape[:3]
        if self.rule.reconstruction == "own":
            if self.transpose == "tsa-literal":
                by_offset = weight.view(groups, units, offsets, -1)
                weight = by_offset.sum(2, keepdim=True).expand_as(by_offset).reshape(weight.shape)
            return torch.addcmul(correlation, memory.flatten(1)[..., None], weight, value=-1)
        # All offsets of the channels l ≤ o.
        before = memory.new_ones(units, units).tril()[:, None, :, None]
        size = units * offsets
        return torch.baddbmm(correlation, (memory * before).view(groups, size, size), weight, alpha=-1)

    def rows(self, weight: Tensor) -> Tensor:
        """Return the filters as rows, one per unit: (S, L/G, *k) → (G, units, size)."""
        by_group = weight.unflatten(0, (self.geometry.groups, -1))
        if self.units_on_large:
            return by_group.flatten(3).permute(0, 2, 3, 1).flatten(1, 2)  # (G, S/G, U, K) → (G, U·K, S/G)
        return by_group.flatten(2)  # (G, U, L/G · K)

    def layout(self, rows: Tensor) -> Tensor:
        """Invert `rows`."""
        if self.units_on_large:
            rows = rows.unflatten(1, (-1, math.prod(self.geometry.kernel))).permute(0, 3, 1, 2)  # (G, S/G, U, K)
        return rows.reshape(self.weight.shape)

    def norms(self, rows: Tensor) -> Tensor:
        """Return the norm of each filter, (G, units, 1), in the whitened space once the covariance is known."""
        if self.whitening is not None and self.whitening.forwards:
            return self.whitening.norms(rows)
        return rows.norm(dim=-1, keepdim=True)

    def divide_filters(self, norms: Tensor) -> None:
        """Divide each filter in place by its norm, (G, units, 1); filters of norm 0 stay unchanged."""
        norms = torch.where(norms > 0, norms, torch.ones_like(norms)).to(self.weight.dtype)
        self.weight.copy_(self.layout(self.rows(self.weight) / norms))

    def state(self) -> dict[str, Any]:
        """Return the state for an exact resume, taken between a reset and the next forward pass."""
        averages = self._averages()
        return {name: {"value": average.value, "seen": average.seen} for name, average in averages.items()} | {
            "forwards": 0 if self.whitening is None else self.whitening.forwards,
            "initial": self.initial,
            "usage": self.usage,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        for name, average in self._averages().items():
            average.value, average.seen = state[name]["value"], state[name]["seen"]
        if self.whitening is not None:
            self.whitening.forwards = state["forwards"]
            self.whitening.forget_derived()
        self.initial, self.usage = state["initial"], state["usage"]

    def _averages(self) -> dict[str, Running]:
        averages = {"signal_mean": self.signal_mean, "activation": self.activation.running}
        return averages if self.whitening is None else averages | self.whitening.averages


def _channels(values: Tensor, map_: Tensor) -> Tensor:
    """Reshape (C,) → (1, C, 1, …) for broadcasting over a map."""
    return values.view(1, -1, *[1] * (map_.dim() - 2))


def _count(small: Tensor) -> int:
    """Return the number of samples: batch size times positions of the small map."""
    return small.shape[0] * math.prod(small.shape[2:])
