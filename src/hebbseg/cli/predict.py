"""hebbseg predict: segmentation masks for new images."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import (
    FillHolesOption,
    MinSizeOption,
    Model,
    ObjectsOption,
    OverwriteOption,
    TrustOption,
    TtaOption,
    output_folder,
    show_facts,
)
from hebbseg.cli.settings_options import takes_settings
from hebbseg.errors import HebbsegError


@takes_settings("accelerator")
def predict(
    model: Model,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES",
            help="Image files, folders, patterns ('scans/**/*.png'), - for a list on standard input, or DATA as in train.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Output folder; created if needed.")] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="MODEL", help="Another model: predictions are averaged. May be repeated."),
    ] = None,
    tta: TtaOption = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            "--outputs",
            metavar="NAME,…",
            help="Files to write besides masks: overlay, uncertainty, prob (probabilities of all classes), objects "
            "(as --objects components). "
            "[dim]\\[mask,overlay,uncertainty][/]",
        ),
    ] = None,
    overlays: Annotated[
        bool | None, typer.Option("--overlays/--no-overlays", help="Draw mask contours on the images.", show_default=False)
    ] = None,
    uncertainty: Annotated[
        bool | None,
        typer.Option(
            "--uncertainty/--no-uncertainty", help="Write uncertainty maps: 0 is certain, 255 undecided.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--continue", help="Skip images that have a mask in OUT. Several processes or machines can share OUT this way."
        ),
    ] = False,
    objects: ObjectsOption = None,
    min_size: MinSizeOption = None,
    fill_holes: FillHolesOption = None,
    geojson: Annotated[
        bool,
        typer.Option(
            "--geojson", help="Write outlines for QuPath: of the objects, or without --objects of the areas of the mask."
        ),
    ] = False,
    level: Annotated[
        int | None,
        typer.Option(
            "--level",
            min=0,
            metavar="N",
            help="Level of OME-TIFF and OME-Zarr pyramids to predict: 0 is the largest. [dim]\\[0][/]",
            show_default=False,
        ),
    ] = None,
    um_per_pixel: Annotated[
        float | None,
        typer.Option(
            "--um-per-pixel",
            metavar="X",
            help="Predict the level of the pyramid whose pixels are X micrometers apart.",
            show_default=False,
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    trust: TrustOption = False,
    *,
    accelerator: str | None = None,
) -> None:
    """Predict a mask for each image, in the image's format and geometry, with the class values of the training masks.

    \b
    Examples:
      hebbseg predict run1 new_images/ -o masks/
      hebbseg predict run1 scan.nii.gz -o masks/ --tta flips --with run2
      hebbseg predict run1 nuclei/ -o masks/ --objects watershed --min-size 20 --geojson
      hebbseg predict model.onnx 'scans/**/*.png' -o masks/ --continue --outputs mask,prob
      hebbseg predict run1 slide.ome.tif -o masks/ --um-per-pixel 1

    OUT contains the masks, overlays/*.png, uncertainty/ and probabilities/, in the folder structure of the images. With
    --objects, it also contains label images of the numbered objects (objects/) and their measurements (objects.csv); with
    --geojson, outlines (geojson/). If an image cannot be read, the others are still predicted and the exit code is 1.
    Images larger than 4096×4096 (TIFF, OME-Zarr) and volumes larger than 406×406×406 are streamed from disk to disk if the
    model was trained in patches (--size native --patch HxW). The mask of a pyramid is a pyramid.
    """
    folder = output_folder(out, shlex.join(["hebbseg", "predict", str(model), images[0], "-o", "masks/"]))
    from hebbseg.cli.models import load_models, object_options
    from hebbseg.cli.progress import make_reporter
    from hebbseg.data.io.formats import suffix_of
    from hebbseg.data.progress import counted
    from hebbseg.inference.files import find_inputs, plan, predict_files
    from hebbseg.inference.fitting import refuse_other_dimensions
    from hebbseg.inference.input_lists import expanded
    from hebbseg.inference.object_files import ObjectFiles
    from hebbseg.inference.outputs import DEFAULT, parse_outputs, with_probabilities
    from hebbseg.inference.pyramids import at_level
    from hebbseg.inference.shared import Shared, predict_shared

    if resume and overwrite:
        raise HebbsegError("--continue keeps existing masks and --overwrite replaces them. Pass one of the two.")
    chosen = parse_outputs(DEFAULT if outputs is None else outputs)
    objects = objects or ("components" if "objects" in chosen else None)
    options = object_options(objects, min_size, fill_holes)
    if resume and (options is not None or geojson):
        raise HebbsegError("--continue does not work with --objects and --geojson (objects.csv lists all images). Omit it.")
    overlays = "overlay" in chosen if overlays is None else overlays
    uncertainty = "uncertainty" in chosen if uncertainty is None else uncertainty
    images = expanded(images, sys.stdin)
    segmenters = load_models([model, *(ensemble or [])], tta=tta, accelerator=accelerator, trust=trust)
    inputs, problems = find_inputs(images, leave_out=folder)
    refuse_other_dimensions(segmenters[0], inputs)
    inputs = at_level(inputs, level, um_per_pixel)
    files = ObjectFiles(folder, options, outlines=geojson) if options is not None or geojson else None
    if files is not None:
        files.check(segmenters[0])
    replaces = overwrite or resume
    targets = plan(
        segmenters,
        inputs,
        folder,
        overlays=overlays,
        uncertainty_maps=uncertainty,
        objects=files,
        overwrite=replaces,
    )
    if "prob" in chosen:
        targets = with_probabilities(inputs, targets, folder, overwrite=replaces)
    shared: Shared | None = None
    with make_reporter() as reporter:
        for problem in problems:
            reporter.say(f"left out: {problem}")
        if resume:
            shared = predict_shared(segmenters, inputs, targets, folder, reporter=reporter)
            outcome = shared.outcome
        else:
            outcome = predict_files(segmenters, inputs, targets, objects=files, reporter=reporter)
    facts = [("masks", f"{len(outcome.masks)} in {folder}")]
    if shared is not None:
        facts.append(("finished", f"{counted(shared.finished, 'image')} already had a mask"))
        if shared.elsewhere:
            are = "is" if shared.elsewhere == 1 else "are"
            facts.append(("elsewhere", f"{counted(shared.elsewhere, 'image')} {are} being predicted by another process"))
    if overlays and outcome.masks:
        facts.append(("overlays", str(folder / "overlays")))
    if uncertainty and outcome.masks:
        facts.append(("uncertainty", str(folder / "uncertainty")))
    if "prob" in chosen and outcome.masks:
        facts.append(("probabilities", str(folder / "probabilities")))
    if files is not None and outcome.masks:
        facts += files.finish()
    unread = [problem for problem in problems if suffix_of(problem.file)]
    if outcome.failures or unread:
        facts.append(("failed", f"{counted(len(outcome.failures) + len(unread), 'image')}, listed above"))
    show_facts(facts)
    if not outcome.masks and outcome.failures and not (shared and shared.finished):
        none = f"None of the {len(inputs)} images" if len(inputs) > 1 else "The image"
        raise HebbsegError(f"{none} could {'' if len(inputs) > 1 else 'not '}be predicted. First error: {outcome.failures[0]}")
    if outcome.failures or unread:
        raise typer.Exit(1)
