"""The formats of ``hebbseg export``."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.inference.export.bioimageio import write_bioimageio
from hebbseg.inference.export.description import describing
from hebbseg.inference.export.onnx_file import OnnxNetwork, require, write_onnx
from hebbseg.inference.export.torchscript import write_torchscript
from hebbseg.inference.export.traced import Checked
from hebbseg.inference.predictor import Predictor


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format: its suffix, the packages it needs, and the function that writes it."""

    suffix: str
    write: Callable[[Predictor, Path, Path | None], Checked]
    needs: tuple[str, ...] = ()


def _onnx(predictor: Predictor, path: Path, example: Path | None) -> Checked:
    return write_onnx(predictor, path, describing(predictor, "onnx"))


def _torchscript(predictor: Predictor, path: Path, example: Path | None) -> Checked:
    return write_torchscript(predictor, path, describing(predictor, "torchscript"))


FORMATS = {
    "onnx": Format(suffix=".onnx", write=_onnx, needs=("onnx", "onnxruntime")),
    "torchscript": Format(suffix=".pt", write=_torchscript),
    "bioimageio": Format(suffix=".zip", write=write_bioimageio, needs=("onnx", "onnxruntime")),
}


def find_format(name: str | None, out: Path) -> str:
    """Return the format: the given name, or that of the suffix of the output file."""
    if name is not None and name not in FORMATS:
        raise HebbsegError(f"--format {name!r} is unknown. {did_you_mean(name, FORMATS)}")
    by_suffix = {known.suffix: key for key, known in FORMATS.items()}
    found = name or by_suffix.get(out.suffix.lower())
    if found is None:
        allowed = ", ".join(f"{suffix} ({key})" for suffix, key in by_suffix.items())
        raise HebbsegError(f"{out}: no --format is given, and the suffix {out.suffix!r} names none. Suffixes: {allowed}.")
    if out.suffix.lower() != FORMATS[found].suffix:
        raise HebbsegError(f"{out}: files of format {found} end in {FORMATS[found].suffix}. Rename the output file.")
    return found


def check_export(format: str, out: Path, *, overwrite: bool = False) -> None:
    """Raise, before the model is read, if the file exists or a package is missing."""
    if out.is_dir():
        raise HebbsegError(f"{out} is a folder. Give the name of a file, such as {out / f'model{FORMATS[format].suffix}'}.")
    if out.exists() and not overwrite:
        raise HebbsegError(f"{out} already exists. Choose another -o, or pass --overwrite. Nothing was written.")
    for module in FORMATS[format].needs:
        require(module)


def export_model(
    predictor: Predictor, out: Path, *, format: str | None = None, example: Path | None = None, overwrite: bool = False
) -> Checked:
    """Write a model in another format; its outputs are compared with PyTorch's before the file is in place.

    Args:
        format: a name in `FORMATS`; default: by the suffix of ``out``.
        example: an image for the test data and cover of a bioimage.io package.
    """
    name = find_format(format, out)
    check_export(name, out, overwrite=overwrite)
    if isinstance(predictor.network, OnnxNetwork):
        raise HebbsegError(f"{predictor.network.name}: an ONNX file cannot be exported again. Export model.safetensors.")
    if example is not None and name != "bioimageio":
        raise HebbsegError(f"--example: format {name} contains no example image. Only bioimageio does.")
    return FORMATS[name].write(predictor, out, example)
