"""hebbseg points: masks from points or boxes."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import OverwriteOption, output_folder, show_facts
from hebbseg.errors import HebbsegError


def points(
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help="Folder of images.", show_default=False)],
    tables: Annotated[
        Path, typer.Argument(metavar="TABLES", help="Folder of tables, NAME.csv of image NAME.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="MASKS", help="Folder of the masks.")] = None,
    radius: Annotated[
        float | None, typer.Option("--radius", metavar="N", help="Radius of the smallest object in pixels.", show_default=False)
    ] = None,
    ring: Annotated[
        float | None,
        typer.Option("--ring", metavar="N", help="How much larger the largest object is, in pixels. [dim]\\[as --radius][/]"),
    ] = None,
    boxes: Annotated[bool, typer.Option("--boxes", help="The tables contain boxes.")] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Write training masks from tables with one point or box per object.

    \b
    Examples:
      hebbseg points nuclei/images nuclei/points -o nuclei/masks --radius 4
      hebbseg points nuclei/images nuclei/boxes -o nuclei/masks --boxes

    Points have the columns y and x (volumes: z, y, x) in pixels, boxes top, left, bottom and right (volumes: also front and
    back), their first and last pixels. A point becomes a disc with a ring that is not annotated, a box the ellipse that
    touches it; all other pixels are background, so every object needs one. Pixels that are not annotated have the value 255:
    train with --ignore 255. Images without a table stay unlabelled.
    """
    folder = output_folder(out, shlex.join(["hebbseg", "points", str(images), str(tables), "-o", "masks", "--radius", "4"]))
    from hebbseg.cli.check_table import progress
    from hebbseg.data.labels.point_files import find_tables, write_masks

    if boxes == (radius is not None):
        raise HebbsegError(
            "--boxes and --radius exclude each other: boxes have a size. Pass one of the two."
            if boxes
            else "--radius is missing: the radius of the smallest object in pixels, such as --radius 4. For boxes: --boxes."
        )
    if boxes and ring is not None:
        raise HebbsegError("--ring applies to points. Omit it with --boxes.")
    works = find_tables(images, tables, folder, overwrite=overwrite)
    with progress(len(works)) as advance:
        objects, share = write_masks(works, radius=radius, ring=ring if ring is not None else radius or 0, on_mask=advance)
    facts = [("masks", f"{len(works)} in {folder}"), ("objects", str(objects))]
    show_facts([*facts, ("annotated", f"{100 * share:.3g} % of the pixels"), ("next", "hebbseg train DATA --ignore 255")])
