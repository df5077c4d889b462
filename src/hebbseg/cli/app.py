"""The command line: which commands there are, and how it ends."""

import sys
from typing import Annotated

import typer

from hebbseg import __version__
from hebbseg.cli.check import check
from hebbseg.cli.demo import demo
from hebbseg.cli.evaluate import evaluate
from hebbseg.cli.grid import grid
from hebbseg.cli.memory import keep_freed_memory
from hebbseg.cli.options import SettingsCommand
from hebbseg.cli.predict import predict
from hebbseg.cli.report import report
from hebbseg.cli.train import pretrain, train
from hebbseg.errors import HebbsegError
from hebbseg.training.interrupt import Interrupted

app = typer.Typer(
    name="hebbseg",
    help="Biomedical image segmentation when images are many and masks are few.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(check)
app.command(cls=SettingsCommand)(train)
app.command(cls=SettingsCommand)(pretrain)
app.command()(predict)
app.command()(evaluate)
app.command()(report)
app.command()(grid)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hebbseg {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (anywhere on the line).")] = False,
) -> None:
    pass


def main() -> None:
    """The entry point: an error the user can mend is one message on stderr and exit code 2; 130 after Ctrl-C."""
    keep_freed_memory()
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    try:
        app([argument for argument in arguments if argument != "--debug"])
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        sys.exit(130)
    except HebbsegError as error:
        if debug:
            raise
        typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(error), err=True)
        sys.exit(2)
