"""What a user can cause, said so that the user can mend it."""

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


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


def look_up(name: str, table: Mapping[str, T], what: str, group: str | None = None) -> T:
    """``table[name]``, else what an installed package provides under this name, else an error that lists all names.

    Args:
        name: as the user wrote it.
        table: the built-in names.
        what: the kind of thing, for the error.
        group: the entry points that extend the table, such as ``"hebbseg.rules"``.
    """
    if name in table:
        return table[name]
    if name not in known_names(table, group):
        raise HebbsegError(f"Unknown {what} {name!r}. {did_you_mean(name, known_names(table, group))}")
    entry = _entry_points(group, tuple(sys.path))[name]
    try:
        found: T = entry.load()
    except Exception as error:
        raise HebbsegError(
            f"{what.capitalize()} {name!r} of package {_package(entry)} cannot be imported from {entry.value} "
            f"({type(error).__name__}: {error}). Reinstall or uninstall the package."
        ) from error
    return found


def known_names(table: Mapping[str, object], group: str | None) -> list[str]:
    """The built-in names and those that installed packages add; imports none of them."""
    added = _entry_points(group, tuple(sys.path))
    for name in added:
        if name in table:
            raise HebbsegError(
                f"Package {_package(added[name])} adds {name!r} to {group}, but this name is built in. Uninstall the package, "
                "or rename its entry point."
            )
    return [*table, *added]


@cache
def _entry_points(group: str | None, path: tuple[str, ...]) -> "dict[str, EntryPoint]":
    """``path`` is where they are searched: a change of it is another search."""
    from importlib.metadata import entry_points  # not needed for built-in names, and slow to import

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group) if group else ():
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            raise HebbsegError(
                f"Packages {_package(other)} and {_package(entry)} both add {entry.name!r} to {group}. Uninstall one of them."
            )
    return found


def _package(entry: "EntryPoint") -> str:
    return entry.dist.name if entry.dist else "unknown"
