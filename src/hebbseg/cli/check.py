"""hebbseg check: cases, classes and problems of a data set."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from hebbseg.cli.options import Data
from hebbseg.cli.settings_options import takes_settings
from hebbseg.errors import HebbsegError


@takes_settings("label_map", "group", "mask_threshold", "instances", "ignore", "images", "masks", "level")
def check(
    data: Data,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    sheet: Annotated[
        Path | None,
        typer.Option("--sheet", metavar="PNG", help="File of the contact sheet. [dim]\\[NAME-check.png][/]"),
    ] = None,
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Do not draw a contact sheet.")] = False,
    **reading: Any,
) -> None:
    """Check DATA before training: cases, masks, classes, sizes, patients, and problems and how to fix them.

    \b
    Examples:
      hebbseg check my_data/
      hebbseg check my_data/ --group patients.csv:patient
      hebbseg check DRIVE/ --masks 1st_manual

    Also draws a contact sheet of images with their masks. The exit code is 1 if a problem must be fixed before training, and 2
    if DATA cannot be read.
    """
    from hebbseg.atomic_files import refuse_unwritable
    from hebbseg.cli.check_table import progress, show
    from hebbseg.data.inspect import examine
    from hebbseg.data.inspect_report import failed_report, report
    from hebbseg.data.sources import open_source

    try:
        source = open_source(data, **reading)
    except HebbsegError as error:
        if json:
            print_json(failed_report(data, error))
        raise
    target: Path | None = None
    if not no_sheet and (sheet is not None or not json):
        target = sheet or Path(re.sub(r"[^\w.-]+", "-", f"{source.name}-check.png"))
        refuse_unwritable(target.parent)
    with nullcontext() if json else progress(len(source.cases)) as advance:
        examination = examine(source, on_case=advance)
    summary = report(examination)
    if target is not None and examination.usable:
        from hebbseg.reporting.plots.contact_sheet import contact_sheet

        summary["sheet"] = str(contact_sheet(source, examination.usable, examination.classes, target))
    (print_json if json else show)(summary)
    if examination.fatal:
        raise typer.Exit(1)


def print_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, indent=2))
