"""hebbseg export: a model as ONNX, TorchScript or bioimage.io package."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import Model, OverwriteOption, TrustOption, show_facts
from hebbseg.errors import HebbsegError


def export(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Output file; must not exist, unless --overwrite is given."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="onnx, torchscript or bioimageio. [dim]\\[by the suffix of FILE][/]"),
    ] = None,
    example: Annotated[
        Path | None,
        typer.Option("--example", metavar="IMAGE", help="Image for the test data and cover of a bioimage.io package."),
    ] = None,
    overwrite: OverwriteOption = False,
    trust: TrustOption = False,
) -> None:
    """Export MODEL to a format that other programs read: ONNX (.onnx), TorchScript (.pt) or bioimage.io (.zip).

    \b
    Examples:
      hebbseg export run1 -o model.onnx
      hebbseg export run1 -o model.zip --format bioimageio --example image.png

    The exported network takes normalized images of any size, in batches of any size, and returns class probabilities. FILE
    describes preprocessing and classes. Before FILE is written, its outputs are compared with PyTorch's at two image sizes.
    Test-time augmentation and sliding windows are not part of the network.
    """
    if out is None:
        raise HebbsegError(
            f"Option -o is missing. Example: {shlex.join(['hebbseg', 'export', str(model), '-o', 'model.onnx'])}"
        )
    from hebbseg.atomic_files import refuse_unwritable
    from hebbseg.inference.export.formats import check_export, export_model, find_format
    from hebbseg.inference.predictor import Predictor

    name = find_format(format, out)
    refuse_unwritable(out.parent)
    check_export(name, out, overwrite=overwrite)
    predictor = Predictor.load(model, trust=trust)
    checked = export_model(predictor, out, format=name, example=example, overwrite=overwrite)
    sizes = " and ".join("×".join(map(str, size)) for size in checked.sizes)
    facts = [("written", f"{out} ({name}, {out.stat().st_size / 1e6:.1f} MB)")]
    facts.append(("checked", f"inputs {sizes}: probabilities differ from PyTorch's by at most {checked.difference:.1g}"))
    if checked.step > 1:
        facts.append(("sizes", f"sides of images must be multiples of {checked.step}"))
    if predictor.borders:
        user = "; `hebbseg predict --objects` separates touching objects with it" if name == "onnx" else ""
        facts.append(("borders", f"second output{user}"))
    if name == "onnx":
        facts.append(("next", shlex.join(["hebbseg", "predict", str(out), "NEW_IMAGES", "-o", "masks"])))
    show_facts(facts)
