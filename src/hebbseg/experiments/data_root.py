"""Where the data sets of a recipe are on this machine."""

import os
from pathlib import Path

from hebbseg.data.sources import GROUP, SOURCES, is_source
from hebbseg.errors import HebbsegError, did_you_mean, known_names

VARIABLE = "HEBBSEG_DATA"
BESIDE = Path("../shared/data")


def data_root(given: Path | None) -> tuple[Path, str]:
    """The folder that relative paths begin at, and who said so: ``--data-root``, HEBBSEG_DATA, ../shared/data, or here."""
    if given is not None:
        return given, "--data-root"
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]), VARIABLE
    if BESIDE.is_dir():
        return BESIDE, "found beside this folder"
    return Path(), "the current folder"


def locate(source: str, root: tuple[Path, str]) -> str:
    """The source with the whole path of its folder: ``glas:glas`` → ``glas:/data/glas``. Raises if it is not there."""
    kind, colon, place = source.partition(":")
    if not colon:
        kind, place = "", source
    elif not is_source(kind):
        raise HebbsegError(
            f"source = {source!r}: unknown kind {kind!r}. {did_you_mean(kind, known_names(SOURCES, GROUP))}"
        )
    if kind == "phantom":
        from hebbseg.data.sources.phantom import phantom

        phantom(place)  # says what is wrong with its options
        return source
    base, why = root
    path = (base / Path(place).expanduser()).absolute()
    if not path.exists():
        beside = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
        hint = f" {did_you_mean(path.name, beside)}" if beside else ""
        raise HebbsegError(
            f"source = {source!r}: {path} is not there (looked below {base.absolute()}, {why}).{hint} Get the data set, or "
            f"say where it is with --data-root or {VARIABLE}."
        )
    resolved = os.path.normpath(path)
    return f"{kind}:{resolved}" if kind else resolved


def identity(name: str, source: str) -> str:
    """What tells this data set apart from others, wherever it lies: its name, and all that describes a generated one."""
    kind, colon, _ = source.partition(":")
    return source if kind == "phantom" else f"{kind}{colon}{name}"
