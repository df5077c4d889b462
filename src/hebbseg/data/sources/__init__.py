"""Data sources by name, and the function that opens them."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any

from hebbseg.data.cases import DataError, Source
from hebbseg.data.labels.label_map import LabelMapGiven, parse_label_map, parse_value
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.archives import is_archive, unpacked
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.folder import NO_MASKS
from hebbseg.data.sources.listing import below, text
from hebbseg.data.sources.tables import with_groups
from hebbseg.errors import HebbsegError, did_you_mean, known_names, look_up

# Name → module with a function of that name, which takes a folder and MaskOptions (except phantom) and returns a Source.
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
    images: str | None = None,
    masks: str | None = None,
    ignore: str | int | None = None,
    level: int | None = None,
    **phantom_options: Any,
) -> Source:
    r"""Open a data set: a folder, a zip archive, a named data set such as ``glas:PATH`` (see `SOURCES`) or ``phantom:NAME``.

    A plain path is read as nnU-Net's layout if it has a dataset.json, else as a folder (``folder:PATH`` enforces this).
    PATH of a named data set can be the downloaded folder, any level inside it, or its zip archive.

    Args:
        spec: the data set.
        label_map: class of each mask value: ``"background=0;gland=255"``, a mapping, or a JSON file.
        group: patient of each case: ``"patients.csv:patient"``, or a regular expression on the id, ``"^(p\d+)_"``.
        mask_threshold: mask values at or above it are foreground, for masks with soft edges.
        instances: mask values number objects; every value above 0 is foreground.
        images: folder of the images in a plain folder, by name or path; default: recognized by its name.
        masks: folder of the masks in a plain folder, by name or path, or "none"; default: recognized by its name or content.
        level: of pyramids (OME-TIFF, OME-Zarr); default: 0, the largest.
        ignore: value, or color such as ``"#808080"``, of pixels that are not annotated.
        phantom_options: options of ``phantom``.
    """
    name, place = _split(spec)
    if name == "phantom":
        given = (group, label_map, mask_threshold, instances, images, None if masks == NO_MASKS else masks, ignore)
        if level or any(option is not None for option in given):  # level 0 is the default
            raise HebbsegError(f"{str(spec)!r}: options for reading files do not apply to generated data. Remove them.")
        return _function(name)(place, **phantom_options)
    if phantom_options:
        option = next(iter(phantom_options))
        allowed = ("label_map", "group", "mask_threshold", "instances", "images", "masks", "ignore", "level")
        raise HebbsegError(f"Unknown option {option!r} for data {str(spec)!r}. {did_you_mean(option, allowed)}")
    if label_map is not None and (mask_threshold is not None or instances):
        raise HebbsegError("--label-map cannot be combined with --mask-threshold or --instances. Use only one of them.")
    options = MaskOptions(
        label_map=None if label_map is None else parse_label_map(label_map),
        threshold=mask_threshold,
        instances=instances,
        ignore=None if ignore is None else parse_value(str(ignore)),
    )
    path = _folder(Path(place).expanduser())
    folders = {"image_folder": images, "mask_folder": masks}
    chosen = {option: folder for option, folder in folders.items() if folder is not None}
    name = name or ("folder" if chosen and masks != NO_MASKS else _detect(path, str(spec)))
    if name != "folder" and chosen.keys() - ({"mask_folder"} if masks == NO_MASKS else set()):
        raise HebbsegError(
            f"--images and --masks name folders of a plain folder, but {str(spec)!r} has the layout {name}. Remove them, or "
            "pass the plain path."
        )
    source: Source = _function(name)(path, options, **(chosen if name == "folder" else {}))
    if group is not None:
        if not isinstance(source, FileSource):
            raise HebbsegError(
                f"--group {group}: {str(spec)!r} is not read from files and defines its own groups. Remove --group."
            )
        source.cases = tuple(with_groups(source.cases, group, source.root))
    return source.at_level(level) if level and isinstance(source, FileSource) else source


def find_place(spec: str | Path) -> None:
    """Raise if ``spec`` names an unknown source or a missing folder; lists no files."""
    name, place = _split(spec)
    path = Path(place).expanduser()
    if name != "phantom" and not is_archive(path):
        _folder(path)


def _split(spec: str | Path) -> tuple[str | None, str]:
    """Split ``glas:PATH`` into name and path. An existing path with a colon has no name."""
    given = str(spec)
    name, colon, place = given.partition(":")
    if isinstance(spec, Path) or not colon or Path(given).exists():
        return None, given
    if is_source(name):
        if not place:
            raise HebbsegError(f"{given!r}: nothing follows the colon. Write {name}:{'NAME' if name == 'phantom' else 'PATH'}.")
        return name, place
    if len(name) > 1 and not {"/", "\\"} & set(name):
        raise HebbsegError(f"Unknown data source {name!r} in {given!r}. {did_you_mean(name, known_names(SOURCES, GROUP))}")
    return None, given


def is_source(name: str) -> bool:
    """Return whether ``name`` is a data source, built in or from an entry point."""
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
        raise DataError(text(path), "a file, not a folder", "Pass the folder that contains it, or a zip archive of the folder.")
    siblings: Sequence[str] = [e.name for e in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, siblings, n=1, cutoff=0.5)
    hint = f"Did you mean {text(path.with_name(close[0]))!r}?" if close else "Check the path."
    raise DataError(text(path), "no such file or folder", hint)


def _detect(path: Path, spec: str) -> str:
    if _module("nnunet").looks_like(path):
        return "nnunet"
    for name in NATIVE_LAYOUTS:
        if any(_module(name).looks_like(folder) for folder in below(path, levels=2)):
            raise DataError(
                text(path),
                f"looks like {name} as downloaded",
                f"Write {quote(f'{name}:{spec}')}, or {quote(f'folder:{spec}')} to read it as a plain folder.",
            )
    return "folder"


def _module(name: str) -> Any:
    return import_module(f"hebbseg.data.sources.{SOURCES[name]}")
