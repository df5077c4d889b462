"""Checkpoints to resume from: plain values and tensors, written atomically."""

from pathlib import Path
from shlex import quote
from typing import Any

import torch

from hebbseg.atomic_files import replacing
from hebbseg.errors import HebbsegError
from hebbseg.networks.model_file import write_failure


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write plain values and tensors. The previous file is replaced only when the new one is safely on disk."""
    try:
        with replacing(path) as temporary:
            torch.save(state, temporary)
    except (OSError, RuntimeError) as error:
        # torch reports a failed write as a RuntimeError of its zip writer.
        remedy = f"The previous one is intact. Free disk space and run: hebbseg train --resume -o {quote(str(path.parent))}"
        raise HebbsegError(
            f"{path}: the checkpoint could not be written ({write_failure(error)}). {remedy if path.exists() else ''}"
        ) from error


def load_checkpoint(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise HebbsegError(
            f"{path}: not a hebbseg checkpoint ({type(error).__name__}). No code in it was executed. Start a new run in "
            "another folder."
        ) from error
    assert isinstance(state, dict)
    return state
