"""Where the weights of stage 2 come from."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.hebbian.diagnostics import LayerDiagnostics
from hebbseg.methods.superpix import SuperpixelEpisodes
from hebbseg.methods.vae import VariationalAutoEncoder
from hebbseg.networks.unet import UNet
from hebbseg.training.averaging import recalibrate_norms
from hebbseg.training.checkpoint import load_model
from hebbseg.training.interrupt import Request
from hebbseg.training.pretext import Pretext, train_pretext
from hebbseg.training.pretrain import Stage1, pretrain

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an initialisation may use: images by batch number, without masks, and how to save and report.

    ``calibration`` are batches that go through all training images once, for norm statistics.
    """

    images: Callable[[int], Tensor]
    calibration: Callable[[], list[Tensor]]
    stage: Stage1
    state: dict[str, Any] | None = None
    save: Callable[[dict[str, Any]], None] = lambda state: None
    report: Callable[[int, int, Row], None] = lambda step, total, row: None
    request: Request | None = None


@dataclass(frozen=True, kw_only=True)
class Initialised:
    history: list[Row] = field(default_factory=list)
    diagnostics: dict[str, LayerDiagnostics] = field(default_factory=dict)


def random(network: UNet, context: Context) -> Initialised:
    """The plain random weights: training from scratch."""
    return Initialised()


def random_rescaled(network: UNet, context: Context) -> Initialised:
    """The control: random weights with all that follows Hebbian learning (rescaling, norm statistics), without learning."""
    with torch.no_grad():
        context.stage.plasticity(network, context.stage.layers).restore_norms()
    recalibrate_norms(network, context.calibration())
    return Initialised()


def hebbian(network: UNet, context: Context) -> Initialised:
    """Hebbian plasticity on all training images, then filter norms and norm statistics as after a plain initialisation."""
    result = pretrain(
        network,
        context.images,
        context.stage,
        state=context.state,
        save=context.save,
        report=context.report,
        request=context.request,
    )
    recalibrate_norms(network, context.calibration())
    return Initialised(history=result.history, diagnostics=result.diagnostics)


def vae(network: UNet, context: Context) -> Initialised:
    """A variational auto-encoder on all training images; its encoder and decoder are the network's."""
    return _by_pretext(VariationalAutoEncoder(network=network), context)


def superpix(network: UNet, context: Context) -> Initialised:
    """Superpixels of all training images, found again in transformed copies."""
    return _by_pretext(SuperpixelEpisodes(network=network), context)


def _by_pretext(pretext: Pretext, context: Context) -> Initialised:
    history = train_pretext(
        pretext,
        context.images,
        state=context.state,
        save=context.save,
        report=context.report,
        request=context.request,
    )
    recalibrate_norms(pretext.network, context.calibration())
    return Initialised(history=history)


INITS: dict[str, Callable[[UNet, Context], Initialised]] = {
    "hebbian": hebbian,
    "random": random,
    "random-rescaled": random_rescaled,
    "vae": vae,
    "superpix": superpix,
}


def check_init(name: str) -> None:
    """Raises unless ``name`` is an initialisation or a file of pre-trained weights."""
    if name not in INITS and not Path(name).is_file():
        raise HebbsegError(
            f"init={name!r} is neither an initialisation nor a file of pre-trained weights. {did_you_mean(name, INITS)}"
        )


def initialise_network(name: str, network: UNet, context: Context) -> Initialised:
    """Gives ``network`` its first weights, in place."""
    check_init(name)
    if name in INITS:
        return INITS[name](network, context)
    weights, description = load_model(Path(name))
    shared = {key: value for key, value in weights.items() if not key.startswith("head.")}
    try:
        missing = network.load_state_dict(shared, strict=False)
    except RuntimeError as error:
        raise HebbsegError(
            f"init={name}: its weights are for another network ({json.dumps(description.get('network'))}). "
            "Use the same features, channels and spatial_dims."
        ) from error
    assert all(key.startswith("head.") for key in missing.missing_keys)
    return Initialised()
