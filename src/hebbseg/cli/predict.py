"""hebbseg predict: segmentation masks for new images."""

import shlex
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
        typer.Argument(metavar="IMAGES", help="Image files, folders of images, or DATA as in train.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Output folder; created if needed.")] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="MODEL", help="Another model: predictions are averaged. May be repeated."),
    ] = None,
    tta: TtaOption = None,
    overlays: Annotated[bool, typer.Option("--overlays/--no-overlays", help="Draw mask contours on the images.")] = True,
    uncertainty: Annotated[
        bool,
        typer.Option("--uncertainty/--no-uncertainty", help="Write uncertainty maps: 0 is certain, 255 undecided."),
    ] = True,
    objects: ObjectsOption = None,
    min_size: MinSizeOption = None,
    fill_holes: FillHolesOption = None,
    geojson: Annotated[
        bool,
        typer.Option(
            "--geojson", help="Write outlines for QuPath: of the objects, or without --objects of the areas of the mask."
        ),
    ] = False,
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

    OUT contains the masks, overlays/*.png and uncertainty/. With --objects, it also contains label images of the numbered
    objects (objects/) and their measurements (objects.csv); with --geojson, outlines (geojson/). If an image cannot be read,
    the others are still predicted and the exit code is 1. Uncompressed TIFFs larger than 4096×4096 are streamed from disk to
    disk if the model was trained with --size native --patch HxW, and neither --objects nor --geojson is given.
    """
    folder = output_folder(out, shlex.join(["hebbseg", "predict", str(model), images[0], "-o", "masks/"]))
    from hebbseg.cli.models import load_models, object_options
    from hebbseg.cli.progress import make_reporter
    from hebbseg.data.io.formats import suffix_of
    from hebbseg.inference.files import find_inputs, plan, predict_files
    from hebbseg.inference.object_files import ObjectFiles

    options = object_options(objects, min_size, fill_holes)
    segmenters = load_models([model, *(ensemble or [])], tta=tta, accelerator=accelerator, trust=trust)
    inputs, problems = find_inputs(images, leave_out=folder)
    files = ObjectFiles(folder, options, outlines=geojson) if options is not None or geojson else None
    if files is not None:
        files.check(segmenters[0])
    targets = plan(
        segmenters,
        inputs,
        folder,
        overlays=overlays,
        uncertainty_maps=uncertainty,
        objects=files,
        overwrite=overwrite,
    )
    with make_reporter() as reporter:
        for problem in problems:
            reporter.say(f"left out: {problem}")
        outcome = predict_files(segmenters, inputs, targets, objects=files, reporter=reporter)
    facts = [("masks", f"{len(outcome.masks)} in {folder}")]
    if overlays and outcome.masks:
        facts.append(("overlays", str(folder / "overlays")))
    if uncertainty and outcome.masks:
        facts.append(("uncertainty", str(folder / "uncertainty")))
    if files is not None and outcome.masks:
        facts += files.finish()
    unread = [problem for problem in problems if suffix_of(problem.file)]
    if outcome.failures or unread:
        facts.append(("failed", f"{len(outcome.failures) + len(unread)} images, listed above"))
    show_facts(facts)
    if not outcome.masks:
        raise HebbsegError(f"None of the {len(inputs)} images could be predicted. First error: {outcome.failures[0]}")
    if outcome.failures or unread:
        raise typer.Exit(1)
