"""nnU-Net's layout (and the Medical Segmentation Decathlon's): dataset.json, imagesTr, labelsTr, imagesTs, labelsTs."""

import json
import re
from pathlib import Path
from typing import Any

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.labels.label_map import LabelMap, parse_label_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.folder import with_spacing
from hebbseg.data.sources.listing import Found, levels_around, list_images, text

_CHANNEL = re.compile(r"^(.*)_(\d{4})$")


def looks_like(folder: Path) -> bool:
    return (folder / "dataset.json").is_file() and (folder / "imagesTr").is_dir()


def nnunet(path: Path, masks: MaskOptions) -> FileSource:
    """Classes come from dataset.json. imagesTs is the test side if labelsTs has masks for it, else unlabelled."""
    root = next((folder for folder in levels_around(path) if looks_like(folder)), None)
    if root is None:
        raise DataError(text(path), "no dataset.json beside an imagesTr folder", "Give the folder DatasetXXX_Name.")
    description = _description(root / "dataset.json")
    problems: list[Problem] = []
    cases = _side(root, "Tr", description, problems)
    tests = _side(root, "Ts", description, problems)
    if any(case.has_mask for case in tests):
        cases = [*(_on_side(case, "train") for case in cases), *(_on_side(case, "test") for case in tests)]
    else:
        cases += tests
    if not cases:
        raise DataError(text(root / "imagesTr"), "no image found", "nnU-Net names images CASE_0000.nii.gz.")
    if masks.rule() is None:
        masks = MaskOptions(label_map=_label_map(description, root / "dataset.json"))
    cases = with_spacing(sorted(cases, key=lambda case: case.id))
    return FileSource(name=root.resolve().name, root=root, cases=cases, problems=problems, masks=masks)


def _on_side(case: Case, subset: str) -> Case:
    return Case(id=case.id, image=case.image, mask=case.mask, subset=subset)


def _description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DataError(text(path), f"not JSON ({error})", "Mend the file.") from error
    if not isinstance(description, dict) or "labels" not in description:
        raise DataError(text(path), "no 'labels' in it", 'Add "labels": {"background": 0, "name": 1}.')
    return description


def _label_map(description: dict[str, Any], path: Path) -> LabelMap:
    labels = description["labels"]
    if any(isinstance(value, list) for value in labels.values()):
        raise DataError(
            text(path), "regions (several values in one label)", "Name each value once in 'labels'; regions overlap."
        )
    if "ignore" in labels:
        raise DataError(
            text(path),
            "an 'ignore' label",
            "Partly drawn masks are not supported: give --label-map 'background=0;…;background="
            f"{labels['ignore']}' to count it as background, or remove those masks.",
        )
    return parse_label_map(labels)


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
                    file=text(label.path),
                    finding="a mask without an image of its name; left out",
                    remedy=f"Add {label.id}_0000 to {image_folder.name}, or remove the mask.",
                )
            )
        elif label.id in label_of:
            problems.append(
                Problem(
                    file=text(label.path),
                    finding=f"a second mask for {label.id} beside {text(label_of[label.id].name)}; used without one",
                    remedy="Keep one mask per image.",
                )
            )
            ambiguous.add(label.id)
        else:
            label_of[label.id] = label.path
    # One file may hold all channels (colour PNG); where any case has a file per channel, all must.
    named = len(description.get("channel_names") or description.get("modality") or {})
    expected = named if any(len(files) == named for files in channels.values()) else 1
    cases = []
    for id, files in sorted(channels.items()):
        if len(files) != expected:
            problems.append(
                Problem(
                    file=text(next(iter(files.values()))),
                    finding=f"{len(files)} channel file(s) where dataset.json names {named}; left out",
                    remedy=f"Add the missing {id}_000N files.",
                )
            )
            continue
        mask = None if id in ambiguous or id not in label_of else (label_of[id],)
        cases.append(Case(id=id, image=tuple(files[key] for key in sorted(files)), mask=mask))
    return cases


def _channels(images: tuple[Found, ...]) -> dict[str, dict[str, Path]]:
    """Case id → channel number → file. Without any ``_0000`` (the Decathlon's way) each file is a case."""
    matches = {found.path: _CHANNEL.match(found.id) for found in images}
    numbered = any(match for match in matches.values())
    cases: dict[str, dict[str, Path]] = {}
    for found in images:
        match = matches[found.path] if numbered else None
        id, channel = (match.group(1), match.group(2)) if match else (found.id, "0000")
        cases.setdefault(id, {})[channel] = found.path
    return cases
