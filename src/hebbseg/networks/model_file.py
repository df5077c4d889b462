"""The model file: weights and configuration in one safetensors file, written atomically, without code in it."""

import errno
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hebbseg.atomic_files import replacing
from hebbseg.errors import HebbsegError


def save_model(path: Path, weights: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Weights and, as JSON in the file's metadata, all that is needed to build and use the network."""
    # safetensors refuses tensors that share memory or are not contiguous
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    try:
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata={"hebbseg": json.dumps(description, sort_keys=True)})
    except (OSError, SafetensorError) as error:
        raise HebbsegError(f"{path}: the model could not be written ({write_failure(error)}).") from error


def load_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the description of a file from `save_model`. Reading it executes nothing."""
    if not path.is_file():
        raise HebbsegError(f"{path}: there is no such file. A model is the model.safetensors of a run folder.")
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["hebbseg"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise HebbsegError(
            f"{path}: this is not a model of ours ({type(error).__name__}: {error}). Models are safetensors files; a pickle "
            "(.pt, .pth) is not opened, as it could run code."
        ) from error
    return weights, description


def write_failure(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full"
    return str(error).splitlines()[0]
