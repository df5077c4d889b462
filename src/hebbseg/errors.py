"""User errors, and lookup of names with suggestions."""

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class HebbsegError(ValueError):
    """An error that the user can fix: names the file or option, what was found, what is allowed and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest name, then all allowed ones.

    >>> did_you_mean("uampt", ["uamt", "em"])
    "Did you mean 'uamt'? Allowed: 'em', 'uamt'."
    """
    names = sorted(allowed)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(repr(n) for n in names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
    return f"{hint}Allowed: {shown}."


def look_up(name: str, table: Mapping[str, T], what: str, group: str | None = None) -> T:
    """Return ``table[name]``, or else the entry point of this name in an installed package.

    Args:
        name: the name to look up.
        table: the built-in names.
        what: the kind of name, for errors.
        group: the entry-point group that extends the table, such as ``"hebbseg.rules"``.

    Raises:
        HebbsegError: the name is unknown, or its package cannot be imported.
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
    """Return the built-in names and those of installed packages, without importing them."""
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
    """Return the entry points of a group; ``path`` (sys.path) is part of the cache key."""
    from importlib.metadata import entry_points  # slow to import, not needed for built-in names

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
