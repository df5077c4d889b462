"""One plastic layer: the sums its forwards leave behind, and the update that follows from them.

The three cases of the method differ only in which of the two maps carries the units (see `hebbseg.hebbian.conv_geometry`):

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
    """Sums over samples since the last reset: corr(g, s) in the weight's layout, what M is made of, and their number."""

    correlation: Tensor
    memory: Tensor
    count: int

    def add(self, other: "Sums") -> None:
        self.correlation += other.correlation
        self.memory += other.memory
        self.count += other.count

    def over_processes(self) -> "Sums":
        """The sums over all processes of the distributed group, or these where there is none."""
        if not (dist.is_available() and dist.is_initialized()):
            return self
        correlation, memory = self.correlation.clone(), self.memory.clone()
        count = torch.tensor(self.count, device=correlation.device)
        for part in (correlation, memory, count):
            dist.all_reduce(part)
        return Sums(correlation, memory, int(count))

    def total(self) -> Tensor:
        """A number that is finite only if all of the sums are."""
        return self.correlation.sum() + self.memory.sum()


@dataclass
class PlasticLayer:
    """A rule at work on one layer; holds no reference in the layer and changes nothing in it."""

    name: str
    layer: nn.Module
    rule: Rule
    conditioning: Conditioning
    transpose: Transpose
    sums: Sums | None = None
    usage: Tensor | None = None
    """How much each unit took part since `forget_usage`: the summed gate, or for HPCA the summed squared activation."""
    signal_mean: Running = field(default_factory=Running)
    activation: Moments = field(default_factory=Moments)
    whitening: Whitening | None = None

    def __post_init__(self) -> None:
        self.geometry = Geometry.of(self.name, self.layer)
        self.units_on_large = self.geometry.transposed and self.transpose != "s"
        self.initial = self.weight.detach().clone()
        if self.conditioning.whiten is not None:
            one, geometry = (1,) * self.geometry.spatial_dims, self.geometry
            self.whitening = make_whitening(
                strength=self.conditioning.whiten,
                channels=self.weight.shape[0] // geometry.groups if self.units_on_large else self.weight.shape[1],
                kernel=one if self.units_on_large else geometry.kernel,
                dilation=one if self.units_on_large else geometry.dilation,
                groups=geometry.groups,
            )

    @property
    def weight(self) -> nn.Parameter:
        weight = self.layer.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    # ---------------------------------------------------------------- gathering

    def observe(self, x: Tensor, y: Tensor) -> None:
        """Adds one call of the layer, from its input and its output (bias included), to the sums."""
        # Half precision would round sums over 10⁵ positions away; the sums and what enters them are at least float32.
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
            # Before any padding: a zero less the mean would make the border of every image stand out.
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
        """The part of the activations that the mean signal causes; S has its activations from outside, so none."""
        geometry = self.geometry
        if geometry.transposed and not self.units_on_large:
            return mean.new_zeros(())
        weight = self.weight.detach().to(mean.dtype)
        weight = weight.unflatten(0, (geometry.groups, -1)).unflatten(-1, (-1, *[1] * isinstance(self.layer, nn.Linear)))
        per_group = mean.view(geometry.groups, -1)
        # A map of ones, with the weights of all channels added up by their means: the same as the map of means itself.
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

    # ---------------------------------------------------------------- updating

    def update(self, sums: Sums, scale: Tensor | float = 1.0) -> Tensor:
        """ΔW, times ``scale``, in the layout of the weight, from sums over one or more calls (and processes)."""
        weight = self.rows(self.weight.detach().to(sums.correlation.dtype))  # (G, units, size)
        correlation = self.rows(sums.correlation)
        if self.whitening is not None:
            correlation = self.whitening.decorrelate(correlation)
        return self.layout(self._less_reconstruction(correlation, sums.memory, weight).mul_(scale / sums.count))

    def natural_rate(self, sums: Sums) -> Tensor | float:
        """The learning rate at which one step is a whole step.

        In a competition, 1 / (mean gate of a unit that wins its fair share): that unit then jumps to the centroid of
        what it won. Without one, 1 / E[|y|²], below which following the principal directions is stable.
        """
        if self.rule.competitive:
            units = sums.memory.shape[1]  # competing at each position
            return float(units)
        if self.rule.reconstruction == "preceding":
            squares = torch.einsum("gukuk->" if self.units_on_large else "guu->", sums.memory)
        else:
            squares = sums.memory.abs().sum()
        return sums.count / squares.clamp_min(torch.finfo(squares.dtype).tiny)

    def _less_reconstruction(self, correlation: Tensor, memory: Tensor, weight: Tensor) -> Tensor:
        """corr − M W in one pass, with rows (G, units, size)."""
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
        # Channel l comes before channel o, or is o itself: all offsets of l count.
        before = memory.new_ones(units, units).tril()[:, None, :, None]
        size = units * offsets
        return torch.baddbmm(correlation, (memory * before).view(groups, size, size), weight, alpha=-1)

    def rows(self, weight: Tensor) -> Tensor:
        """The filters as rows, one per unit: the weight's layout (S, L/G, *k) → (G, units, size)."""
        by_group = weight.unflatten(0, (self.geometry.groups, -1))
        if self.units_on_large:
            return by_group.flatten(3).permute(0, 2, 3, 1).flatten(1, 2)  # (G, S/G, U, K) → (G, U·K, S/G)
        return by_group.flatten(2)  # (G, U, L/G · K)

    def layout(self, rows: Tensor) -> Tensor:
        """The inverse of `rows`."""
        shape = self.weight.shape
        if self.units_on_large:
            rows = rows.unflatten(1, (-1, self._offsets)).permute(0, 3, 1, 2)  # (G, S/G, U, K)
        return rows.reshape(shape)

    def norms(self, rows: Tensor) -> Tensor:
        """The norm of each filter, (G, units, 1), in the whitened space once its covariance is known."""
        if self.whitening is not None and self.whitening.forwards:
            return self.whitening.norms(rows)
        return rows.norm(dim=-1, keepdim=True)

    def divide_filters(self, norms: Tensor) -> None:
        """Divides each filter of the layer by a number, (G, units, 1); a filter of norm 0 stays as it is."""
        norms = torch.where(norms > 0, norms, torch.ones_like(norms)).to(self.weight.dtype)
        self.weight.copy_(self.layout(self.rows(self.weight) / norms))

    # ---------------------------------------------------------------- keeping

    def state(self) -> dict[str, Any]:
        """What must be kept to go on later exactly as if never stopped (taken between a reset and the next forward)."""
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

    @property
    def _offsets(self) -> int:
        return math.prod(self.geometry.kernel)


def _channels(values: Tensor, map_: Tensor) -> Tensor:
    """(C,) → (1, C, 1, …), to be broadcast over a map."""
    return values.view(1, -1, *[1] * (map_.dim() - 2))


def _count(small: Tensor) -> int:
    """The number of samples: batch times positions of the small map."""
    return small.shape[0] * math.prod(small.shape[2:])
