"""Location of a recipe's data sets on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from hebbseg.data.sources import GROUP, SOURCES, is_source
from hebbseg.errors import HebbsegError, did_you_mean, known_names

VARIABLE = "HEBBSEG_DATA"


def data_roots(given: Path | None, recipe: Path) -> list[Path]:
    """Return the folders to search: ``--data-root``, else HEBBSEG_DATA, else the recipe's folder and the current one."""
    if given is None and os.environ.get(VARIABLE):
        given = Path(os.environ[VARIABLE])
    return [recipe.parent, Path()] if given is None else [given]


def locate(source: str, roots: Sequence[Path]) -> str:
    """Return the source with an absolute path: ``glas:glas`` → ``glas:/data/glas``. Raise an error if it does not exist."""
    kind, colon, place = source.partition(":")
    if not colon:
        kind, place = "", source
    elif not is_source(kind):
        raise HebbsegError(f"source = {source!r}: unknown kind {kind!r}. {did_you_mean(kind, known_names(SOURCES, GROUP))}")
    if kind == "phantom":
        from hebbseg.data.sources.phantom import phantom

        phantom(place)  # raises an error if an option is invalid
        return source
    paths = [(root / Path(place).expanduser()).absolute() for root in roots]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        near = {entry.name for path in paths if path.parent.is_dir() for entry in path.parent.iterdir()}
        hint = f" {did_you_mean(paths[0].name, sorted(near))}" if near else ""
        raise HebbsegError(
            f"source = {source!r}: {' and '.join(dict.fromkeys(map(str, paths)))} not found.{hint} Download the data set, or "
            f"set --data-root or {VARIABLE} to the folder that contains it."
        )
    resolved = os.path.normpath(path)
    return f"{kind}:{resolved}" if kind else resolved


def identity(name: str, source: str) -> str:
    """Return what identifies a data set on every machine: its name, or the specification of a generated one."""
    kind, colon, _ = source.partition(":")
    return source if kind == "phantom" else f"{kind}{colon}{name}"
