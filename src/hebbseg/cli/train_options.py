"""The options of training commands; each is named like the setting it sets."""

from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.options import DATA_HELP

LEARNING, SPLITTING, IMAGES, MACHINE = "How it learns", "Who is trained on and tested", "Images and network", "Machine"


def _list_settings(wanted: bool) -> None:
    if wanted:
        from hebbseg.cli.settings_table import show_settings

        show_settings()
        raise typer.Exit


DataUnlessResumed = Annotated[
    str | None, typer.Argument(metavar="DATA", help=f"{DATA_HELP} Not needed with --resume.", show_default=False)
]
OutOption = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="RUN", help="The run folder; it must not hold another run.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in RUN, with the settings it was begun with.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; may be given several times. See --list-settings."),
]
ListOption = Annotated[
    bool,
    typer.Option(
        "--list-settings", callback=_list_settings, is_eager=True, help="Show all settings, their defaults, and exit."
    ),
]
HelpMethodOption = Annotated[
    bool,
    typer.Option("--help-method", help="Explain the --method and its options, and exit.", rich_help_panel=LEARNING),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Of split, weights, batches, augmentation. [dim]\\[0][/]",
        rich_help_panel=SPLITTING,
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="HxW|native",
        help="Images are resized to this; native: not at all. [dim]\\[128x128; volumes native][/]",
        rich_help_panel=IMAGES,
    ),
]
PatchOption = Annotated[
    str | None,
    typer.Option(
        "--patch",
        metavar="HxW[xD]|none",
        help="Learn on random patches of this size and predict window by window. [dim]\\[volumes: 96x96x80 at most][/]",
        rich_help_panel=IMAGES,
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NAME",
        help="unet, or the dotted name of any PyTorch network factory, as in monai.networks.nets.DynUNet. [dim]\\[unet][/]",
        rich_help_panel=IMAGES,
    ),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="N,N,…",
        help="Channels of each UNet level. [dim]\\[16,32,64,128,256][/]",
        rich_help_panel=IMAGES,
    ),
]
DevicesOption = Annotated[
    int | None, typer.Option("--devices", metavar="N", help="Processes on this machine.", rich_help_panel=MACHINE)
]
NodesOption = Annotated[
    int | None, typer.Option("--num-nodes", metavar="N", help="Machines that work together.", rich_help_panel=MACHINE)
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", metavar="32-true|bf16-mixed|16-mixed", rich_help_panel=MACHINE)
]
