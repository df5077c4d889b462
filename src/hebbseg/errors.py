"""User errors, and lookup of names with suggestions."""

import errno
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class HebbsegError(ValueError):
    """An error that the user can fix: names the file or option, what was found, what is allowed and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


class FileError(HebbsegError):
    """An error about a file: what was found in it, and what to do."""

    def __init__(self, file: str | Path, finding: str, remedy: str) -> None:
        self.file, self.finding, self.remedy = printable(file), _shortened(finding), _shortened(remedy)
        super().__init__(f"{self.file}: {self.finding}. {self.remedy}")

    def __reduce__(self) -> tuple[type["FileError"], tuple[str, str, str]]:
        # Pickling (for worker processes) rebuilds an exception from the arguments of its constructor.
        return type(self), (self.file, self.finding, self.remedy)


def _shortened(text: str, most: int = 1000) -> str:
    """Return a text without its middle if it is long; values of damaged files can have any length."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


@contextmanager
def explaining(
    path: str | Path, finding: str, remedy: str, *, error: Callable[[str | Path, str, str], HebbsegError] = FileError
) -> Iterator[None]:
    """Convert every exception of reading or writing a file to a `HebbsegError`. This is the only place that does so.

    Args:
        path: the file.
        finding: what a decoder's exception means, such as "truncated or damaged"; the exception's text is added.
        remedy: what the user can do.
        error: the type to raise.
    """
    try:
        yield
    except HebbsegError:
        raise
    except FileNotFoundError as found:
        raise error(path, "no such file", "Check the path. If the file was moved, restart the command.") from found
    except PermissionError as found:
        raise error(path, "no permission to read or write this file", f"Run chmod u+rw {str(path)!r}") from found
    except MemoryError as found:
        raise error(path, "does not fit into memory", "Split it into smaller parts, or use a larger machine.") from found
    except Exception as found:  # decoders raise many types for damaged files
        raise error(path, f"{finding} ({reason_of(found)})", remedy) from found


def refuse_special(path: Path, *, error: Callable[[str | Path, str, str], HebbsegError] = FileError) -> None:
    """Raise for a pipe, a socket or a device: reading one can last for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise error(path, "a pipe, a socket or a device, not a file", "Replace it by a file, or remove it.")


def reason_of(error: BaseException) -> str:
    """Return the text of a foreign exception in one short line."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, KeyError):
        return f"no {error}"
    return printable(" ".join(str(error).split()))[:200] or type(error).__name__


def printable(value: object) -> str:
    r"""Return a text in one line: invalid bytes become �, and control characters their escapes.

    >>> printable("a\nb")
    'a\\nb'
    """
    return "".join(_PRINTED.get(unicodedata.category(c), str)(c) for c in str(value))


_PRINTED: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("Cc", "Zl", "Zp"), lambda c: c.encode("unicode_escape").decode()),
    "Cs": lambda c: "\ufffd",
}


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest name, then all allowed ones.

    >>> did_you_mean("uampt", ["uamt", "em"])
    "Did you mean 'uamt'? Allowed: 'em', 'uamt'."
    """
    names = sorted(_shortened(name, 80) for name in allowed)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(repr(n) for n in names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
    return f"{hint}Allowed: {shown}."


def nearest(name: str, allowed: Iterable[str], count: int = 3) -> str:
    """Return the question for the closest names, where all allowed ones are too many to list; empty if none is close.

    >>> nearest("epoch", ["epochs", "pretrain_epochs", "seed"])
    "Did you mean 'epochs' or 'pretrain_epochs'? "
    """
    close = [repr(each) for each in get_close_matches(name, list(allowed), n=count, cutoff=0.5)]
    if not close:
        return ""
    listed = f"{', '.join(close[:-1])} or {close[-1]}" if len(close) > 1 else close[0]
    return f"Did you mean {listed}? "


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
