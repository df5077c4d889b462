"""hebbseg check: what was understood of the data."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from hebbseg.cli.options import Data, GroupOption, InstancesOption, LabelMapOption, ThresholdOption
from hebbseg.errors import HebbsegError


def check(
    data: Data,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    sheet: Annotated[
        Path | None,
        typer.Option("--sheet", metavar="PNG", help="Where the contact sheet goes. [default: NAME-check.png]"),
    ] = None,
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Draw no contact sheet.")] = False,
    label_map: LabelMapOption = None,
    group: GroupOption = None,
    mask_threshold: ThresholdOption = None,
    instances: InstancesOption = None,
) -> None:
    """Show what was understood of DATA: cases, masks, classes, sizes, groups, and every problem with its remedy."""
    from hebbseg.atomic_files import refuse_unwritable
    from hebbseg.data.inspect import examine
    from hebbseg.data.inspect_report import failed_report, report
    from hebbseg.data.sources import open_source

    try:
        source = open_source(data, label_map=label_map, group=group, mask_threshold=mask_threshold, instances=instances)
    except HebbsegError as error:
        if json:
            print_json(failed_report(data, error))
        raise
    target: Path | None = None
    if not no_sheet and (sheet is not None or not json):
        target = sheet or Path(re.sub(r"[^\w.-]+", "-", f"{source.name}-check.png"))
        refuse_unwritable(target.parent)
    if json:
        examination = examine(source)
    else:
        from hebbseg.cli.check_table import progress

        with progress(len(source.cases)) as advance:
            examination = examine(source, on_case=advance)
    summary = report(examination)
    if target is not None and examination.usable:
        from hebbseg.reporting.plots.contact_sheet import contact_sheet

        summary["sheet"] = str(contact_sheet(source, examination.usable, examination.classes, target))
    if json:
        print_json(summary)
    else:
        from hebbseg.cli.check_table import show

        show(summary)


def print_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, indent=2))
