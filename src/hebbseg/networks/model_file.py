"""Model files: weights and configuration in one safetensors file, without executable code."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from hebbseg.atomic_files import replacing
from hebbseg.errors import FileError, HebbsegError, explaining, printable
from hebbseg.text_files import read_json


def save_model(path: Path, weights: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Write weights and, as JSON metadata, the configuration to rebuild the network. The write is atomic."""
    refuse_nonfinite(
        path, weights, "The model was not written. Lower the learning rate, or check the images with `hebbseg check`."
    )
    # safetensors rejects tensors that share memory or are not contiguous
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    with explaining(path, "the model could not be written", "Free disk space, then try again."), replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"hebbseg": json.dumps(description, sort_keys=True)})


def load_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the configuration from a file of `save_model`. Executes no code."""
    if not path.is_file():
        if _is_unfinished(path.parent):
            raise HebbsegError(f"{path.parent}: the run is not complete and has no model yet. Continue it with --resume.")
        raise HebbsegError(f"{path}: no such file. Pass a run folder or its model.safetensors.")
    remedy = "Models are safetensors files; pickle files (.pt, .pth) are not opened because they can execute code."
    with explaining(path, "not a hebbseg model", remedy):
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["hebbseg"], parse_constant=_refuse_constant)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        if not isinstance(description, dict):
            raise TypeError(f"its configuration is a {type(description).__name__}, not an object")
    refuse_nonfinite(path, weights, "Use another checkpoint or backup of the model, or train it again.")
    return weights, description


def refuse_nonfinite(path: Path, weights: dict[str, Tensor], remedy: str) -> None:
    """Raise if a weight is NaN or infinite: such a network predicts background without an error."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor.detach().float()).all():
            count = int((~torch.isfinite(tensor.detach().float())).sum())
            raise FileError(path, f"{count} of {tensor.numel()} weights of {printable(name)} are NaN or infinite", remedy)


def compare_shapes(weights: dict[str, Tensor], wanted: dict[str, tuple[int, ...]]) -> None:
    """Raise unless the weights have these names and shapes."""
    for name in sorted({*weights, *wanted}):
        found = tuple(weights[name].shape) if name in weights else None
        if found != wanted.get(name):
            theirs = "not in its weights" if found is None else f"{found} in its weights"
            ours = f"{wanted[name]} in its configuration" if name in wanted else "not in its configuration"
            raise HebbsegError(f"{printable(name)} is {theirs}, but {ours}. Use an intact copy, or train the model again.")


def compare_types(weights: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Raise if integers would be copied to floating-point weights or the reverse, which rounds them."""
    for name in weights.keys() & wanted.keys():
        if weights[name].is_floating_point() != wanted[name].is_floating_point():
            raise HebbsegError(
                f"{printable(name)} has the type {weights[name].dtype} in its weights, but the network needs "
                f"{wanted[name].dtype}. Use an intact copy, or train the model again."
            )


def _is_unfinished(run: Path) -> bool:
    if not (run / "run.json").is_file():
        return False
    with suppress(HebbsegError):
        return bool(read_json(run / "run.json", "").get("status") == "running")
    return False


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
