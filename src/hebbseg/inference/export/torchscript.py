"""TorchScript: a .pt file for `torch.jit.load`, in Python or C++, with the description in hebbseg.json."""

import json
from pathlib import Path
from typing import Any

import torch

from hebbseg.atomic_files import replacing
from hebbseg.inference.export.traced import Checked, check_outputs, joined, quietly, trace
from hebbseg.inference.predictor import Predictor

DESCRIPTION = "hebbseg.json"  # name of the extra file


def write_torchscript(predictor: Predictor, path: Path, describe: Any) -> Checked:
    """Write the traced network; ``describe(checked)`` is stored as JSON. The file is checked before it is in place.

    It returns the probabilities, or the pair (probabilities, border) if the model has learned borders.
    """
    traced = trace(predictor)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return joined(traced(x))

    checked = check_outputs(predictor, run, "TorchScript")
    with replacing(path) as temporary, quietly():
        traced.save(str(temporary), _extra_files={DESCRIPTION: json.dumps(describe(checked))})
    return checked
