"""The checkpoint a run resumes from: plain values and tensors, written atomically."""

from pathlib import Path
from shlex import quote
from typing import Any

import torch

from hebbseg.atomic_files import replacing
from hebbseg.errors import HebbsegError
from hebbseg.networks.model_file import write_failure


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Plain values and tensors only; the file is the old one until the new one is safely on disk."""
    try:
        with replacing(path) as temporary:
            torch.save(state, temporary)
    except (OSError, RuntimeError) as error:
        # torch reports a failed write as a RuntimeError of its zip writer.
        raise HebbsegError(
            f"{path}: the checkpoint could not be written ({write_failure(error)}). "
            + (
                f"The previous one is intact; free some space and run: hebbseg train --resume -o {quote(str(path.parent))}"
                if path.exists()
                else ""
            )
        ) from error


def load_checkpoint(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise HebbsegError(
            f"{path}: this is not a checkpoint of ours ({type(error).__name__}). Nothing in it was executed. "
            "Start the run afresh in another folder."
        ) from error
    assert isinstance(state, dict)
    return state
