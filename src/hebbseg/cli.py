"""The command line. Commands import what they need when they run, so that ``hebbseg --help`` answers at once."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hebbseg import __version__
from hebbseg.errors import HebbsegError

app = typer.Typer(
    name="hebbseg",
    help="Biomedical image segmentation when images are many and masks are few.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder (images/ and masks/, or nnU-Net's layout), a zip, or glas:PATH, ph2:PATH, hmeps:PATH, la:PATH, "
        "dsb2018:PATH, phantom:NAME.",
        show_default=False,
    ),
]
LabelMapOption = Annotated[
    str | None,
    typer.Option(
        "--label-map", metavar="MAP", help="Which mask value is which class: 'background=0;gland=255', or a JSON file."
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="GROUP", help="Who the patient is: 'table.csv:column', or a pattern like '^(p[0-9]+)_'."
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--mask-threshold", metavar="T", help="Mask values from T on are foreground (for masks with soft edges)."
    ),
]
InstancesOption = Annotated[
    bool | None,
    typer.Option(
        "--instances/--no-instances", help="Mask values number objects: all above 0 is foreground.", show_default=False
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hebbseg {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere on the line).")
    ] = False,
) -> None:
    pass


@app.command()
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
    from hebbseg.data.check import examine, failed_report, report
    from hebbseg.data.sources import open_source

    try:
        source = open_source(data, label_map=label_map, group=group, mask_threshold=mask_threshold, instances=instances)
    except HebbsegError as error:
        if json:
            _print_json(failed_report(data, error))
        raise
    if json:
        examination = examine(source)
    else:
        from hebbseg.data.checktable import progress

        with progress(len(source.cases)) as advance:
            examination = examine(source, on_case=advance)
    summary = report(examination)
    if not no_sheet and examination.usable and (sheet is not None or not json):
        from hebbseg.data.sheet import contact_sheet

        target = sheet or Path(re.sub(r"[^\w.-]+", "-", f"{source.name}-check.png"))
        summary["sheet"] = str(contact_sheet(source, examination.usable, examination.classes, target))
    if json:
        _print_json(summary)
    else:
        from hebbseg.data.checktable import show

        show(summary)


def _print_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, indent=2))


def main() -> None:
    """The entry point: an error the user can mend is one message on stderr and exit code 2."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    try:
        app([argument for argument in arguments if argument != "--debug"])
    except HebbsegError as error:
        if debug:
            raise
        typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(error), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
