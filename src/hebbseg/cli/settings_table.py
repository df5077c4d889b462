"""The table of all settings that ``hebbseg train --list-settings`` prints."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hebbseg.cli.settings_options import choices, default_text
from hebbseg.config import FLAT_NAMES, PRESETS, Settings, preset_values

DATA_SETS = {"glas": "GlaS", "ph2": "PH2", "hmeps": "HMEPS", "la": "LA"}


def show_settings(data: str | None = None, given: Mapping[str, Any] | None = None) -> None:
    """Print the settings by section, with their defaults and meanings; with a preset, also its values.

    Args:
        data: the data set whose values of the preset are shown; None: all data sets of the paper.
        given: settings by flat name, ``preset`` among them; some values of a preset depend on them.
    """
    given = dict(given or {})
    preset = str(given.get("preset") or PRESETS[0])
    columns = ["default", preset] if preset != PRESETS[0] else ["default"]
    table = Table(box=box.SIMPLE, title="--set NAME=VALUE", title_justify="left")
    for heading in ("name", *columns, "meaning"):
        table.add_column(heading, no_wrap=heading == "name")
    sources = [data] if data else [f"{name}:" for name in DATA_SETS]
    values = {source: preset_values(preset, source, given) for source in sources}
    previous = ""
    for name, (section, _, field) in FLAT_NAMES.items():
        if name == "data":
            continue
        if section and section != previous:
            table.add_section()
            title = f"[bold]{Settings.model_fields[section].annotation.__doc__}[/]"
            table.add_row(f"[bold]{section.upper()}[/]", *[""] * len(columns), title)
            previous = section
        default = default_text(field.get_default(call_default_factory=True))
        shown = [escape(default)]
        if len(columns) > 1:
            texts = {source: _text({"preset": preset, **v}.get(name, default)) for source, v in values.items()}
            other = _by_data_set(texts)
            shown.append(escape(other) if other == default else f"[bold]{escape(other)}[/]")
        table.add_row(name, *shown, escape(_meaning(field)))
    Console().print(table)
    if len(columns) > 1:
        Console().print("Values in bold differ from the default. Some depend on --init, --method and --set rule=NAME.")


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        return " ".join(f"{name}={part}" for name, part in value.items())
    return "none" if value is None else default_text(value)


def _by_data_set(texts: Mapping[str, str]) -> str:
    """``{"glas:": "0.5", "ph2:": "0.5", "la:": "0.1"}`` → ``"0.5 (LA: 0.1)"``."""
    names: dict[str, list[str]] = {}
    for source, text in texts.items():
        names.setdefault(text, []).append(DATA_SETS.get(source.partition(":")[0], source))
    first, *others = names
    return first + "".join(f" ({', '.join(names[text])}: {text})" for text in others)


def _meaning(field: Any) -> str:
    words, meaning = choices(field.annotation), str(field.description)
    return meaning if all(word in meaning for word in words) else f"{meaning} ({' | '.join(words)})"
