"""Command-line options made from the settings of a run: `hebbseg.config` has their descriptions and defaults."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from hebbseg.cli.options import seconds
from hebbseg.errors import HebbsegError

F = TypeVar("F", bound=Callable[..., None])

SPLIT, TRAINING, READING = "Data split", "Training", "Reading your data"
IMAGES, HARDWARE = "Images and network", "Hardware"
FLAGS = {
    "preset": (TRAINING, None),
    "labelled": (SPLIT, "10%|8"),
    "select": (SPLIT, None),
    "protocol": (SPLIT, None),
    "folds": (SPLIT, "N"),
    "fold": (SPLIT, "K"),
    "seed": (SPLIT, "N"),
    "init": (TRAINING, "NAME|FILE"),
    "from_run": (TRAINING, "RUN"),
    "method": (TRAINING, "NAME"),
    "updates": (TRAINING, "N"),
    "time_budget_s": (TRAINING, "90s|30m|2h"),
    "tta": (TRAINING, None),
    "label_map": (READING, "MAP"),
    "group": (READING, "GROUP"),
    "mask_threshold": (READING, "T"),
    "instances": (READING, None),
    "ignore": (READING, "VALUE"),
    "borders": (TRAINING, None),
    "images": (READING, "FOLDER"),
    "masks": (READING, "FOLDER"),
    "level": (READING, "N"),
    "size": (IMAGES, "auto|native|HxW[xD]"),
    "spacing": (IMAGES, "auto|native|MM[,MM,MM]"),
    "patch": (IMAGES, "auto|none|HxW[xD]"),
    "metrics_grid": (IMAGES, None),
    "network": (IMAGES, "NAME"),
    "features": (IMAGES, "N,N,…"),
    "accelerator": (HARDWARE, None),
    "devices": (HARDWARE, "N"),
    "num_nodes": (HARDWARE, "N"),
    "precision": (HARDWARE, "NAME"),
    "tensorboard": (HARDWARE, None),
}
"""Setting with an option → its panel in ``--help`` and its metavar (None: the allowed values)."""
FLAG_OF = {"from_run": "from"}
"""Setting → its option, if that is not its name."""
OTHER_SPELLING = {"labelled": ("--labeled",)}


def takes_settings(*names: str) -> Callable[[F], F]:
    """Add the options of these settings to a command, which receives them as keywords; None if not given."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        kept = [parameter for parameter in own.parameters.values() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        cast(Any, function).__signature__ = own.replace(parameters=kept)
        cast(Any, function).settings = names
        return function

    return decorate


def _plain_flags(params: Any) -> Any:
    """Remove ``<bool>`` from the help of flags: they take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Commands(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> Any:
        return _plain_flags(super().get_params(ctx))


class Command(TyperCommand):
    """A command that makes the options of its settings when it is chosen: ``hebbseg --help`` need not import them."""

    _complete = False

    def get_params(self, ctx: Any) -> Any:
        if not self._complete:
            self._complete = True
            function = inspect.unwrap(cast(Any, self.callback))
            if names := getattr(function, "settings", ()):
                app = typer.Typer(add_completion=False)
                app.command()(_with_options(function, names))
                command = typer.main.get_command(app)
                self.params, self.callback = command.params, command.callback
        return _plain_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Wrap paragraphs to the width of the terminal; keep the lines of those that start with a backspace."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        lines = (text.removeprefix("\b\n") if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs)
        self.help = "\n\n".join(lines)
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Point from ``--learning-rate 0.01`` to ``--set learning_rate=0.01``."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            flag = str(getattr(error, "option_name", ""))
            if flag and any("--set" in param.opts for param in self.params):
                from hebbseg.config import FLAT_NAMES, OTHER_NAMES

                if (name := flag.lstrip("-").replace("-", "_")) in {*FLAT_NAMES, *OTHER_NAMES}:
                    raise HebbsegError(f"There is no option {flag}. Use --set {name}=VALUE instead.") from None
            raise


def default_text(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default is None or default == {} else str(default)


def choices(annotation: Any) -> list[str]:
    """Return the words that a setting of this type allows."""
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in choices(part)]


def _with_options(function: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    @wraps(function)
    def command(**given: Any) -> None:
        function(**given)

    own = inspect.signature(function)
    parameters = [*own.parameters.values(), *map(_parameter, names)]
    cast(Any, command).__signature__ = own.replace(parameters=parameters)
    return command


def _parameter(name: str) -> inspect.Parameter:
    from rich.markup import escape

    from hebbseg.config import FLAT_NAMES

    field = FLAT_NAMES[name][2]
    panel, metavar = FLAGS[name]
    kind: Any = next((kind for kind in (bool, int, float) if field.annotation in (kind, kind | None)), str)
    flag = FLAG_OF.get(name, name.replace("_", "-"))
    text = f"{field.description}."
    if in_seconds := name.endswith("_s"):
        kind, flag, text = str, flag.removesuffix("-s"), text.replace(" in seconds", "")
    default = "" if kind is bool else default_text(field.default)
    option = typer.Option(
        None,
        f"--{flag}/--no-{flag}" if kind is bool and field.default is None else f"--{flag}",
        *OTHER_SPELLING.get(name, ()),
        callback=_seconds if in_seconds else None,
        metavar=metavar or "|".join(choices(field.annotation)) or None,
        help=escape(text[0].upper() + text[1:]) + (f" [dim]\\[{default}][/]" if default else ""),
        show_default=False,
        rich_help_panel=panel,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind | None)


def _seconds(text: str | None) -> float | None:
    return None if text is None else seconds(text)
