"""Hebbian learning for the layers of any PyTorch network."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.hebbian.conv_geometry import SUPPORTED, is_plastic
from hebbseg.hebbian.plastic_layer import PlasticLayer, Sums, Transpose
from hebbseg.hebbian.rules import Rule
from hebbseg.hebbian.running_stats import Conditioning

TRANSPOSE = ("tsa", "s", "tsa-literal", "off")


class Plasticity:
    """Unsupervised Hebbian learning of a network's layers, without back-propagation.

        ΔW = E_n[ g_n (s_n − ŝ_n) ]

    where E_n is the mean over all samples of all forward passes since the last `write_gradients`, s the signal, g the gate
    and ŝ the reconstruction of the rule. `updates` returns ΔW; `write_gradients` sets ``weight.grad = −ΔW`` for any PyTorch
    optimizer. Forward hooks are active inside the ``with`` block only; the network is not changed otherwise.

    Args:
        model: any module; its Conv, ConvTranspose (1D to 3D) and Linear layers learn.
        rule: `SoftWTA`, `HebbianPCA`, `Hebb` or another `Rule`.
        transpose: variant for transposed convolutions: ``"tsa"`` (structure-aware: large-map units learn small-map vectors),
            ``"s"`` (straightforward: small-map units learn large-map patches), ``"tsa-literal"`` (SWTA-TSA exactly as in
            the paper, where all offsets share the reconstruction Σ_κ W[:, o, κ]; it has no fixed point and norms grow;
            equal to ``"tsa"`` for HebbianPCA) or ``"off"``.
        layers: names or wildcards of layers, or of modules that contain them; None selects all.
        exclude: names or wildcards of layers to exclude. All except ``"head"`` must exist in the network.
        unit_norm, center, standardize, whiten: see `Conditioning`; by default, the equation is applied without changes.

    >>> import torch
    >>> from hebbseg import Plasticity, SoftWTA
    >>> net = torch.nn.Conv2d(3, 8, 3)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with Plasticity(net, SoftWTA(temperature=0.05)) as plasticity:
    ...     _ = net(torch.randn(4, 3, 16, 16))
    ...     plasticity.write_gradients()
    ...     optimizer.step()
    """

    def __init__(
        self,
        model: nn.Module,
        rule: Rule,
        *,
        transpose: Transpose = "tsa",
        layers: Sequence[str] | None = None,
        exclude: Sequence[str] = ("head",),
        unit_norm: bool = False,
        center: bool = False,
        standardize: bool = False,
        whiten: float | None = None,
    ) -> None:
        if transpose not in TRANSPOSE:
            raise HebbsegError(f"transpose={transpose!r} is not supported. {did_you_mean(str(transpose), TRANSPOSE)}")
        if standardize and not rule.competitive:
            raise HebbsegError(
                f"standardize=True requires a competitive rule, but {type(rule).__name__} has no competition. "
                "Use SoftWTA, or set standardize=False."
            )
        self.model = model.module if isinstance(model, DistributedDataParallel) else model
        self.rule = rule
        self.transpose = transpose
        self.layers = layers
        self.exclude = exclude
        self.conditioning = Conditioning(unit_norm=unit_norm, center=center, standardize=standardize, whiten=whiten)
        self.plastic_layers: dict[str, PlasticLayer] = {
            name: PlasticLayer(name=name, layer=layer, rule=rule, conditioning=self.conditioning, transpose=transpose)
            for name, layer in _chosen(self.model, layers, exclude, transpose).items()
        }
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        if self._handles:
            raise HebbsegError("This Plasticity is already attached. Leave its `with` block before entering it again.")
        for plastic in self.plastic_layers.values():
            self._handles.append(plastic.layer.register_forward_hook(_observer(plastic), with_kwargs=True))
        if self.conditioning.unit_norm:
            self.normalize()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._handles:
            self._handles.pop().remove()
        self.reset()

    def updates(self) -> dict[str, Tensor]:
        """Return {layer name: ΔW} in the layout of the weight, from the samples of this process.

        Layers without a forward pass are omitted.

        Raises:
            HebbsegError: no layer had a forward pass, or activations are not finite.
        """
        return {layer.name: layer.update(sums) for layer, sums in self._gathered(joint=False)}

    def write_gradients(self, *, relative: bool = False) -> None:
        """Set ``weight.grad = −ΔW`` for every layer with a forward pass, and reset the sums.

        Under torch.distributed, ΔW is the mean over the samples of all processes. If the activations of any layer are not
        finite, no gradient is written.

        Args:
            relative: scale ΔW by `PlasticLayer.natural_rate`, so that one learning rate suits layers of any width and scale.
        """
        updates = [
            (layer, layer.update(sums, -layer.natural_rate(sums) if relative else -1.0))
            for layer, sums in self._gathered(joint=True)
        ]
        for layer, negative in updates:
            layer.weight.grad = negative.to(layer.weight.dtype)
        self.reset()

    @torch.no_grad()
    def normalize(self) -> None:
        """Scale every filter to norm 1; with ``unit_norm``, call it after each optimizer step."""
        for layer in self.plastic_layers.values():
            layer.divide_filters(layer.norms(layer.rows(layer.weight)))

    @torch.no_grad()
    def restore_norms(self) -> None:
        """Scale every filter to the mean initial norm of its layer, so that learning rates suit the next stage."""
        for layer in self.plastic_layers.values():
            before = layer.rows(layer.initial).norm(dim=-1).mean()
            layer.divide_filters(layer.rows(layer.weight).norm(dim=-1, keepdim=True) / before)

    def reset(self) -> None:
        """Discard the samples since the last update; running statistics are kept."""
        for layer in self.plastic_layers.values():
            layer.sums = None

    def forget_usage(self) -> None:
        """Reset the usage counts of all units."""
        for layer in self.plastic_layers.values():
            layer.usage = None

    def state_dict(self) -> dict[str, Any]:
        """Return the running statistics and initial weights of each layer, for an exact resume."""
        return {name: layer.state() for name, layer in self.plastic_layers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != set(self.plastic_layers):
            raise HebbsegError(
                f"The state is of different layers; not in both: {sorted(set(state) ^ set(self.plastic_layers))}. "
                "Use the same network, layers= and exclude=."
            )
        for name, layer in self.plastic_layers.items():
            layer.load_state(state[name])

    def _gathered(self, *, joint: bool) -> list[tuple[PlasticLayer, Sums]]:
        gathered = [(layer, layer.sums) for layer in self.plastic_layers.values() if layer.sums is not None]
        if not gathered:
            raise HebbsegError(
                "No plastic layer had a forward pass since the last write_gradients(). Call the network inside the "
                "`with Plasticity(...)` block first."
            )
        if joint:
            gathered = [(layer, sums.over_processes()) for layer, sums in gathered]
        # One check for all layers, to synchronize with the GPU only once.
        totals = [sums.total() for _, sums in gathered]
        finite = torch.stack([total.to(totals[0]) for total in totals]).isfinite()
        for (layer, _), good in zip(gathered, finite.tolist(), strict=True):
            if not good:
                raise HebbsegError(
                    f"Layer {layer.name!r} has non-finite activations (NaN or infinity). No weight was changed. "
                    "Check the images for such values, lower the learning rate, or set unit_norm=True."
                )
        return gathered


def _observer(plastic: PlasticLayer) -> Any:
    def observe(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        x = args[0] if args else kwargs["input"]
        # No inference tensors and no autocast, whatever the context of the forward pass.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            plastic.observe(x, output)

    return observe


def _chosen(model: nn.Module, layers: Iterable[str] | None, exclude: Iterable[str], transpose: str) -> dict[str, nn.Module]:
    """Return the selected layers in network order; raise an error for names that do not exist or cannot learn."""
    modules = dict(model.named_modules())
    for option, patterns in (("layers", layers or ()), ("exclude", exclude)):
        if isinstance(patterns, str):
            raise HebbsegError(f"{option}={patterns!r} is a string. Pass a sequence of names: {option}=({patterns!r},).")
        for pattern in patterns:
            if not any(matches(name, pattern) for name in modules) and not (option == "exclude" and pattern == "head"):
                raise HebbsegError(
                    f"{option}: the network has no module {pattern!r}. {did_you_mean(pattern, filter(None, modules))}"
                )
    chosen = {}
    for name, module in modules.items():
        wanted = layers is None or any(matches(name, pattern) for pattern in layers)
        if not wanted or any(matches(name, pattern) for pattern in exclude):
            continue
        if is_plastic(module):
            if not (transpose == "off" and getattr(module, "transposed", False)):
                chosen[name] = module
        elif layers is not None and name in layers and not any(is_plastic(m) for m in module.modules()):
            raise HebbsegError(
                f"Layer {name!r} is a {type(module).__name__}, which Hebbian rules do not support. Supported are "
                f"{SUPPORTED}. Remove {name!r} from layers=."
            )
    if not chosen:
        raise HebbsegError(
            f"No layer is selected with layers={layers!r}, exclude={tuple(exclude)!r}, transpose={transpose!r}. "
            f"Select at least one of the network's {SUPPORTED} layers."
        )
    _refuse_unwritable(chosen)
    return chosen


def _refuse_unwritable(chosen: dict[str, nn.Module]) -> None:
    owners: dict[int, str] = {}
    for name, layer in chosen.items():
        weight = layer._parameters.get("weight")
        if weight is None:
            raise HebbsegError(
                f"Layer {name!r} has a parametrized weight (such as weight_norm). Remove the parametrization "
                "(torch.nn.utils.parametrize.remove_parametrizations) or exclude the layer."
            )
        if not weight.is_floating_point():
            raise HebbsegError(f"Layer {name!r} has {weight.dtype} weights. Hebbian rules require real floating-point weights.")
        if id(weight) in owners:
            raise HebbsegError(f"Layers {owners[id(weight)]!r} and {name!r} share one weight. Exclude one of them.")
        owners[id(weight)] = name


def matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)
