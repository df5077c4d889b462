"""ONNX files: written from a trace, checked in onnxruntime, and loaded for prediction."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from hebbseg.atomic_files import replacing
from hebbseg.errors import FileError, HebbsegError, explaining
from hebbseg.inference.export.traced import (
    Checked,
    axes_names,
    check_outputs,
    example,
    exported_module,
    name_of,
    quietly,
)
from hebbseg.inference.model_description import ModelDescription
from hebbseg.inference.predictor import Predictor, settings_of

KEY = "hebbseg"  # of the description among the metadata
INPUT, OUTPUT, BORDER = "image", "probabilities", "border"
OPSET = 17
TOLERANCE = 1e-3  # of probabilities below 0 or above 1


def write_onnx(predictor: Predictor, path: Path, describe: Callable[[Checked], dict[str, Any]]) -> Checked:
    """Write an ONNX file with dynamic batch and image size, after comparing onnxruntime with PyTorch.

    The probability of the border is a second output, if the model has learned it.

    Args:
        predictor: the model.
        path: the file.
        describe: ``describe(checked)`` is stored as JSON in the metadata.
    """
    onnx = require("onnx")
    names = ["batch", None, *axes_names(predictor.spatial_dims)]
    outputs = [OUTPUT, BORDER] if predictor.borders else [OUTPUT]
    dynamic = {axis: name for axis, name in enumerate(names) if name}
    remedy = "Try --format torchscript."
    with replacing(path) as temporary:
        torch._C._jit_set_onnx_log_enabled(False)  # otherwise it prints the whole graph if an operation is not supported
        # The exporter of torch.export (dynamo=True) gives the same graph, but takes 70 s for a small UNet in 2D and 180 s in
        # 3D instead of 3 s: it proves that the sizes agree for all symbolic image sizes.
        with explaining(f"network {name_of(predictor)}", "it cannot be converted to ONNX", remedy), quietly():
            torch.onnx.export(
                exported_module(predictor),
                (example(predictor),),
                temporary,
                dynamo=False,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=outputs,
                dynamic_axes=dict.fromkeys([INPUT, *outputs], dynamic),
            )
        checked = check_outputs(predictor, OnnxNetwork(temporary, "the exported model").run, "ONNX")
        model = onnx.load(temporary)
        onnx.helper.set_model_props(model, {KEY: json.dumps(describe(checked), sort_keys=True)})
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, temporary)
    return checked


class OnnxNetwork(nn.Module):
    """A network that is computed by onnxruntime on the CPU. Has no weights for PyTorch.

    Shapes: (B, C, *S) → logits (B, K, *S), the logarithm of the probabilities. With border: background, inside and border.

    Args:
        path: an ONNX file.
        name: in errors.
    """

    def __init__(self, path: Path, name: str) -> None:
        super().__init__()
        onnxruntime = require("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors only; they are raised as well
        with explaining(name, "not an ONNX model that onnxruntime can run", "Export it again with `hebbseg export`."):
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.name = name
        self.has_border = BORDER in [output.name for output in self.session.get_outputs()]
        self.classes = 0  # 0: any number

    def run(self, image: Tensor) -> Tensor:
        """Return the probabilities, and those of the border as last channel if the file has them."""
        outputs = self.session.run([OUTPUT, BORDER] if self.has_border else [OUTPUT], {INPUT: image.contiguous().numpy()})
        channels = (self.classes, 1)[: len(outputs)]
        pairs = zip(map(torch.from_numpy, outputs), channels, strict=True)
        return torch.cat([self._checked(found, image, count) for found, count in pairs], 1)

    def _checked(self, found: Tensor, image: Tensor, channels: int) -> Tensor:
        expected = (len(image), channels or found.shape[1], *found.shape[2:])  # their size is checked by the caller
        if found.shape != expected:
            raise HebbsegError(f"{self.name}: it returns values of shape {tuple(found.shape)} instead of {expected}.")
        if not ((found >= -TOLERANCE) & (found <= 1 + TOLERANCE)).all():  # also if one is NaN
            raise HebbsegError(f"{self.name}: its outputs are not probabilities from 0 to 1. Export the model again.")
        return found

    def forward(self, image: Tensor) -> Tensor:
        try:
            found = self.run(image)
            if self.has_border:  # the border is part of the foreground
                found[:, 1] -= found[:, 2]
            return found.clamp(0, 1).log()
        except HebbsegError:
            raise
        except Exception as error:  # onnxruntime has exceptions of its own
            shown = "×".join(map(str, image.shape[2:]))
            raise HebbsegError(f"{self.name}: it cannot be applied to an image of {shown} pixels ({error}).") from error

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.session.get_modelmeta().custom_metadata_map)


def load_onnx(path: Path) -> dict[str, Any]:
    """Return the fields of a `Predictor` from a file of `write_onnx`. Builds no PyTorch network, imports nothing it names."""
    if not path.is_file():
        raise HebbsegError(f"{path}: no such file. `hebbseg export RUN -o {path.name}` writes it.")
    network = OnnxNetwork(path, str(path))
    remedy = "Only ONNX files of `hebbseg export` have a description of preprocessing and classes."
    with explaining(path, "no hebbseg model", remedy):
        description = json.loads(network.metadata[KEY])
        if not isinstance(description, dict):
            raise TypeError(f"its description is a {type(description).__name__}, not an object")
    try:
        described = ModelDescription.of(description, trust=True)  # the network is not built, so nothing is imported
    except HebbsegError as error:
        raise FileError(path, str(error), remedy) from error
    network.classes = len(described.classes)
    # Without the output of the border, it counts as foreground.
    return {"network": network.eval(), **settings_of(described), "borders": network.has_border}


def require(module: str) -> ModuleType:
    """Import a package of the extra ``export``."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise HebbsegError(f"{module} is not installed. Run `pip install 'hebbseg[export]'`.") from None
