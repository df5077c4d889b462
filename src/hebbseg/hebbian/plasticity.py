"""Attaches a Hebbian rule to the plain layers of any network, and detaches without a trace."""

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
    """Lets the layers of a network learn from what flows through them, without labels and without back-propagation.

    Inside the block, every forward adds to the sums of each plastic layer; `updates` turns them into

        ΔW = E_n[ g_n (s_n − ŝ_n) ]       (the mean over all samples of all forwards since the last `write_gradients`)

    with the rule's gate g and reconstruction ŝ. Nothing is written to the network until `write_gradients` sets
    ``weight.grad = −ΔW``, so that any torch optimiser applies it.

    Args:
        model: any module; its Conv, ConvTranspose (1D to 3D) and Linear layers take part.
        rule: `SoftWTA`, `HebbianPCA`, `Hebb`, or an object like them.
        transpose: for transposed convolutions, ``"tsa"`` (structure-aware: large-map units learn small-map vectors),
            ``"s"`` (straightforward: small-map units learn large-map patches), ``"tsa-literal"`` (the paper's SWTA-TSA
            to the letter, whose offsets share one reconstruction Σ_κ W[:, o, κ]; it has no fixed point and its norms
            grow; equal to ``"tsa"`` for HebbianPCA) or ``"off"``.
        layers: names or wildcards of layers or of modules that hold them; None is all.
        exclude: those to leave out. ``"head"`` may be absent from the network; any other name must be in it.
        unit_norm, center, standardize, whiten: see `Conditioning`. All off is the equation to the letter.

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
            raise HebbsegError(f"transpose={transpose!r} is not a variant. {did_you_mean(str(transpose), TRANSPOSE)}")
        if standardize and not rule.competitive:
            raise HebbsegError(
                f"standardize=True puts competing activations on one scale, and {type(rule).__name__} has no competition. "
                "Use it with SoftWTA, or leave it off."
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
            raise HebbsegError("This Plasticity is attached already; leave its block before entering it again.")
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
        """ΔW by layer name, in the layout of its weight, from this process's samples; a value that touches nothing.

        A layer that no forward has reached is not in the answer. Activations that are not finite raise an error.
        """
        return {plastic.name: plastic.update(sums) for plastic, sums in self._gathered(joint=False)}

    def write_gradients(self, *, relative: bool = False) -> None:
        """Sets ``weight.grad = −ΔW`` on every layer that was reached, and starts the sums afresh.

        Under torch.distributed, ΔW is over the samples of all processes. If one layer's activations were not finite,
        no gradient is written at all. ``relative`` multiplies each layer's ΔW by its `PlasticLayer.natural_rate`, so that one
        learning rate suits layers of any width and scale.
        """
        updates = [
            (plastic, plastic.update(sums, -plastic.natural_rate(sums) if relative else -1.0))
            for plastic, sums in self._gathered(joint=True)
        ]
        for plastic, negative in updates:
            plastic.weight.grad = negative.to(plastic.weight.dtype)
        self.reset()

    @torch.no_grad()
    def normalize(self) -> None:
        """Brings every filter to norm 1; to be called after each optimiser step when ``unit_norm`` is on."""
        for plastic in self.plastic_layers.values():
            plastic.divide_filters(plastic.norms(plastic.rows(plastic.weight)))

    @torch.no_grad()
    def restore_norms(self) -> None:
        """Gives every filter the mean norm that its layer's filters had when plasticity was attached.

        A learning rate then means to the next stage what it means after a plain initialisation.
        """
        for plastic in self.plastic_layers.values():
            before = plastic.rows(plastic.initial).norm(dim=-1).mean()
            plastic.divide_filters(plastic.rows(plastic.weight).norm(dim=-1, keepdim=True) / before)

    def reset(self) -> None:
        """Forgets the samples gathered so far; running estimates stay."""
        for plastic in self.plastic_layers.values():
            plastic.sums = None

    def forget_usage(self) -> None:
        """Starts the count of which units take part afresh, say at the beginning of an epoch."""
        for plastic in self.plastic_layers.values():
            plastic.usage = None

    def state_dict(self) -> dict[str, Any]:
        """Running estimates and initial weights of each layer, so that a stopped stage can go on as if it had not."""
        return {name: plastic.state() for name, plastic in self.plastic_layers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != set(self.plastic_layers):
            raise HebbsegError(
                f"This state is of other layers: {sorted(set(state) ^ set(self.plastic_layers))} are on one side only. "
                "Attach to the same network with the same layers= and exclude=."
            )
        for name, plastic in self.plastic_layers.items():
            plastic.load_state(state[name])

    def _gathered(self, *, joint: bool) -> list[tuple[PlasticLayer, Sums]]:
        gathered = [(plastic, plastic.sums) for plastic in self.plastic_layers.values() if plastic.sums is not None]
        if not gathered:
            raise HebbsegError(
                "No sample has reached a plastic layer since the last write_gradients(): call the network inside the "
                "`with Plasticity(...)` block first."
            )
        if joint:
            gathered = [(plastic, sums.over_processes()) for plastic, sums in gathered]
        # All layers at once: to wait for each of them would hold up a graphics card.
        totals = [sums.total() for _, sums in gathered]
        finite = torch.stack([total.to(totals[0]) for total in totals]).isfinite()
        for (plastic, _), good in zip(gathered, finite.tolist(), strict=True):
            if not good:
                raise HebbsegError(
                    f"Layer {plastic.name!r} saw activations that are not finite (NaN or infinity). No weight was touched. "
                    "Look at the images for such values, lower the learning rate, or turn on unit_norm."
                )
        return gathered


def _observer(plastic: PlasticLayer) -> Any:
    def observe(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        x = args[0] if args else kwargs["input"]
        # Plain tensors even if the forward runs in inference mode, and full precision even under autocast.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            plastic.observe(x, output)

    return observe


def _chosen(model: nn.Module, layers: Iterable[str] | None, exclude: Iterable[str], transpose: str) -> dict[str, nn.Module]:
    """The layers that shall learn, in the order of the network, or an error that says what is wrong with the names."""
    modules = dict(model.named_modules())
    for option, patterns in (("layers", layers or ()), ("exclude", exclude)):
        if isinstance(patterns, str):
            raise HebbsegError(f"{option}={patterns!r} is one string; give a sequence of names: {option}=({patterns!r},).")
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
                f"Layer {name!r} is a {type(module).__name__}, which holds no weights that a Hebbian rule can drive. "
                f"Plasticity attaches to {SUPPORTED}; take {name!r} out of layers=."
            )
    if not chosen:
        raise HebbsegError(
            f"No layer is left to learn: the network has no {SUPPORTED} layer outside layers={layers!r}, "
            f"exclude={tuple(exclude)!r}, transpose={transpose!r}."
        )
    _refuse_unwritable(chosen)
    return chosen


def _refuse_unwritable(chosen: dict[str, nn.Module]) -> None:
    owners: dict[int, str] = {}
    for name, layer in chosen.items():
        weight = layer._parameters.get("weight")
        if weight is None:
            raise HebbsegError(
                f"Layer {name!r} computes its weight from other tensors (a parametrisation such as weight_norm). "
                "Remove it first (torch.nn.utils.parametrize.remove_parametrizations), or exclude the layer."
            )
        if not weight.is_floating_point():
            raise HebbsegError(f"Layer {name!r} has {weight.dtype} weights; Hebbian rules need real floating-point ones.")
        if id(weight) in owners:
            raise HebbsegError(
                f"Layers {owners[id(weight)]!r} and {name!r} share one weight; exclude one of them, so that the weight has "
                "one update."
            )
        owners[id(weight)] = name


def matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)
