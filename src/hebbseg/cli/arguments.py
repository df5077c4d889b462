"""Errors in the words of Python: the options of the command line as arguments of `Segmenter`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from hebbseg.cli.settings_options import FLAG_OF, FLAGS, OTHER_SPELLING
from hebbseg.errors import HebbsegError

OPTION = re.compile(r"--(?:set (?=\w+[=.])|([a-z]+(?:-[a-z]+)*))")
SWITCHES = ("resume", "curve", "trust", "borders", "instances")


@contextmanager
def in_python() -> Iterator[None]:
    """Name the arguments instead of the options in a `HebbsegError`."""
    try:
        yield
    except HebbsegError as error:
        error.args = (as_arguments(str(error)), *error.args[1:])
        raise


def as_arguments(message: str) -> str:
    """Replace options by arguments; commands in backticks stay.

    >>> as_arguments("Raise --labelled, or --set test=0.2, or see `hebbseg train --help`.")
    'Raise labelled, or test=0.2, or see `hebbseg train --help`.'
    >>> as_arguments("--time-budget 1 s is too short. Continue with --resume.")
    'time_budget_s 1 s is too short. Continue with resume=True.'
    """
    parts = message.split("`")
    parts[::2] = (OPTION.sub(lambda match: _argument(match[1]), part) for part in parts[::2])
    return "`".join(parts)


def _argument(option: str | None) -> str:
    if option is None:  # --set NAME=VALUE
        return ""
    if option in SWITCHES:
        return f"{option}=True"
    return _ARGUMENTS.get(option, f"--{option}")


_ARGUMENTS = {FLAG_OF.get(name, name.removesuffix("_s").replace("_", "-")): name for name in FLAGS} | {
    spelling.removeprefix("--"): name for name, spellings in OTHER_SPELLING.items() for spelling in spellings
}
