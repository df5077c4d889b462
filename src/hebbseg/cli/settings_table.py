"""All settings of a run, for `hebbseg train --list-settings`."""

from typing import Any, Literal, get_args, get_origin

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hebbseg.config import FLAT_NAMES


def show_settings() -> None:
    table = Table(box=box.SIMPLE, title="--set NAME=VALUE", title_justify="left")
    for heading in ("name", "default", "meaning"):
        table.add_column(heading, no_wrap=heading == "name")
    last = ""
    for name, (section, _, field) in FLAT_NAMES.items():
        if name == "data":
            continue
        if section != last:
            table.add_section()
            last = section
        default = field.get_default(call_default_factory=True)
        choices = _choices(field.annotation)
        meaning = ". ".join(part for part in (field.description or "", " | ".join(choices)) if part)
        table.add_row(name, escape(_text(default)), escape(meaning))
    Console().print(table)


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default is None or default == {} else str(default)


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]
