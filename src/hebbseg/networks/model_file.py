"""Model files: weights and configuration in one safetensors file, without executable code."""

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
    """Write weights and, as JSON metadata, the configuration to rebuild the network. The write is atomic."""
    # safetensors rejects tensors that share memory or are not contiguous
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    try:
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata={"hebbseg": json.dumps(description, sort_keys=True)})
    except (OSError, SafetensorError) as error:
        raise HebbsegError(f"{path}: the model could not be written ({write_failure(error)}).") from error


def load_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the configuration from a file of `save_model`. Executes no code."""
    if not path.is_file():
        raise HebbsegError(f"{path}: no such file. Pass a run folder or its model.safetensors.")
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["hebbseg"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise HebbsegError(
            f"{path}: not a hebbseg model ({type(error).__name__}: {error}). Models are safetensors files; pickle files (.pt, "
            ".pth) are not opened because they can execute code."
        ) from error
    return weights, description


def write_failure(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full"
    return str(error).splitlines()[0]
