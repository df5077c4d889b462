"""Stage 1 by Hebbian plasticity: learns from images alone, without masks and without backpropagation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hebbseg.config import PretrainSettings
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.hebbian.diagnostics import LayerDiagnostics, as_dict, diagnose
from hebbseg.hebbian.plasticity import Plasticity, matches
from hebbseg.hebbian.rules import Rule, rule_class
from hebbseg.methods.options import checked_options, options_of
from hebbseg.networks.factory import called_layers
from hebbseg.networks.modes import modes_kept, without_dropout
from hebbseg.training.schedules import rate_factor
from hebbseg.training.session import Row, Session, State


def make_rule(settings: PretrainSettings) -> Rule:
    """Return the learning rule with its parameters."""
    cls, options = rule_class(settings.rule), settings.rule_options
    if "temperature" in options:
        raise HebbsegError("rule_options.temperature: the temperature is a setting itself. Set temperature=VALUE.")
    if any(option.name == "temperature" for option in options_of(cls)):
        options = {"temperature": settings.temperature, **options}
    return cls(**checked_options(settings.rule, cls, options, kind="Rule"))


def make_plasticity(network: nn.Module, settings: PretrainSettings, layers: tuple[str, ...] | None) -> Plasticity:
    """Return the plasticity of these layers or modules (None: all but the head).

    ``standardize`` applies to competitive rules only.
    """
    rule = make_rule(settings)
    return Plasticity(
        network,
        rule,
        transpose=settings.transpose,
        layers=layers,
        unit_norm=settings.unit_norm,
        center=settings.center,
        standardize=settings.standardize and rule.competitive,
        whiten=settings.whiten,
    )


def choose_layers(
    network: nn.Module, images: Tensor, patterns: tuple[str, ...] | None, *, name: str, out_channels: int
) -> tuple[tuple[str, ...], str]:
    """Return the layers that learn, in the order of a forward pass, and the output layer, which does not learn.

    Args:
        patterns: wildcards of layer names; None selects all convolutions.
    """
    *called, output = called_layers(network, images, name=name, out_channels=out_channels)
    if patterns is None:
        return tuple(layer for layer in called if isinstance(network.get_submodule(layer), _ConvNd)), output
    for pattern in patterns:
        if not any(matches(layer, pattern) for layer in called):
            raise HebbsegError(f"layers={pattern}: no layer of {name} matches. {did_you_mean(pattern, called)}")
    return tuple(layer for layer in called if any(matches(layer, pattern) for pattern in patterns)), output


@dataclass(frozen=True, kw_only=True)
class Initialized:
    """The result of stage 1: rows of the history, and diagnostics of every trained layer."""

    history: list[Row] = field(default_factory=list)
    diagnostics: dict[str, LayerDiagnostics] = field(default_factory=dict)


def pretrain(
    network: nn.Module,
    images: Callable[[int], Tensor],
    settings: PretrainSettings,
    *,
    layers: tuple[str, ...] | None = None,
    steps_per_epoch: int = 1,
    session: Session | None = None,
) -> Initialized:
    """Train ``network`` in place; by default, then rescale its filters to the norms of the random initialization.

    With ``step="relative"``, the learning rate is relative to each layer's `PlasticLayer.natural_rate`.

    Args:
        images: returns batch number k of images, (B, C, *S); a pure function of k.
        layers: names of layers or of modules that contain them; None: all but the head.
    """
    session, settings = session or Session(), settings.of_hebbian()
    assert isinstance(settings.epochs, int) and isinstance(settings.rate, float)
    state = session.state
    with session.restoring():
        history: list[Row] = [] if state is None else list(state["history"])
        diagnostics = {} if state is None else {n: LayerDiagnostics(**d) for n, d in state["diagnostics"].items()}
        first_phase = 0 if state is None else int(state["phase"])
    phases = _phases(network, settings, layers)
    steps = settings.epochs * steps_per_epoch  # of a phase
    with modes_kept(network), without_dropout(network.train()), torch.no_grad():
        for phase in range(first_phase, len(phases)):
            plasticity = make_plasticity(network, settings, phases[phase])
            last = _last_reached(network, plasticity, images)  # before plasticity observes any input
            with plasticity, forward_until(network, last) as forward:
                optimizer, epoch = _optimizer(plasticity, settings), 0
                parts: dict[str, Any] = {"network": network, "plasticity": plasticity, "optimizer": optimizer}
                if state is not None and phase == first_phase:  # replaces the filters normalized on entry
                    with session.restoring():
                        epoch = int(state["epoch"])
                        for name, part in parts.items():
                            part.load_state_dict(state[name])
                while epoch < settings.epochs and not _settled(history, phase, settings):
                    before = [layer.weight.clone() for layer in plasticity.plastic_layers.values()]
                    plasticity.forget_usage()
                    for step in range(epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch):
                        for group in optimizer.param_groups:
                            group["lr"] = settings.rate * _rate_factor(settings, step / steps)
                        forward(images(phase * steps + step))
                        plasticity.write_gradients(relative=settings.step == "relative")
                        optimizer.step()
                        if settings.unit_norm:
                            plasticity.normalize()
                        done = phase * steps + step + 1
                        if (step + 1) % steps_per_epoch == 0:
                            history.append(_row(phase, epoch + 1, done, plasticity, before))
                        session.report(done, len(phases) * steps, history[-1] if history else {})
                        session.stop_if_requested("Stopped in stage 1.")
                    epoch += 1
                    session.save(partial(_state, phase, epoch, parts, history, diagnostics), False)
                if settings.restore_norms:
                    plasticity.restore_norms()
                diagnostics |= diagnose(plasticity)
    return Initialized(history=history, diagnostics=diagnostics)


def _state(phase: int, epoch: int, parts: dict[str, Any], history: list[Row], diagnostics: Any) -> State:
    states = {name: part.state_dict() for name, part in parts.items()}
    return {"phase": phase, "epoch": epoch, **states, "history": list(history), "diagnostics": as_dict(diagnostics)}


def _phases(network: nn.Module, settings: PretrainSettings, layers: tuple[str, ...] | None) -> list[tuple[str, ...]]:
    """Return the groups of layers that learn together, in order."""
    order = {name: number for number, name in enumerate(layers or ())}
    plastic = make_plasticity(network, settings, layers).plastic_layers
    names = tuple(sorted(plastic, key=lambda name: order.get(name, 0)))
    return [(name,) for name in names] if settings.layerwise else [names]


def _rate_factor(settings: PretrainSettings, progress: float) -> float:
    if settings.schedule == "linear":
        return 1 - 0.9 * progress
    assert settings.schedule != "auto"
    return rate_factor(settings.schedule, progress)


def _optimizer(plasticity: Plasticity, settings: PretrainSettings) -> torch.optim.Optimizer:
    weights = [layer.weight for layer in plasticity.plastic_layers.values()]
    # No momentum and no decay: the rule determines sign and size of each step.
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kinds[settings.optimizer](weights, lr=settings.rate)


def _settled(history: list[Row], phase: int, settings: PretrainSettings) -> bool:
    return bool(history) and history[-1]["phase"] == phase and history[-1]["moved"] < settings.settle


def _row(phase: int, epoch: int, step: int, plasticity: Plasticity, before: list[Tensor]) -> Row:
    """Return a row of the history: means over the layers of the phase."""
    weights = [plastic.weight for plastic in plasticity.plastic_layers.values()]
    moved = [float((new - old).norm() / old.norm()) for new, old in zip(weights, before, strict=True)]
    layers = list(diagnose(plasticity).values())
    return {
        "stage": "pretrain",
        "phase": phase,
        "epoch": epoch,
        "step": step,
        "moved": mean(moved),
        "effective_units": mean((layer.effective_units or 0.0) / layer.units for layer in layers),
        "cosine": mean(layer.cosine for layer in layers),
        "rank": mean(layer.rank / layer.units for layer in layers),
    }


class _Reached(Exception):
    """Raised to end a forward pass after the last plastic layer."""


def _last_reached(network: nn.Module, plasticity: Plasticity, images: Callable[[int], Tensor]) -> str | None:
    """Return the last plastic layer of a forward pass; None if that layer is called more than once."""
    if len(plasticity.plastic_layers) == 1:
        return next(iter(plasticity.plastic_layers))
    calls: list[str] = []
    handles = [
        plastic.layer.register_forward_hook(lambda *_, name=name: calls.append(name))
        for name, plastic in plasticity.plastic_layers.items()
    ]
    try:
        with modes_kept(network):
            network.eval()  # keeps norm statistics unchanged
            network(images(0)[:1])
    finally:
        for handle in handles:
            handle.remove()
    return calls[-1] if calls and calls.count(calls[-1]) == 1 else None


@contextmanager
def forward_until(network: nn.Module, layer: str | None) -> Iterator[Callable[[Tensor], None]]:
    """Yield a forward pass that stops after the named layer; None runs the whole network."""

    def stop(module: nn.Module, args: Any, output: Any) -> None:
        raise _Reached

    def forward(images: Tensor) -> None:
        with suppress(_Reached):
            network(images)

    handle = None if layer is None else network.get_submodule(layer).register_forward_hook(stop)
    try:
        yield forward
    finally:
        if handle is not None:
            handle.remove()
