"""Networks by name: our UNet, an entry point, or the dotted name of any nn.Module factory."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hebbseg.errors import HebbsegError, did_you_mean, known_names, look_up
from hebbseg.networks.unet import UNet

UNET = "unet"
GROUP = "hebbseg.networks"
MONAI = "monai.networks.nets"
FETCHES = ("pretrained", "url", "path", "file")  # options with these words may read or download a file


def build_network(
    *,
    name: str = UNET,
    spatial_dims: int,
    in_channels: int,
    out_channels: int,
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> nn.Module:
    """Build a network with random weights.

    Args:
        name: ``"unet"``, a name of the entry-point group ``hebbseg.networks``, or a dotted name. The factory is called
            with ``spatial_dims``, ``in_channels`` and ``out_channels``.
        options: further keywords of the factory.
        seed: random seed of the weights, independent of torch's global generator; None uses the global generator.
    """
    shape = {"spatial_dims": spatial_dims, "in_channels": in_channels, "out_channels": out_channels}
    keywords: dict[str, Any] = {**shape, **(options or {})}
    if name == UNET:
        return UNet(**keywords, seed=seed)
    factory = find_factory(name)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        try:
            network = factory(**keywords)
        except Exception as error:
            given = ", ".join(f"{key}={value!r}" for key, value in keywords.items())
            raise HebbsegError(
                f"network={name}: building it with {given} failed ({type(error).__name__}: {error}). Set its "
                "arguments with --set network_options.NAME=VALUE."
            ) from error
    if not isinstance(network, nn.Module):
        raise HebbsegError(f"network={name}: it returned a {type(network).__name__}, not a torch.nn.Module.")
    return network


def declared_shapes(described: Mapping[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the weights of `build_network` without allocating them; None if the network does not allow that."""
    try:
        with torch.device("meta"):
            network = build_network(**described)
    except HebbsegError as error:
        if "meta" in str(error):
            return None
        raise
    return {name: tuple(weight.shape) for name, weight in network.state_dict().items()}


def find_factory(name: str) -> Callable[..., Any]:
    """Return the factory of this name. Imports dotted names, so a name from a file must pass `check_trusted` first."""
    table: dict[str, Any] = {UNET: UNet}
    module, dot, attribute = name.rpartition(".")
    if name == UNET or name in known_names(table, GROUP):
        found = look_up(name, table, "network", GROUP)
    elif not dot:
        raise HebbsegError(
            f"Unknown network {name!r}. {did_you_mean(name, known_names(table, GROUP))} Dotted names of factories "
            f"work too, for example {MONAI}.DynUNet."
        )
    else:
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise HebbsegError(
                f"network={name}: it cannot be imported ({error}). Install its package, or add its folder to PYTHONPATH."
            ) from error
    if not callable(found):
        raise HebbsegError(f"network={name}: a {type(found).__name__} cannot be called. Give the name of a class or function.")
    return found


def default_options(name: str, features: Sequence[int]) -> dict[str, Any]:
    """Return the options of MONAI's networks that the setting ``features`` implies; none for other factories."""
    depth = len(features)
    if name == f"{MONAI}.DynUNet":
        strides = [1] + [2] * (depth - 1)
        kernels = {"kernel_size": [3] * depth, "upsample_kernel_size": strides[1:]}
        return kernels | {"strides": strides, "filters": list(features)}
    if name == f"{MONAI}.SegResNet":
        return {"init_filters": features[0]}
    if name == f"{MONAI}.BasicUNet":
        if depth != 5:
            raise HebbsegError(
                f"features={','.join(map(str, features))}: BasicUNet has five levels. Give five numbers, or its own six "
                "with --set network_options.features=[32,32,64,128,256,32]."
            )
        return {"features": [*features, features[0]]}
    return {}


def as_described(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `build_network` from a model file; version 0.1 stored keywords of the UNet and no name."""
    if not isinstance(found, Mapping) or not isinstance(found.get("options", {}), Mapping):
        raise HebbsegError("The description of its network is not an object with options.")
    if "name" in found:
        if not isinstance(found["name"], str):
            raise HebbsegError(f"The name of its network is {found['name']!r}, not a text.")
        return {"options": {}, **found}
    shape = ("spatial_dims", "in_channels", "out_channels")
    options = {key: value for key, value in found.items() if key not in shape}
    return {"name": UNET, **{key: found[key] for key in shape if key in found}, "options": options}


def check_trusted(described: Mapping[str, Any]) -> None:
    """Raise unless the network is ours or MONAI's and needs no download: a file must not choose which code runs."""
    name, options = described["name"], described["options"]
    if name == UNET:
        return
    remedy = (
        "If you trust the author of the model, load it with --trust (in Python: trust=True), which imports and calls this "
        "name on your machine."
    )
    if not re.fullmatch(rf"{re.escape(MONAI)}\.[A-Za-z]\w*", name):
        raise HebbsegError(f"The model's network is {name!r}; only {UNET} and {MONAI}.* load by default. {remedy}")
    found = find_factory(name)
    if not (isinstance(found, type) and issubclass(found, nn.Module) and found.__module__.startswith(f"{MONAI}.")):
        raise HebbsegError(f"The model's network {name!r} is not a network class of MONAI. {remedy}")
    fetching = [key for key in options if any(word in key.lower() for word in FETCHES)]
    if fetching:
        raise HebbsegError(
            f"The model's network {name!r} is built with {fetching[0]}={options[fetching[0]]!r}, which may read or "
            f"download a file. {remedy}"
        )


def called_layers(network: nn.Module, images: Tensor, *, name: str, out_channels: int) -> list[str]:
    """Return the names of convolutions and linear layers in the order of a forward pass; the last is the output layer.

    Raises unless the network returns logits (B, out_channels, *size) in training and evaluation mode. Works on a copy.
    """
    called: dict[str, None] = {}
    network = copy.deepcopy(network)
    for layer, module in network.named_modules():
        if isinstance(module, (_ConvNd, nn.Linear)):
            # Moves the name to the end, so that the order is that of the last calls.
            module.register_forward_hook(lambda *_, layer=layer: called.update({layer: called.pop(layer, None)}))
    size = tuple(images.shape[2:])
    for training in (True, False):
        called.clear()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                output = network.train(training)(images)
        except Exception as error:
            even = "x".join(str(max(32, round(n / 32) * 32)) for n in size)
            raise HebbsegError(
                f"network={name}: it failed on images of shape {tuple(images.shape)} ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''}). Many networks need sizes that are multiples of 16 or "
                f"32: try --size {even} or --patch {even}."
            ) from error
        wanted = (len(images), out_channels, *size)
        if not isinstance(output, Tensor) or tuple(output.shape) != wanted:
            found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise HebbsegError(
                f"network={name}: {'in training' if training else 'in evaluation'} it returns {found} for images of shape "
                f"{tuple(images.shape)}; it must return logits of shape {wanted}. Turn off deep supervision and other "
                "additional outputs (for example --set network_options.deep_supervision=false), or wrap the network in a "
                "module that returns only the logits."
            )
    if not called:
        raise HebbsegError(f"network={name}: a forward pass calls no convolution and no linear layer.")
    return list(called)
