"""Options shared by several commands, and the parsers of their values."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hebbseg.errors import HebbsegError

DATA_HELP = (
    "A folder with images/ and masks/, an nnU-Net folder, a zip archive of either, or glas:PATH, ph2:PATH, hmeps:PATH, "
    "la:PATH, dsb2018:PATH, phantom:NAME."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or its model.safetensors.", show_default=False)]
TtaOption = Annotated[
    str | None,
    typer.Option(
        "--tta", metavar="NAME", help="Test-time augmentation: none, flips or flips+rot. [dim]\\[as set in training][/]"
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="Allow MODEL to import a network factory that belongs to neither hebbseg nor MONAI."),
]
ObjectsOption = Annotated[
    str | None,
    typer.Option(
        "--objects",
        metavar="components|watershed",
        help="Find objects. components: connected areas; watershed: areas are also cut at necks.",
    ),
]
MinSizeOption = Annotated[
    int | None, typer.Option("--min-size", metavar="N", help="Remove objects of fewer than N pixels (voxels). [dim]\\[0][/]")
]
FillHolesOption = Annotated[
    bool | None,
    typer.Option("--fill-holes/--no-fill-holes", help="Fill the holes of objects. [dim]\\[fill][/]", show_default=False),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace existing results.")]

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_DURATION = re.compile(rf"(?=.)(?:{_NUMBER}\s*h)?\s*(?:{_NUMBER}\s*m(?:in)?)?\s*(?:{_NUMBER}\s*s)?", re.IGNORECASE)


def seconds(text: str) -> float:
    """Return the seconds in ``"30m"``, ``"1h30m"`` or ``"90s"``, a value of ``--time-budget``.

    >>> seconds("1h30m")
    5400.0
    """
    given = text.strip()
    if re.fullmatch(_NUMBER, given) and float(given) > 0:
        raise HebbsegError(f"--time-budget {given} has no unit. Write {given}s, {given}m or {given}h.")
    match = _DURATION.fullmatch(given)
    total = sum(unit * float(part or 0) for unit, part in zip((3600, 60, 1), match.groups(), strict=True)) if match else 0.0
    if not 0 < total < math.inf:
        raise HebbsegError(f"--time-budget {text!r} is not a duration. Examples: 90s, 30m, 1h30m.")
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
            raise HebbsegError(f"--set {text!r}: {name} is set twice. Remove one of the two values.")
        # Options of methods have no declared type here: it follows from the text.
        place[key] = _plain(value.strip()) if dot else value.strip()
    return settings


def _plain(text: str) -> Any:
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | list) else text


def output_folder(out: Path | None, example: str) -> Path:
    """Return the folder given with ``-o``; raise an error if it is missing or not writable."""
    if out is None:
        raise HebbsegError(f"Option -o (output folder) is missing. Example: {example}")
    from hebbseg.atomic_files import refuse_unwritable

    refuse_unwritable(out)
    return out


def show_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values to stdout, one pair per line."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
