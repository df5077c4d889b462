"""Checkpoints to resume from: plain values and tensors, written atomically."""

import zipfile
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from hebbseg.atomic_files import replacing
from hebbseg.errors import FileError, HebbsegError, explaining

STAGES = ("pretrain", "fit")


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write plain values and tensors. The previous file is replaced only when the new one is safely on disk."""
    try:
        # torch reports a failed write as a RuntimeError of its zip writer.
        with explaining(path, "the checkpoint could not be written", "Free disk space."), replacing(path) as temporary:
            torch.save(state, temporary)
    except HebbsegError as error:
        remedy = f" The previous one is intact. Free disk space and run: hebbseg train --resume -o {quote(str(path.parent))}"
        raise HebbsegError(f"{error}{remedy if path.exists() else ''}") from error


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; verifies the checksums of its parts."""
    with explaining(path, "not a hebbseg checkpoint, or damaged", restart(path)):
        with zipfile.ZipFile(path) as parts:
            if (damaged := parts.testzip()) is not None:
                raise ValueError(f"wrong checksum of {damaged}")
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise FileError(path, f"not a hebbseg checkpoint: it contains a {type(state).__name__}", restart(path))
    return state


def check_stage(path: Path, state: dict[str, Any]) -> None:
    """Raise unless a checkpoint of a run has its stage, the state of this stage and the history before it."""
    valid = (
        state.get("stage") in STAGES
        and isinstance(state.get("state"), dict)
        and (state["stage"] == "pretrain" or isinstance(state.get("history"), list))
        and isinstance(state.get("seconds", 0.0), int | float)
    )
    if not valid:
        raise FileError(path, f"not a checkpoint of a run (found {', '.join(map(str, state)) or 'nothing'})", restart(path))


def restart(path: Path) -> str:
    """Return what can be done without a checkpoint."""
    folder = quote(str(path.parent))
    weights = path.parent / "pretrained.safetensors"
    stage1 = f" A new run can start from the weights of stage 1: --init {quote(str(weights))}" if weights.is_file() else ""
    return (
        "No code in it was executed. Settings and split of the run are intact: delete the checkpoint and run `hebbseg train "
        f"--resume -o {folder}` to train again with them.{stage1}"
    )
