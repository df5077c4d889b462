"""Weight initializations by name: the table behind ``--init``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hebbseg.config import AUTO_INIT, PretrainSettings
from hebbseg.errors import HebbsegError, did_you_mean, known_names, look_up
from hebbseg.methods.options import Owner, checked_options, options_of
from hebbseg.networks.factory import UNET, as_described
from hebbseg.networks.model_file import load_model
from hebbseg.networks.unet import UNet
from hebbseg.pretraining.hebbian import Initialized, make_plasticity, pretrain
from hebbseg.pretraining.pretext import Pretext, train_pretext
from hebbseg.pretraining.pretext_images import PretextImages
from hebbseg.pretraining.superpixels import SuperpixelEpisodes
from hebbseg.pretraining.vae import VariationalAutoEncoder
from hebbseg.training.ema import recalibrate_norms
from hebbseg.training.session import Session


@dataclass(frozen=True, kw_only=True)
class Context:
    """The input of an initializer: images without masks, settings, and the session of the run.

    Args:
        images: returns batch number k of training images.
        calibration: returns every training image once, for norm statistics.
        settings: of stage 1.
        layers: names of layers that learn, or of modules that contain them; None: all but the output layer.
        output: name of the output layer.
        steps_per_epoch: batches per epoch.
        options: validated options of this initializer.
        pretext_images: the training images by batch number and by case, for pretext tasks.
    """

    images: Callable[[int], Tensor]
    calibration: Callable[[], list[Tensor]]
    settings: PretrainSettings
    layers: tuple[str, ...] | None = None
    output: str = "head"
    steps_per_epoch: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    session: Session = field(default_factory=Session)
    pretext_images: PretextImages | None = None


def random(network: nn.Module, context: Context) -> Initialized:
    """Keep the random weights: training from scratch."""
    return Initialized()


def random_rescaled(network: nn.Module, context: Context) -> Initialized:
    """Random weights with the filter norms and norm statistics after Hebbian learning: the control without learning.

    If Hebbian learning does not restore the norms of the random initialization, it is carried out, and every filter that it
    trains has its initial direction with the norm after learning.
    """
    result = Initialized()
    plasticity = make_plasticity(network, context.settings, context.layers)
    if not context.settings.restore_norms:
        result = replace(_learn(network, context), diagnostics={})
    with torch.no_grad():
        for layer in plasticity.plastic_layers.values():
            learned = layer.rows(layer.weight).norm(dim=-1, keepdim=True)
            layer.weight.copy_(layer.initial)
            if not context.settings.restore_norms:
                layer.divide_filters(layer.rows(layer.weight).norm(dim=-1, keepdim=True) / learned)
        if context.settings.restore_norms:
            plasticity.restore_norms()
    recalibrate_norms(network, context.calibration())
    return result


def hebbian(network: nn.Module, context: Context) -> Initialized:
    """Train by Hebbian plasticity on all training images, then recompute norm statistics."""
    result = _learn(network, context)
    recalibrate_norms(network, context.calibration())
    return result


def _learn(network: nn.Module, context: Context) -> Initialized:
    steps, session = context.steps_per_epoch, context.session
    return pretrain(network, context.images, context.settings, layers=context.layers, steps_per_epoch=steps, session=session)


def pretext(task: Callable[..., Pretext], network: UNet, context: Context, **options: Any) -> Initialized:
    """Train by backpropagation on a task made from training images, then recompute norm statistics."""
    assert context.pretext_images is not None
    made = task(network=network, **options)
    history = train_pretext(made, context.pretext_images, context.settings, session=context.session)
    recalibrate_norms(network, context.calibration())
    return Initialized(history=history)


@dataclass(frozen=True, kw_only=True)
class Initializer:
    """A weight initialization.

    Args:
        title: its name in reports.
        function: called with the network, the context and the options as keywords.
        options: the class or function whose keywords are the options; default: ``function``.
        needs_unet: works only with the encoder and decoder of the UNet.
    """

    title: str
    function: Callable[..., Initialized]
    options: Owner | None = None
    needs_unet: bool = False


INITIALIZERS: dict[str, Initializer] = {
    "hebbian": Initializer(title="Hebbian", function=hebbian),
    "random": Initializer(title="Random", function=random),
    "random-rescaled": Initializer(title="Random, rescaled", function=random_rescaled),
    "vae": Initializer(
        title="VAE", function=partial(pretext, VariationalAutoEncoder), options=VariationalAutoEncoder, needs_unet=True
    ),
    "superpix": Initializer(
        title="SuperpixSSL", function=partial(pretext, SuperpixelEpisodes), options=SuperpixelEpisodes, needs_unet=True
    ),
}
GROUP = "hebbseg.initializers"


def is_initializer(name: str) -> bool:
    """Return whether ``name`` is an initializer, built in or from an entry point, rather than a weights file."""
    return name == AUTO_INIT or name in INITIALIZERS or name in known_names(INITIALIZERS, GROUP)


def initializer(name: str) -> Initializer:
    """Return the initializer of this name; an entry point may also be the plain function.

    ``auto`` is Hebbian learning here; `hebbseg.runs.budget` replaces it where time is too short.
    """
    found: Any = look_up("hebbian" if name == AUTO_INIT else name, INITIALIZERS, "initializer", GROUP)
    return found if isinstance(found, Initializer) else Initializer(title=name, function=found)


def check_init(name: str, options: Mapping[str, Any] | None = None, *, network: str = UNET) -> dict[str, Any]:
    """Return the validated options; raises unless ``name`` is an initializer or a file of pre-trained weights."""
    if is_initializer(name):
        found = initializer(name)
        owner = found.options or found.function
        if found.needs_unet and network != UNET:
            raise HebbsegError(
                f"init={name} trains the UNet's encoder and decoder, which network={network} does not have. "
                f"Use init hebbian or random, or network={UNET}."
            )
    elif Path(name).is_file():
        owner = initialize_network  # a file has no options
    else:
        raise HebbsegError(
            f"init={name!r} is neither an initializer nor a file of pre-trained weights. "
            f"{did_you_mean(name, known_names(INITIALIZERS, GROUP))}"
        )
    if options and not options_of(owner):
        raise HebbsegError(
            f"init_options={dict(options)}: init {name} has no options. The parameters of Hebbian learning (rule, temperature, "
            "whiten, …) are settings: see --list-settings."
        )
    moved = sorted({"steps", "rate"} & (options or {}).keys() - {option.name for option in options_of(owner)})
    if moved:
        raise HebbsegError(
            f"Init {name} has no option {moved[0]!r}. The length of stage 1 and its learning rate are settings: set "
            "pretrain_epochs=NUMBER and pretrain_rate=NUMBER."
        )
    return checked_options(name, owner, options or {}, kind="Init")


def initialize_network(name: str, network: nn.Module, context: Context) -> Initialized:
    """Initialize ``network`` in place."""
    if is_initializer(name):
        return initializer(name).function(network, context, **context.options)
    weights, _ = load_model(Path(name))
    output = f"{context.output}."
    shared = {key: value for key, value in weights.items() if not key.startswith(output)}
    try:
        loaded = network.load_state_dict(shared, strict=False)
    except RuntimeError as error:
        raise HebbsegError(f"init={name}: its weights do not fit this network ({error}).") from error
    unmatched = [*loaded.unexpected_keys, *(key for key in loaded.missing_keys if not key.startswith(output))]
    if unmatched:
        raise HebbsegError(f"init={name}: its weights do not fit this network, first {unmatched[0]}.")
    return Initialized()


def check_weights(path: Path, wanted: Mapping[str, Any]) -> None:
    """Raise if the file contains weights of a network with other options; the heads may differ."""
    _, description = load_model(path)
    found, given = (_compared(as_described(options)) for options in (description.get("network") or {}, wanted))
    keys = [key for key in given if key in found]
    if any(found[key] != given[key] for key in keys):
        theirs, ours = (", ".join(f"{key}={options[key]}" for key in keys) for options in (found, given))
        raise HebbsegError(
            f"init={path}: its weights are for another network ({theirs}) than this run's ({ours}). Set network, features "
            "and norm to match, use images of the same kind, or choose other weights."
        )


def _compared(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that must agree for weights to fit: all but the number of classes and dropout."""
    options = {key: value for key, value in described["options"].items() if key != "dropout"}
    shape = {key: described[key] for key in ("spatial_dims", "in_channels") if key in described}
    return {"network": described["name"]} | shape | options
