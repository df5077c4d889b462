"""Where the weights of stage 2 come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hebbseg.config import PretrainSettings
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.hebbian.diagnostics import LayerDiagnostics
from hebbseg.methods.options import checked_options
from hebbseg.networks.factory import UNET, as_described
from hebbseg.networks.model_file import load_model
from hebbseg.networks.unet import UNet
from hebbseg.pretraining.hebbian import make_plasticity, pretrain
from hebbseg.pretraining.pretext import Pretext, train_pretext
from hebbseg.pretraining.superpixels import SuperpixelEpisodes
from hebbseg.pretraining.vae import VariationalAutoEncoder
from hebbseg.training.ema import recalibrate_norms
from hebbseg.training.session import Row, Session


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an initialization may use: images without masks, settings, and the session of the run.

    Args:
        images: batch number k of training images.
        calibration: batches that go through all training images once, for norm statistics.
        settings: of stage 1.
        layers: names of layers that learn, or of modules that hold them; None is all but the output layer.
        output: name of the output layer.
        steps_per_epoch: batches of an epoch.
        options: of this initialization alone, checked.
    """

    images: Callable[[int], Tensor]
    calibration: Callable[[], list[Tensor]]
    settings: PretrainSettings
    layers: tuple[str, ...] | None = None
    output: str = "head"
    steps_per_epoch: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    session: Session = field(default_factory=Session)


@dataclass(frozen=True, kw_only=True)
class Initialized:
    history: list[Row] = field(default_factory=list)
    diagnostics: dict[str, LayerDiagnostics] = field(default_factory=dict)


def random(network: nn.Module, context: Context) -> Initialized:
    """The plain random weights: training from scratch."""
    return Initialized()


def random_rescaled(network: nn.Module, context: Context) -> Initialized:
    """The control: random weights with all that follows Hebbian learning (rescaling, norm statistics), without learning."""
    with torch.no_grad():
        make_plasticity(network, context.settings, context.layers).restore_norms()
    recalibrate_norms(network, context.calibration())
    return Initialized()


def hebbian(network: nn.Module, context: Context) -> Initialized:
    """Hebbian plasticity on all training images, then filter norms and norm statistics as after a plain initialisation."""
    result = pretrain(
        network,
        context.images,
        context.settings,
        layers=context.layers,
        steps_per_epoch=context.steps_per_epoch,
        session=context.session,
    )
    recalibrate_norms(network, context.calibration())
    return Initialized(history=result.history, diagnostics=result.diagnostics)


def vae(network: UNet, context: Context) -> Initialized:
    """A variational auto-encoder on all training images; its encoder and decoder are the network's."""
    return _by_pretext(VariationalAutoEncoder(network=network, **context.options), context)


def superpix(network: UNet, context: Context) -> Initialized:
    """Superpixels of all training images, found again in transformed copies."""
    return _by_pretext(SuperpixelEpisodes(network=network, **context.options), context)


def _by_pretext(pretext: Pretext, context: Context) -> Initialized:
    history = train_pretext(pretext, context.images, session=context.session)
    recalibrate_norms(pretext.network, context.calibration())
    return Initialized(history=history)


INITS: dict[str, Callable[[Any, Context], Initialized]] = {
    "hebbian": hebbian,
    "random": random,
    "random-rescaled": random_rescaled,
    "vae": vae,
    "superpix": superpix,
}
WITH_OPTIONS: dict[str, type[nn.Module]] = {"vae": VariationalAutoEncoder, "superpix": SuperpixelEpisodes}
"""The initialisations that have options of their own, and whose constructor's keywords these are."""


def check_init(name: str, options: Mapping[str, Any] | None = None, *, network: str = UNET) -> dict[str, Any]:
    """The options with their right types; raises unless ``name`` is an initialisation or a file of pre-trained weights."""
    if name in WITH_OPTIONS and network != UNET:
        raise HebbsegError(
            f"init={name} trains the UNet's encoder and decoder, which network={network} does not have. "
            f"Use init hebbian or random, or network={UNET}."
        )
    if name not in INITS and not Path(name).is_file():
        raise HebbsegError(
            f"init={name!r} is neither an initialisation nor a file of pre-trained weights. {did_you_mean(name, INITS)}"
        )
    if name in WITH_OPTIONS:
        return checked_options(name, WITH_OPTIONS[name], options or {}, kind="Init")
    if options:
        raise HebbsegError(
            f"init_options={dict(options)}: init {name} has none of its own; {' and '.join(WITH_OPTIONS)} have. "
            "What Hebbian learning takes (rule, temperature, whiten, …) are settings themselves: see --list-settings."
        )
    return {}


def initialize_network(name: str, network: nn.Module, context: Context) -> Initialized:
    """Gives ``network`` its first weights, in place."""
    check_init(name)
    if name in INITS:
        return INITS[name](network, context)
    weights, _ = load_model(Path(name))
    output = f"{context.output}."
    shared = {key: value for key, value in weights.items() if not key.startswith(output)}
    try:
        loaded = network.load_state_dict(shared, strict=False)
    except RuntimeError as error:
        raise HebbsegError(f"init={name}: its weights do not fit this network ({error}).") from error
    strange = [*loaded.unexpected_keys, *(key for key in loaded.missing_keys if not key.startswith(output))]
    if strange:
        raise HebbsegError(f"init={name}: its weights do not fit this network, first {strange[0]}.")
    return Initialized()


def check_weights(path: Path, wanted: Mapping[str, Any]) -> None:
    """Raises if the weights in a file are of another network than the one with these options; heads may differ."""
    _, description = load_model(path)
    found, given = (_compared(as_described(options)) for options in (description.get("network") or {}, wanted))
    keys = [key for key in given if key in found]
    if any(found[key] != given[key] for key in keys):
        theirs, ours = (", ".join(f"{key}={options[key]}" for key in keys) for options in (found, given))
        raise HebbsegError(
            f"init={path}: its weights are for another network ({theirs}) than this run's ({ours}). Set the network, "
            "features and norm as they were there, give images of that kind, or take other weights."
        )


def _compared(described: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for weights to fit: neither the classes nor dropout."""
    options = {key: value for key, value in described["options"].items() if key != "dropout"}
    shape = {key: described[key] for key in ("spatial_dims", "in_channels") if key in described}
    return {"network": described["name"]} | shape | options
