"""The reference of the command line, from its own commands and options."""

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from rich.text import Text

from hebbseg.cli.app import app

HEAD = """# Command line

Made by `make docs` from the commands themselves; `hebbseg COMMAND --help` shows the same. `--set NAME=VALUE` sets
[every other setting](options.md). User errors print one message and exit with code 2, Ctrl-C exits with 130; `--debug`
shows the traceback of an error.
"""


def command_line_page() -> str:
    """Return the page of all commands."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("hebbseg", ["check"], resilient_parsing=True)
    parts = [HEAD]
    for name in group.list_commands(context):
        parts += _command(group.get_command(context, name), name)
    return "\n".join(parts)


def _command(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    params = command.get_params(context)
    yield f"## hebbseg {name}\n"
    arguments = " ".join(
        piece.translate({ord("{"): None, ord("}"): None})
        for param in params
        if param.param_type_name == "argument"
        for piece in param.get_usage_pieces(context)
    )
    yield f"```text\nhebbseg {name} [OPTIONS] {arguments}".rstrip() + "\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            title, _, lines = paragraph.removeprefix("\b\n").partition("\n")
            yield f"{title}\n\n```text\n{inspect.cleandoc(lines)}\n```\n"
        else:
            yield paragraph.replace("\n", " ") + "\n"
    panels: dict[str, list[str]] = {}
    for param in params:
        if param.param_type_name == "option" and not param.hidden and param.name != "help":
            panels.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append(_row(param, context))
    for panel, rows in sorted(panels.items(), key=lambda item: item[0] != "Options"):
        yield "\n".join([f"| {panel} | meaning |", "|---|---|", *rows, ""])


def _row(param: Any, context: Any) -> str:
    flags, _ = param.get_help_record(context)
    text = Text.from_markup(param.help or "").plain.replace("\n", " ")
    if param.show_default is not False and param.default not in (None, False, "") and not callable(param.default):
        text += " [on]" if param.default is True else f" [{param.default}]"
    return f"| {_flags(param, flags)} | {_cell(text).replace('<', '&lt;').replace('*', chr(92) + '*')} |"


def _flags(param: Any, record: str) -> str:
    """Return the flags and the metavariable of an option, each as code of its own: lines break only between them."""
    flags = ", ".join(f"`{flag}`" for flag in [*param.opts, *param.secondary_opts])
    metavar = "" if param.is_flag else record.strip().removeprefix(", ".join(param.opts)).strip()
    return f"{flags} `{_cell(metavar)}`" if metavar else flags


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
