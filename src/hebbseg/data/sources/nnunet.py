"""nnU-Net's layout (and the Medical Segmentation Decathlon's): dataset.json, imagesTr, labelsTr, imagesTs, labelsTs."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.labels.label_map import LabelMap, parse_label_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.folder import with_spacing
from hebbseg.data.sources.listing import Found, find_root, list_images, text
from hebbseg.text_files import read_json

_CHANNEL = re.compile(r"^(.*)_(\d{4})$")

DESCRIPTION = "dataset.json"


def looks_like(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file() and (folder / "imagesTr").is_dir()


def nnunet(path: Path, masks: MaskOptions) -> FileSource:
    """Open nnU-Net's layout. imagesTs is the test set if labelsTs has masks for it, else unlabelled."""
    root = find_root(path, looks_like, "dataset.json next to an imagesTr folder", "Pass the folder DatasetXXX_Name.")
    description = _description(root / DESCRIPTION)
    problems: list[Problem] = []
    cases = _side(root, "Tr", description, problems)
    tests = _side(root, "Ts", description, problems)
    if any(case.has_mask for case in tests):
        cases = [*(replace(case, subset="train") for case in cases), *(replace(case, subset="test") for case in tests)]
    else:
        cases += tests
    if not cases:
        raise DataError(text(root / "imagesTr"), "no image found", "Name images as in nnU-Net: CASE_0000.nii.gz.")
    if masks.rule() is None:
        masks = MaskOptions(label_map=_label_map(description, root / DESCRIPTION), ignore=masks.ignore)
    cases = with_spacing(sorted(cases, key=lambda case: case.id))
    return FileSource(name=root.resolve().name, root=root, cases=cases, problems=problems, masks=masks, lists_unused=True)


def _description(path: Path) -> dict[str, Any]:
    description = read_json(path, "Fix the file.", error=DataError)
    if not isinstance(description.get("labels"), dict):
        raise DataError(text(path), "no 'labels' entry with names and values", 'Add "labels": {"background": 0, "name": 1}.')
    for name in ("channel_names", "modality"):
        if not isinstance(description.get(name) or {}, dict):
            raise DataError(text(path), f"{name!r} is not an object", f'Write "{name}": {{"0": "name"}}.')
    return description


def _label_map(description: dict[str, Any], path: Path) -> LabelMap:
    labels = description["labels"]
    if any(isinstance(value, list) for value in labels.values()):
        raise DataError(text(path), "regions (several values in one label)", _without_regions(labels))
    return parse_label_map(labels)


def _without_regions(labels: dict[str, Any]) -> str:
    """Return how to read the masks as classes that do not overlap: each value belongs to its smallest region."""
    regions = {name: value if isinstance(value, list) else [value] for name, value in labels.items()}
    values = {value for parts in regions.values() for value in parts if isinstance(value, int)}
    if not values or any(not isinstance(value, int) for parts in regions.values() for value in parts):
        return "Regions are not supported. List each value once in 'labels'."
    pairs = []
    for value in sorted(values):
        name = min((name for name, parts in regions.items() if value in parts), key=lambda name: len(regions[name]))
        pairs.append(f"{name}={value}")
    return (
        f"Overlapping regions are not supported. Pass --label-map {shlex.quote(';'.join(pairs))}: each value then belongs to "
        "the smallest region that contains it, and a region is its class together with those inside it."
    )


def _side(root: Path, side: str, description: dict[str, Any], problems: list[Problem]) -> list[Case]:
    image_folder, label_folder = root / f"images{side}", root / f"labels{side}"
    if not image_folder.is_dir():
        return []
    images = list_images(image_folder)
    labels = list_images(label_folder) if label_folder.is_dir() else None
    problems += [*images.problems, *(labels.problems if labels else ())]
    channels = _channels(images.found)
    label_of: dict[str, Path] = {}
    ambiguous: set[str] = set()
    for label in labels.found if labels else ():
        if label.id not in channels:
            problems.append(
                Problem(
                    text(label.path),
                    "mask with no matching image; skipped",
                    f"Add {label.id}_0000 to {image_folder.name}, or remove the mask.",
                )
            )
        elif label.id in label_of:
            problems.append(
                Problem(
                    text(label.path),
                    f"second mask for {label.id} ({text(label_of[label.id].name)}); used as an unlabelled image",
                    "Keep one mask per image.",
                )
            )
            ambiguous.add(label.id)
        else:
            label_of[label.id] = label.path
    # One file may contain all channels (color PNG); if any case has a file per channel, all must.
    named = len(description.get("channel_names") or description.get("modality") or {})
    expected = named if any(len(files) == named for files in channels.values()) else 1
    cases = []
    for id, files in sorted(channels.items()):
        if len(files) != expected:
            problems.append(
                Problem(
                    text(next(iter(files.values()))),
                    f"{len(files)} channel file(s), but dataset.json lists {named} channel(s); case skipped",
                    f"Add the missing {id}_000N files.",
                )
            )
            continue
        mask = None if id in ambiguous or id not in label_of else (label_of[id],)
        cases.append(Case(id=id, image=tuple(files[key] for key in sorted(files)), mask=mask))
    return cases


def _channels(images: tuple[Found, ...]) -> dict[str, dict[str, Path]]:
    """Return case id → channel number → file. Without any ``_0000`` (as in the Decathlon), each file is a case."""
    matches = {found.path: _CHANNEL.match(found.id) for found in images}
    numbered = any(match for match in matches.values())
    cases: dict[str, dict[str, Path]] = {}
    for found in images:
        match = matches[found.path] if numbered else None
        id, channel = (match.group(1), match.group(2)) if match else (found.id, "0000")
        cases.setdefault(id, {})[channel] = found.path
    return cases
