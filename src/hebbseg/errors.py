"""What a user can cause, said so that the user can mend it."""

from collections.abc import Iterable
from difflib import get_close_matches


class HebbsegError(ValueError):
    """An error the user can mend: names the file or option, what was found, what is allowed and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """The tail of a message about an unknown name: a likely intended one, then all that are allowed.

    >>> did_you_mean("uampt", ["uamt", "em"])
    "Did you mean 'uamt'? Allowed: 'em', 'uamt'."
    """
    names = sorted(allowed)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(repr(n) for n in names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
    return f"{hint}Allowed: {shown}."


def look_up(name: str, table: dict[str, object], what: str) -> object:
    """``table[name]``, or an error that says which names there are."""
    if name not in table:
        raise HebbsegError(f"Unknown {what} {name!r}. {did_you_mean(name, table)}")
    return table[name]
