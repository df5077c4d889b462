"""bioimage.io packages: a zip archive of rdf.yaml, ONNX and TorchScript weights, test tensors, documentation and a cover."""

import hashlib
import io
import json
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from scipy.ndimage import gaussian_filter

from hebbseg import __version__
from hebbseg.atomic_files import replacing
from hebbseg.data.io.formats import read_image
from hebbseg.data.io.orientation import to_grid, values_to_grid
from hebbseg.data.preprocessing import RARE_PERCENT
from hebbseg.errors import HebbsegError
from hebbseg.inference.export.description import describing, steps
from hebbseg.inference.export.onnx_file import OPSET, write_onnx
from hebbseg.inference.export.torchscript import write_torchscript
from hebbseg.inference.export.traced import SIDE, Checked, axes_names, exported_module
from hebbseg.inference.predictor import Predictor
from hebbseg.reporting.plots.overlay import overlay

FORMAT_VERSION = "0.5.4"
LARGEST = {2: 256, 3: 64}  # side of a test tensor, by spatial dimensions
SMALLEST = {2: 32, 3: 16}  # volumes can have few slices
COVER_SIDE = 512


def write_bioimageio(predictor: Predictor, path: Path, example: Path | None = None) -> Checked:
    """Write a package for the BioImage Model Zoo and the programs that read it (deepImageJ, ilastik, bioimageio.core).

    The z-score of rdf.yaml does not clip outliers, as `Preprocessing` does: programs compute all statistics on the raw
    image, so an operation before it would not be seen. bioimage.io has no resizing: models that resize their images have
    inputs of this fixed size.

    Args:
        example: an image for the test tensors and the cover; default: generated noise.
    """
    raw = _test_image(predictor, example)
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as scratch:
        checked = write_onnx(predictor, Path(scratch, "weights.onnx"), describing(predictor, "onnx"))
        other = write_torchscript(predictor, Path(scratch, "weights.pt"), describing(predictor, "torchscript"))
        contents = {name: Path(scratch, name).read_bytes() for name in ("weights.onnx", "weights.pt")}
    with torch.no_grad():
        found = exported_module(predictor)(torch.from_numpy(processed(raw, predictor)))
    output, *border = [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]
    contents["test_input.npy"], contents["test_output.npy"] = _npy(raw), _npy(output)
    if border:
        contents["test_border.npy"] = _npy(border[0])
    contents["README.md"] = _documentation(predictor).encode()
    contents["cover.png"] = _cover(raw[0], output[0])
    contents["rdf.yaml"] = json.dumps(_rdf(predictor, raw, checked, contents), indent=2).encode()  # JSON is YAML
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            archive.writestr(name, contents[name])
    return checked if checked.difference >= other.difference else other


def processed(raw: np.ndarray, predictor: Predictor) -> np.ndarray:
    """Return what the preprocessing of rdf.yaml makes of a raw image (1, C, *S)."""
    values = raw.astype(np.float32)
    if predictor.preprocessing.normalize == "unit" and raw.dtype == np.uint8:
        return values / np.float32(255)
    spatial = tuple(range(2, raw.ndim))
    if predictor.preprocessing.normalize == "zscore":
        return (values - values.mean(spatial, keepdims=True)) / (values.std(spatial, keepdims=True) + np.float32(1e-6))
    low, high = np.percentile(values, (RARE_PERCENT, 100 - RARE_PERCENT), axis=(1, *spatial), keepdims=True)
    return np.clip((values - low) / (high - low + 1e-6), -1, 2).astype(np.float32)


def _rdf(predictor: Predictor, raw: np.ndarray, checked: Checked, contents: dict[str, bytes]) -> dict[str, Any]:
    names = [info.name or str(info.value) for info in predictor.classes]
    what = "probability of each class"
    outputs = [_output(predictor, "probabilities", what, _identifiers(names), "test_output.npy", contents)]
    if predictor.borders:
        what = "probability of the border of an object, a part of the foreground that separates touching objects"
        outputs.append(_output(predictor, "border", what, ["border"], "test_border.npy", contents))
    sha = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return {
        "type": "model",
        "format_version": FORMAT_VERSION,
        "name": f"hebbseg segmentation of {', '.join(names[1:])}"[:128].translate(str.maketrans("", "", "\"'`/\\<>:;")),
        "description": f"{predictor.spatial_dims}D semantic segmentation into {', '.join(names)}, trained with hebbseg."[:1024],
        "version": "0.1.0",
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "documentation": "README.md",
        "covers": ["cover.png"],
        "tags": ["segmentation", "semantic-segmentation", "unet", "pytorch", f"{predictor.spatial_dims}d", "hebbseg"],
        "inputs": [
            {
                "id": "image",
                "axes": [
                    {"type": "batch"},
                    {"type": "channel", "channel_names": _channel_names(predictor.in_channels)},
                    *[{"type": "space", "id": name, "size": size} for name, size in _sizes(predictor, checked)],
                ],
                "data": {"type": str(raw.dtype)},
                "preprocessing": _preprocessing(predictor, raw.dtype),
                "test_tensor": {"source": "test_input.npy", "sha256": sha["test_input.npy"]},
            }
        ],
        "outputs": outputs,
        "weights": {
            "onnx": {"source": "weights.onnx", "sha256": sha["weights.onnx"], "opset_version": OPSET, "parent": "torchscript"},
            "torchscript": {
                "source": "weights.pt", "sha256": sha["weights.pt"], "pytorch_version": torch.__version__.partition("+")[0],
            },
        },
        "config": {"hebbseg": describing(predictor, "bioimageio")(checked) | {"version": __version__}},
    }  # fmt: skip


def _output(
    predictor: Predictor, id: str, what: str, channels: list[str], file: str, contents: dict[str, bytes]
) -> dict[str, Any]:
    names = axes_names(predictor.spatial_dims)
    sides = [{"type": "space", "id": name, "size": {"tensor_id": "image", "axis_id": name}} for name in names]
    return {
        "id": id,
        "description": what,
        "axes": [{"type": "batch"}, {"type": "channel", "channel_names": channels}, *sides],
        "data": {"type": "float32", "range": [0.0, 1.0]},
        "test_tensor": {"source": file, "sha256": hashlib.sha256(contents[file]).hexdigest()},
    }


def _preprocessing(predictor: Predictor, dtype: np.dtype) -> list[dict[str, Any]]:
    spatial = list(axes_names(predictor.spatial_dims))
    if predictor.preprocessing.normalize == "unit" and dtype == np.uint8:
        return [{"id": "scale_linear", "kwargs": {"gain": 1 / 255, "offset": 0.0}}]
    if predictor.preprocessing.normalize == "zscore":
        return [{"id": "zero_mean_unit_variance", "kwargs": {"axes": spatial}}]
    percentiles = {"min_percentile": RARE_PERCENT, "max_percentile": 100 - RARE_PERCENT}
    return [
        {"id": "scale_range", "kwargs": {"axes": ["channel", *spatial], **percentiles}},
        {"id": "clip", "kwargs": {"min": -1.0, "max": 2.0}},
    ]


def _sizes(predictor: Predictor, checked: Checked) -> list[tuple[str, Any]]:
    names, size = axes_names(predictor.spatial_dims), predictor.preprocessing.size
    if size is not None:
        return list(zip(names, size, strict=True))
    return [(name, {"min": max(SMALLEST[predictor.spatial_dims], checked.step), "step": checked.step}) for name in names]


def _test_image(predictor: Predictor, example: Path | None) -> np.ndarray:
    """Return a raw image (1, C, *S) of a size that the package declares: float32, or uint8 if the model divides it by 255."""
    dims, size = predictor.spatial_dims, predictor.preprocessing.size
    if example is None:
        sides = size or predictor.window or (2 * SIDE[dims],) * dims
        sides = sides if size else tuple(min(side, LARGEST[dims]) for side in sides)
        noise = np.random.default_rng(0).normal(size=(predictor.in_channels, *sides))
        smooth = gaussian_filter(noise, sigma=(0, *(side / 16 for side in sides)))
        low, high = smooth.min(), smooth.max()
        values = (255 * (smooth - low) / (high - low)).round()
    else:
        image = read_image(example)
        grids = (image.axes, image.orientation), (predictor.axes, predictor.orientation)
        array = to_grid(np.moveaxis(image.array, 0, -1), *grids, dims=image.array.ndim - 1)
        array = predictor.as_channels(np.moveaxis(array, -1, 0))
        if image.spacing_mm is not None:
            working = predictor.preprocessing.working_size(array.shape[1:], values_to_grid(image.spacing_mm, *grids))
            array = array if working == array.shape[1:] else _resized(array, working).astype(array.dtype)
        if size is not None and array.shape[1:] != size:
            values = _resized(array, size)
        else:
            values = array[(slice(None), *(slice(LARGEST[dims]) for _ in range(dims)))]
            values = values[(slice(None), *(slice(side - side % 32 if side > 32 else None) for side in values.shape[1:]))]
            if size is None and min(values.shape[1:]) < SMALLEST[dims]:
                shown = "×".join(map(str, values.shape[1:]))
                raise HebbsegError(f"--example {example}: {shown} pixels; sides of at least {SMALLEST[dims]} are needed.")
    of_bytes = predictor.preprocessing.normalize == "unit" and (example is None or array.dtype == np.uint8)
    return np.ascontiguousarray(values[None]).astype(np.uint8 if of_bytes else np.float32)


def _resized(array: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    values = torch.from_numpy(array.astype(np.float32))[None]
    mode = "bilinear" if len(size) == 2 else "area"
    found = torch.nn.functional.interpolate(values, size=size, mode=mode, **({"antialias": True} if len(size) == 2 else {}))
    return found[0].round().numpy() if array.dtype.kind in "iu" else found[0].numpy()


def _channel_names(channels: int) -> list[str]:
    return ["red", "green", "blue"] if channels == 3 else [f"channel{i}" for i in range(channels)]


def _identifiers(names: list[str]) -> list[str]:
    """Return names without spaces, made unique."""
    words = ["".join(c if c.isalnum() else "_" for c in name) or "class" for name in names]
    return [word if words.count(word) == 1 else f"{word}_{i}" for i, word in enumerate(words)]


def _cover(raw: np.ndarray, probabilities: np.ndarray) -> bytes:
    """Return a PNG of the test image (C, *S), and the same with the contours of its predicted mask; volumes: middle slice."""
    classes = probabilities.argmax(0).astype(np.uint8)
    if raw.ndim == 4:
        raw, classes = raw[:, raw.shape[1] // 2], classes[classes.shape[0] // 2]
    low, high = raw.min(), raw.max()
    shown = ((raw - low) * (255 / max(high - low, 1e-6))).astype(np.uint8)
    plain, drawn = (overlay(shown, mask) for mask in (np.zeros_like(classes), classes))
    picture = Pillow.fromarray(np.concatenate([plain, drawn], axis=1))
    scale = COVER_SIDE / max(picture.size)
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)), Pillow.Resampling.NEAREST)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _documentation(predictor: Predictor) -> str:
    lines = [
        f"# Segmentation of {', '.join(info.name or str(info.value) for info in predictor.classes[1:])}",
        f"Trained with hebbseg {__version__}. Input: image; output: the probability of each class.",
        "",
        "## Use",
        *[f"{number}. {step}" for number, step in enumerate(steps(predictor), start=1)],
        "",
        "The normalization is part of rdf.yaml, for z-scores without the clipping of outliers. Resizing and windows are not.",
        "",
        "## Classes",
        *[f"* channel {info.index}: {info.name or 'class'}, value {info.value} in masks" for info in predictor.classes],
        "",
        "## Validation",
        "The training run contains metrics.csv and summary.json with the results on held-out test cases. "
        "`hebbseg evaluate model.safetensors DATA` computes them for other labelled images.",
    ]
    return "\n".join(lines) + "\n"


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
