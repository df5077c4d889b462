"""Options that several commands share, and how their texts are read."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hebbseg.errors import HebbsegError

DATA_HELP = (
    "A folder (images/ and masks/, or nnU-Net's layout), a zip, or glas:PATH, ph2:PATH, hmeps:PATH, la:PATH, "
    "dsb2018:PATH, phantom:NAME."
)
ABOUT_DATA = "What the files mean"
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
LabelMapOption = Annotated[
    str | None,
    typer.Option(
        "--label-map",
        metavar="MAP",
        help="Which mask value is which class: 'background=0;gland=255', or a JSON file.",
        rich_help_panel=ABOUT_DATA,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Who the patient is: 'table.csv:column', or a pattern like '^(p[0-9]+)_'.",
        rich_help_panel=ABOUT_DATA,
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--mask-threshold",
        metavar="T",
        help="Mask values from T on are foreground (for masks with soft edges).",
        rich_help_panel=ABOUT_DATA,
    ),
]
InstancesOption = Annotated[
    bool | None,
    typer.Option(
        "--instances/--no-instances",
        help="Mask values number objects: all above 0 is foreground.",
        show_default=False,
        rich_help_panel=ABOUT_DATA,
    ),
]
AcceleratorOption = Annotated[
    str | None, typer.Option("--accelerator", metavar="auto|cpu|cuda|mps", help="What computes. [dim]\\[auto][/]")
]
TtaOption = Annotated[
    str | None,
    typer.Option("--tta", metavar="none|flips|flips+rot", help="Predict mirrored (and turned) copies too and take the mean."),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import and call the network factory that MODEL names, even if it is neither hebbseg's nor MONAI's.",
    ),
]

_DURATION = re.compile(r"(?=.)(?:([\d.]+)\s*h)?\s*(?:([\d.]+)\s*m(?:in)?)?\s*(?:([\d.]+)\s*s?)?", re.IGNORECASE)


def seconds(text: str, option: str = "--time-budget") -> float:
    """``"30m"``, ``"1h30m"``, ``"90s"`` or ``"90"`` in seconds.

    >>> seconds("1h30m")
    5400.0
    """
    match = _DURATION.fullmatch(text.strip())
    try:
        hours, minutes, rest = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    except ValueError:
        hours = minutes = rest = 0.0
    total = 3600 * hours + 60 * minutes + rest
    if not 0 < total < math.inf:
        raise HebbsegError(f"{option} {text!r} is not a length of time. Write it as 90s, 30m or 1h30m.")
    return total


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """``["learning-rate=0.01", "method_options.weight=5"]`` → {"learning_rate": "0.01", "method_options": {"weight": 5}}."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise HebbsegError(f"--set {text!r} is not NAME=VALUE. Example: --set learning_rate=0.001")
        name, dot, part = name.partition(".")
        place, key = (settings.setdefault(name, {}), part) if dot else (settings, name)
        if not isinstance(place, dict) or key in place:
            raise HebbsegError(f"--set {text!r}: {name} is given twice. Keep one of them.")
        # What is inside an option of a method has no declared type, so that its text must show it.
        place[key] = _plain(value.strip()) if dot else value.strip()
    return settings


def _plain(text: str) -> Any:
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | list) else text


class SettingsCommand(TyperCommand):
    """A command with ``--set``: whoever writes ``--learning-rate 0.01`` is told of ``--set learning_rate=0.01``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
            if name:
                from hebbseg.config import FLAT_NAMES, OLD_NAMES

                if name in {*FLAT_NAMES, *OLD_NAMES}:
                    raise HebbsegError(f"There is no option --{name}; it is a setting: --set {name}=VALUE") from None
            raise


def output_folder(out: Path | None, example: str) -> Path:
    """The ``-o`` of a command that needs one."""
    if out is None:
        raise HebbsegError(f"Where should the results go? Give a folder with -o, as in `{example}`.")
    from hebbseg.atomic_files import refuse_unwritable

    refuse_unwritable(out)
    return out


def check_place(data: str) -> None:
    """Raises at once if DATA is not there: a typo should not wait for torch to load."""
    from hebbseg.data.sources import find_place

    find_place(data)


def show_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Names and values on stdout, one below the other."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
