"""Where data come from: one visible table of names, one function that opens any of them."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hebbseg.data.cases import DataError, Source
from hebbseg.data.labels.label_map import LabelMapGiven, parse_label_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.archives import is_archive, unpacked
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import below, text
from hebbseg.data.sources.tables import with_groups
from hebbseg.errors import HebbsegError, did_you_mean, known_names, look_up

# Name → module with a function of that name. All but phantom take a folder and MaskOptions and return a Source.
SOURCES: dict[str, str] = {
    "folder": "folder",
    "nnunet": "nnunet",
    "glas": "glas",
    "ph2": "ph2",
    "hmeps": "hmeps",
    "la": "la",
    "dsb2018": "dsb2018",
    "phantom": "phantom",
}
GROUP = "hebbseg.sources"
NATIVE_LAYOUTS = ("glas", "ph2", "hmeps", "la", "dsb2018")


def open_source(
    spec: str | Path,
    *,
    label_map: LabelMapGiven | None = None,
    group: str | None = None,
    mask_threshold: float | None = None,
    instances: bool | None = None,
    **phantom_options: Any,
) -> Source:
    r"""Opens data: a folder, a zip, a named set such as ``glas:PATH`` (see `SOURCES`), or ``phantom:NAME``.

    A plain path is nnU-Net's layout if it has a dataset.json, else a folder (say ``folder:PATH`` to insist). PATH of a
    named set may be the folder as downloaded, any level inside it, or its zip.

    Args:
        spec: what to open.
        label_map: which mask value is which class: ``"background=0;gland=255"``, a mapping, or a JSON file.
        group: who the patient is: ``"patients.csv:patient"`` or a pattern searched in the id, ``"^(p\d+)_"``.
        mask_threshold: mask values from here on are foreground, for masks with soft edges.
        instances: mask values number objects: everything above 0 is foreground.
        phantom_options: passed on to ``phantom``.
    """
    name, place = _split(spec)
    if name == "phantom":
        if group is not None or label_map is not None or mask_threshold is not None or instances is not None:
            raise HebbsegError(f"{str(spec)!r}: generated masks and groups need no options about files. Leave them out.")
        return _function(name)(place, **phantom_options)
    if phantom_options:
        option = next(iter(phantom_options))
        allowed = ("label_map", "group", "mask_threshold", "instances")
        raise HebbsegError(f"Unknown option {option!r} for data {str(spec)!r}. {did_you_mean(option, allowed)}")
    if label_map is not None and (mask_threshold is not None or instances):
        raise HebbsegError("A label map and a threshold (or instances) contradict each other: give one of them.")
    masks = MaskOptions(
        label_map=None if label_map is None else parse_label_map(label_map),
        threshold=mask_threshold,
        instances=instances,
    )
    path = _folder(Path(place).expanduser())
    source: Source = _function(name or _detect(path, str(spec)))(path, masks)
    if group is not None:
        if not isinstance(source, FileSource):
            raise HebbsegError(f"group={group}: the cases of {str(spec)!r} are not files; their groups are their own.")
        source.cases = tuple(with_groups(source.cases, group, source.root))
    return source


def find_place(spec: str | Path) -> None:
    """Raises if ``spec`` names an unknown source or a folder that is not there; lists nothing."""
    name, place = _split(spec)
    path = Path(place).expanduser()
    if name != "phantom" and not is_archive(path):
        _folder(path)


def _split(spec: str | Path) -> tuple[str | None, str]:
    """``glas:PATH`` → its two parts. A path that exists is a path, whatever colons it has."""
    whole = str(spec)
    name, colon, place = whole.partition(":")
    if isinstance(spec, Path) or not colon or Path(whole).exists():
        return None, whole
    if is_source(name):
        if not place:
            raise HebbsegError(
                f"{whole!r}: what comes after the colon? Write {name}:{'NAME' if name == 'phantom' else 'PATH'}."
            )
        return name, place
    if len(name) > 1 and not {"/", "\\"} & set(name):
        raise HebbsegError(f"Unknown data source {name!r} in {whole!r}. {did_you_mean(name, known_names(SOURCES, GROUP))}")
    return None, whole


def is_source(name: str) -> bool:
    """Whether it is the name of a source, built in or from an entry point."""
    return name in SOURCES or name in known_names(SOURCES, GROUP)


def _function(name: str) -> Callable[..., Any]:
    found: Any = look_up(name, SOURCES, "data source", GROUP)
    return getattr(_module(name), name) if name in SOURCES else found


def _folder(path: Path) -> Path:
    if is_archive(path):
        return unpacked(path)
    if path.is_dir():
        return path
    if path.is_file():
        raise DataError(text(path), "a file", "Give the folder it is in, or a zip of such a folder.")
    siblings: Sequence[str] = [e.name for e in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = did_you_mean(path.name, siblings).partition("Allowed:")[0] if siblings else ""
    raise DataError(text(path), "no such folder", hint.strip() or "Check the path.")


def _detect(path: Path, spec: str) -> str:
    if _module("nnunet").looks_like(path):
        return "nnunet"
    for name in NATIVE_LAYOUTS:
        if any(_module(name).looks_like(folder) for folder in below(path, levels=2)):
            raise DataError(
                text(path),
                f"this looks like {name} as downloaded",
                f"Write {name}:{spec} (or folder:{spec} to insist).",
            )
    return "folder"


def _module(name: str) -> Any:
    return import_module(f"hebbseg.data.sources.{SOURCES[name]}")
