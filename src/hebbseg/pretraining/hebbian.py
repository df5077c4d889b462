"""Stage 1: a network learns from images alone, by Hebbian plasticity. No mask is read, nothing is back-propagated."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from hebbseg.hebbian.diagnostics import LayerDiagnostics, as_dict, diagnose
from hebbseg.hebbian.plastic_layer import Transpose
from hebbseg.hebbian.plasticity import Plasticity
from hebbseg.hebbian.rules import Rule
from hebbseg.pretraining.rules import make_rule
from hebbseg.training.interrupt import Interrupted, Request

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stage1:
    """How stage 1 learns.

    Arguments:
        rule: a name; see `make_rule`, which also takes ``temperature`` and ``rule_options``.
        transpose, unit_norm, centre, standardise, whiten: see `Plasticity`. ``standardise`` has no meaning without
            competition and is left off for the other rules.
        layers: names of layers, or of modules that hold them; None is all but the head.
        layerwise: each layer learns for all its epochs before the next begins, on what the ones before it have become.
        epochs: passes over the images (for each layer, if layerwise).
        steps_per_epoch: updates in a pass.
        rate: relative to each layer's `Site.natural_rate`, falling in a line to a tenth over the steps of all epochs.
        optimiser: ``"sgd"`` or ``"adam"``.
        settle: a layer (or all, if not layerwise) is done when an epoch moves its weights by less than this share.
    """

    rule: str = "swta"
    temperature: float = 0.1
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    transpose: Transpose = "tsa"
    layers: tuple[str, ...] | None = None
    layerwise: bool = True
    unit_norm: bool = True
    centre: bool = True
    standardise: bool = True
    whiten: float | None = 1.0
    epochs: int = 2
    steps_per_epoch: int = 1
    rate: float = 1.0
    optimiser: str = "sgd"
    settle: float = 0.0

    def make_rule(self) -> Rule:
        return make_rule(self.rule, temperature=self.temperature, options=self.rule_options)

    def plasticity(self, network: nn.Module, layers: tuple[str, ...] | None) -> Plasticity:
        rule = self.make_rule()
        return Plasticity(
            network,
            rule,
            transpose=self.transpose,
            layers=layers,
            unit_norm=self.unit_norm,
            centre=self.centre,
            standardise=self.standardise and rule.competitive,
            whiten=self.whiten,
        )


@dataclass(frozen=True, kw_only=True)
class Stage1Result:
    """The rows of the history, one per epoch, and every layer's diagnostics when it was done."""

    history: list[Row]
    diagnostics: dict[str, LayerDiagnostics]


def pretrain(
    network: nn.Module,
    images: Callable[[int], Tensor],
    stage: Stage1,
    *,
    state: dict[str, Any] | None = None,
    save: Callable[[dict[str, Any]], None] = lambda state: None,
    report: Callable[[int, int, Row], None] = lambda step, total, row: None,
    request: Request | None = None,
) -> Stage1Result:
    """Lets ``network`` learn in place; its filters end with the norms a plain initialisation gives them.

    Arguments:
        images: batch number k of images, (B, C, *S). Batches must be a function of k.
        state: of an earlier call that was cut short, as it was last given to ``save``.
        save: called after every epoch with all that is needed to go on from there (plain values and tensors).
        report: called after every step with (steps done, steps in all, newest row of the history).
        request: looked at after every step; when made, `Interrupted` is raised.
    """
    phases = _phases(network, stage)
    history: list[Row] = [] if state is None else list(state["history"])
    diagnostics = {} if state is None else {n: LayerDiagnostics(**d) for n, d in state["diagnostics"].items()}
    first_phase = 0 if state is None else state["phase"]
    steps = stage.epochs * stage.steps_per_epoch  # of a phase
    total = len(phases) * steps
    with _no_dropout(network), torch.no_grad():
        for phase in range(first_phase, len(phases)):
            plasticity = stage.plasticity(network, phases[phase])
            last = _last_reached(network, plasticity, images)
            with plasticity, forward_until(network, last) as forward:
                optimizer = _optimizer(plasticity, stage)
                begun, epoch = phase * steps, 0
                if state is not None and phase == first_phase:
                    # Entering the block may have normalised the filters; those that were saved count.
                    network.load_state_dict(state["network"])
                    plasticity.load_state_dict(state["plasticity"])
                    optimizer.load_state_dict(state["optimizer"])
                    epoch = state["epoch"]
                while epoch < stage.epochs and not _settled(history, phase, stage):
                    before = [site.weight.clone() for site in plasticity.sites.values()]
                    plasticity.forget_usage()
                    first = begun + epoch * stage.steps_per_epoch
                    last_step = first + stage.steps_per_epoch - 1
                    for step in range(first, last_step + 1):
                        for group in optimizer.param_groups:
                            group["lr"] = stage.rate * (1 - 0.9 * (step - begun) / steps)
                        forward(images(step))
                        plasticity.write_gradients(relative=True)
                        optimizer.step()
                        if stage.unit_norm:
                            plasticity.normalise()
                        if step == last_step:
                            history.append(_row(phase, epoch + 1, step + 1, plasticity, before))
                        report(step + 1, total, history[-1] if history else {})
                        if request is not None and request.made:
                            raise Interrupted("Stopped in stage 1.")
                    epoch += 1
                    save(
                        {
                            "phase": phase,
                            "epoch": epoch,
                            "network": network.state_dict(),
                            "plasticity": plasticity.state_dict(),
                            "optimizer": optimizer.state_dict(),
                            "history": list(history),
                            "diagnostics": as_dict(diagnostics),
                        }
                    )
                plasticity.restore_norms()
                diagnostics |= diagnose(plasticity)
    return Stage1Result(history=history, diagnostics=diagnostics)


def _phases(network: nn.Module, stage: Stage1) -> list[tuple[str, ...]]:
    """Which layers learn together, in order."""
    names = tuple(stage.plasticity(network, stage.layers).sites)
    return [(name,) for name in names] if stage.layerwise else [names]


def _optimizer(plasticity: Plasticity, stage: Stage1) -> torch.optim.Optimizer:
    weights = [site.weight for site in plasticity.sites.values()]
    # The rate is set at each epoch; a tensor's sign and size come from the rule, so no momentum and no decay.
    if stage.optimiser == "adam":
        return torch.optim.Adam(weights, lr=stage.rate)
    return torch.optim.SGD(weights, lr=stage.rate)


def _settled(history: list[Row], phase: int, stage: Stage1) -> bool:
    return bool(history) and history[-1]["phase"] == phase and history[-1]["moved"] < stage.settle


def _row(phase: int, epoch: int, step: int, plasticity: Plasticity, before: list[Tensor]) -> Row:
    """One line of the history: means over the layers of the phase."""
    weights = [site.weight for site in plasticity.sites.values()]
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
    """The last layer of interest has been computed."""


def _last_reached(network: nn.Module, plasticity: Plasticity, images: Callable[[int], Tensor]) -> str | None:
    """The plastic layer behind which a forward pass has no other; None if it may be called again after its first call."""
    if len(plasticity.sites) == 1:
        return next(iter(plasticity.sites))
    calls: list[str] = []
    handles = [
        site.layer.register_forward_hook(lambda *_, name=name: calls.append(name))
        for name, site in plasticity.sites.items()
    ]
    try:
        with _modes_kept(network):
            network.eval()  # a look that leaves no trace in norm statistics
            network(images(0)[:1])
    finally:
        for handle in handles:
            handle.remove()
    return calls[-1] if calls and calls.count(calls[-1]) == 1 else None


@contextmanager
def forward_until(network: nn.Module, layer: str | None) -> Iterator[Callable[[Tensor], None]]:
    """A forward pass that ends behind the named layer, or goes all the way if there is none."""

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


@contextmanager
def _no_dropout(network: nn.Module) -> Iterator[None]:
    """Training mode (batch norm by batch), but nothing is dropped; all modes are as before afterwards."""
    with _modes_kept(network):
        network.train()
        for module in network.modules():
            if isinstance(module, _DropoutNd):
                module.eval()
        yield


@contextmanager
def _modes_kept(network: nn.Module) -> Iterator[None]:
    """Whatever the block does to them, modules train or not afterwards as before it."""
    modes = {module: module.training for module in network.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
