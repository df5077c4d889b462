"""The command line: its commands, errors and exit codes."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Annotated

import typer

from hebbseg import __version__
from hebbseg.cli.check import check
from hebbseg.cli.demo import demo
from hebbseg.cli.evaluate import evaluate
from hebbseg.cli.export import export
from hebbseg.cli.grid import grid
from hebbseg.cli.memory import keep_freed_memory
from hebbseg.cli.next import next_
from hebbseg.cli.plan import plan
from hebbseg.cli.points import points
from hebbseg.cli.predict import predict
from hebbseg.cli.report import report
from hebbseg.cli.settings_options import Command, Commands
from hebbseg.cli.train import pretrain, train
from hebbseg.errors import HebbsegError, reason_of
from hebbseg.training.interrupt import Interrupted

app = typer.Typer(
    name="hebbseg",
    cls=Commands,
    help="Biomedical image segmentation from many images and few masks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, check, plan, train, pretrain, predict, evaluate, next_, points, export, grid, report):
    app.command(command.__name__.rstrip("_"), cls=Command)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hebbseg {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. User errors print one message to stderr and exit with code 2; Ctrl-C exits with 130."""
    keep_freed_memory()
    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _terminate_again
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    try:
        app([argument for argument in arguments if argument != "--debug"])
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        sys.exit(130)
    except (HebbsegError, OSError, MemoryError) as error:
        if debug:
            raise
        typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(error) if isinstance(error, HebbsegError) else _of_machine(error), err=True)
        sys.exit(2)


def _of_machine(error: OSError | MemoryError) -> str:
    """Describe a fault of the machine, not of the input: a full disk, a vanished folder, too little memory."""
    if isinstance(error, MemoryError):
        return "The memory does not suffice. Use smaller images, patches or batches."
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{reason_of(error)}. Check disk space, permissions and that the file still exists; --debug shows details."


def _terminated(number: int, frame: FrameType | None) -> None:
    typer.echo("Stopped by SIGTERM.", err=True)
    sys.exit(128 + number)


def _terminate_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Repeat a SIGTERM whose SystemExit was ignored, as it came during a finalizer."""
    if isinstance(ignored.exc_value, SystemExit):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        sys.__unraisablehook__(ignored)
