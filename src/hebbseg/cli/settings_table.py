"""The table of all settings that ``hebbseg train --list-settings`` prints."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hebbseg.cli.settings_options import choices, default_text
from hebbseg.config import FLAT_NAMES, Settings


def show_settings() -> None:
    """Print the settings by section, with their defaults and meanings."""
    table = Table(box=box.SIMPLE, title="--set NAME=VALUE", title_justify="left")
    for heading in ("name", "default", "meaning"):
        table.add_column(heading, no_wrap=heading == "name")
    previous = ""
    for name, (section, _, field) in FLAT_NAMES.items():
        if name == "data":
            continue
        if section != previous:
            table.add_section()
            table.add_row(f"[bold]{section.upper()}[/]", "", f"[bold]{Settings.model_fields[section].annotation.__doc__}[/]")
            previous = section
        words = choices(field.annotation)
        meaning = str(field.description)
        if not all(word in meaning for word in words):
            meaning += f" ({' | '.join(words)})"
        table.add_row(name, escape(default_text(field.get_default(call_default_factory=True))), escape(meaning))
    Console().print(table)
