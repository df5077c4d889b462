"""Prediction of the default UNet by PyTorch in several ways, by onnxruntime and, if it is installed, by OpenVINO.

All use PyTorch's number of threads. On a CPU, `hebbseg predict` uses fp32, with channels last for batches of 2D windows.
"""

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import Row, row, seconds
from hebbseg.data.cases import ClassInfo
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.inference.export.description import describing
from hebbseg.inference.export.onnx_file import OnnxNetwork, write_onnx
from hebbseg.inference.export.traced import probabilities_module, quietly
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.unet import UNet

CLASSES = (ClassInfo(index=0, value=0), ClassInfo(index=1, value=1))
TOLERANCE = 1e-4  # as in `hebbseg export`


def untrained(dims: int, channels: int) -> Predictor:
    options = {"spatial_dims": dims, "in_channels": channels, "out_channels": 2, "norm": "group"}
    return Predictor(
        network=UNet(**options, seed=0).eval(),
        network_options={**options, "features": [16, 32, 64, 128, 256], "dropout": None},
        preprocessing=Preprocessing(size=None, normalize="zscore"),
        classes=CLASSES,
    )


def contenders(predictor: Predictor, image: Tensor, onnx: Path) -> dict[str, Callable[[], Tensor]]:
    """Ways to the probabilities of one batch; PyTorch's fp32 in inference mode is the reference."""
    module = probabilities_module(predictor)
    layout: Any = torch.channels_last if image.ndim == 4 else torch.channels_last_3d
    channels_last = probabilities_module(predictor).to(memory_format=layout)
    with quietly():
        fused = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(module, (image,), check_trace=False)))
    runtime = OnnxNetwork(onnx, "the exported model")

    def torch_fp32() -> Tensor:
        return module(image)

    def torch_bf16() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return module(image)

    ways = {
        "torch": _without_gradients(torch_fp32),
        "torch, channels last": _without_gradients(lambda: channels_last(image.contiguous(memory_format=layout))),
        "torch, optimize_for_inference": _without_gradients(lambda: fused(image)),
        "torch, bfloat16": _without_gradients(torch_bf16),
        "onnxruntime": lambda: runtime.run(image),
    }
    if find_spec("openvino") is not None:
        ways |= {f"OpenVINO, {precision}": _openvino(onnx, image, precision) for precision in ("f32", "bf16")}
    return ways


def _openvino(onnx: Path, image: Tensor, precision: str) -> Callable[[], Tensor]:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.compile_model(onnx, "CPU", options)
    return lambda: torch.from_numpy(compiled(image.numpy())[0])


def compare(name: str, predictor: Predictor, image: Tensor, *, rounds: int, at_most: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        onnx = Path(folder, "model.onnx")
        write_onnx(predictor, onnx, describing(predictor, "onnx"))
        ways = contenders(predictor, image, onnx)
        found = {way: work().float() for way, work in ways.items()}
        times = seconds(ways, rounds=rounds)
    rows = []
    for way in ways:
        if way == "torch":
            continue
        limit = at_most if way == "onnxruntime" else 99.0  # the other ways are shown only
        rows.append(row(f"seconds, {way} / torch, {name}", times[way], times["torch"], at_most=limit))
    largest = {way: (values - found["torch"]).abs().max().item() for way, values in found.items()}
    for way in ways:
        if way != "torch":
            limit = 1.0 if way == "onnxruntime" else 1e6
            rows.append(row(f"largest difference, {way} / 1e-4, {name}", largest[way], TOLERANCE, at_most=limit))
    return rows


def _without_gradients(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with torch.inference_mode():
            return work()

    return run


def run() -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    images, volume = torch.randn(4, 3, 128, 128, generator=generator), torch.randn(1, 1, 48, 48, 48, generator=generator)
    return [
        *compare("4 images 128²", untrained(2, 3), images, rounds=5, at_most=1.5),
        *compare("a window of 48³", untrained(3, 1), volume, rounds=3, at_most=1.5),
    ]


if __name__ == "__main__":
    torch.manual_seed(0)
    for line in run():
        print(line)
