"""Plain folders: ``images/`` and ``masks/`` with matching names, or one folder with a suffix such as ``_mask``.

* An image without a mask is unlabelled.
* ``masks/NAME/*.png`` are one file per object; they are merged.
* ``masks/NAME_mask.png`` matches ``images/NAME.jpg``, and ``masks/p1/a.png`` matches ``images/p1/a.png``.
* ``train/images``, ``train/masks``, ``test/images`` … or ``train_images``, ``train_masks`` … define a published split.
* HDF5 and npz files can contain a ``label`` next to their ``image``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.io.formats import FORMATS, read_header, suffix_of
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import Found, list_images, subfolders, text, visible
from hebbseg.errors import HebbsegError

_MASK_WORDS = "masks?|labels?|annotations?|segmentations?|gt|ground[_ ]?truth"
IMAGE_FOLDER = re.compile(r"(^|[_\- ])(images?|imgs?)$", re.IGNORECASE)
MASK_FOLDER = re.compile(rf"(^|[_\- ])({_MASK_WORDS})$", re.IGNORECASE)
MASK_ENDING = re.compile(rf"[_\-. ]({_MASK_WORDS}|anno|lesion|seg)$", re.IGNORECASE)
SIDES = {"train": "train", "training": "train", "val": "train", "valid": "train", "validation": "train"}
SIDES |= {"test": "test", "testing": "test"}
_HOLD_BOTH = (".h5", ".hdf5", ".npz")
_STATE_SPACING = ("nifti", "itk", "tiff")


def folder(path: Path, masks: MaskOptions) -> FileSource:
    """Open a plain folder of images with or without masks."""
    root = _root(path)
    places = [child for child in subfolders(root) if IMAGE_FOLDER.fullmatch(child.name)]
    # Next to an images folder, ignore everything but masks (previews, overlays).
    if places:
        places += [child for child in subfolders(root) if MASK_FOLDER.fullmatch(child.name)]
    listings = [(place, list_images(place)) for place in places or [root]]
    problems = [problem for _, listing in listings for problem in listing.problems]
    found = [_placed(f, place.relative_to(root)) for place, listing in listings for f in listing.found]
    images, labels, beside = sort_out(found)
    if beside:
        problems.append(
            Problem(
                text(beside[0].path),
                f"{len(beside)} file(s) outside the image and mask folders; skipped",
                "If they are images, move them to images/; otherwise, no action is needed.",
            )
        )
    pairing = pair(images, labels)
    problems += pairing.problems
    if not pairing.cases:
        reasons = " ".join(str(problem) for problem in problems[:3])
        raise DataError(
            text(path),
            f"no image found. {reasons}".strip(" ."),
            f"Put images into {text(root)}/images and masks with matching names into {text(root)}/masks. "
            f"Supported: {', '.join(FORMATS)} and folders of DICOM slices.",
        )
    cases = with_sides(with_spacing(with_own_labels(pairing.cases)))
    return FileSource(name=root.resolve().name, root=root, cases=cases, problems=problems, masks=masks)


def sort_out(found: Sequence[Found]) -> tuple[list[Found], list[Found], list[Found]]:
    """Return images, masks and other files by folder and suffix; folder words such as "images" are removed from ids.

    ``train/images/a`` and ``train_masks/a_mask`` become ``train/a`` and ``train/a_mask``.
    """
    kinds = [_kind(f) for f in found]
    ids = {f.id for f in found}
    ids |= {_bare_id(f, IMAGE_FOLDER) for f, kind in zip(found, kinds, strict=True) if kind == "image"}
    images: list[Found] = []
    masks: list[Found] = []
    loose: list[Found] = []
    for f, kind in zip(found, kinds, strict=True):
        if kind == "mask":
            masks.append(replace(f, id=_bare_id(f, MASK_FOLDER)))
        elif kind == "image":
            bare = replace(f, id=_bare_id(f, IMAGE_FOLDER))
            # images/a_mask.png next to images/a.png is a mask.
            (masks if MASK_ENDING.search(bare.id) and MASK_ENDING.sub("", bare.id) in ids else images).append(bare)
        elif MASK_ENDING.search(f.id):
            masks.append(f)
        else:
            loose.append(f)
    return (images, masks, loose) if images else (loose, masks, [])


def with_sides(cases: Iterable[Case]) -> list[Case]:
    """Set the published split if every case is in a train, val or test folder; val counts as train.

    A test folder without masks is not a test set; its images are unlabelled images like the others.
    """
    cases = list(cases)
    sides = [SIDES.get(case.id.partition("/")[0].lower()) if "/" in case.id else None for case in cases]
    tests = [case for case, side in zip(cases, sides, strict=True) if side == "test"]
    if None in sides or len(set(sides)) < 2 or not any(case.has_mask for case in tests):
        return cases
    return [replace(case, subset=side) for case, side in zip(cases, sides, strict=True)]


@dataclass
class Pairing:
    cases: list[Case] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def pair(images: Sequence[Found], masks: Sequence[Found]) -> Pairing:
    """Match masks to images; report whatever is ambiguous."""
    result = Pairing()
    twice = {id for id, n in Counter(found.id for found in images).items() if n > 1}
    for id in sorted(twice):
        files = [found.path for found in images if found.id == id]
        names = ", ".join(text(file.name) for file in files)
        result.problems.append(
            Problem(
                text(files[0]),
                f"{len(files)} images with the same name ({names}); all skipped",
                "Keep one of them, or rename them, so that masks can be matched by name.",
            )
        )
    known = {found.id for found in images}
    short_names = Counter(id.rpartition("/")[2] for id in known)
    by_short_name = {id.rpartition("/")[2]: id for id in known if short_names[id.rpartition("/")[2]] == 1}
    whole: dict[str, list[Path]] = {}
    pieces: dict[str, list[Path]] = {}
    for mask in masks:
        owner, is_piece = _owner(mask, known, by_short_name)
        if owner is None:
            result.problems.append(
                Problem(
                    text(mask.path),
                    "mask with no matching image; skipped",
                    "Add the image, or rename the mask like its image. If it is an image, move it to images/.",
                )
            )
        else:
            (pieces if is_piece else whole).setdefault(owner, []).append(mask.path)
    for image in images:
        if image.id in twice:
            continue
        candidates = whole.get(image.id, [])
        mask_files = candidates or pieces.get(image.id, [])
        if len(candidates) > 1 or (candidates and image.id in pieces):
            names = ", ".join(text(f.name) for f in [*candidates, *pieces.get(image.id, [])][:4])
            result.problems.append(
                Problem(
                    text(image.path),
                    f"several masks for one image ({names}); used as an unlabelled image",
                    "Keep one mask per image, or put one file per object into a folder masks/NAME/.",
                )
            )
            mask_files = []
        result.cases.append(Case(id=image.id, image=(image.path,), mask=tuple(mask_files) or None))
    return result


def with_own_labels(cases: Iterable[Case]) -> list[Case]:
    """Set the mask of image files that contain it; reads only the names of the arrays."""

    def own(case: Case) -> Case:
        if case.mask is None and suffix_of(case.image[0]) in _HOLD_BOTH:
            from hebbseg.data.io.arrays import has_label

            with suppress(Exception):  # a damaged file is reported when the image is read
                return replace(case, mask=case.image) if has_label(case.image[0]) else case
        return case

    return [own(case) for case in cases]


def with_spacing(cases: Iterable[Case]) -> list[Case]:
    """Set the spacing of each case from the header of its image."""

    def stated(case: Case) -> Case:
        try:
            return replace(case, spacing_mm=read_header(case.image[0]).spacing_mm)
        except HebbsegError:
            return case  # reported when the image is read

    cases = list(cases)
    stating = [FORMATS.get(suffix_of(case.image[0]), "itk") in _STATE_SPACING for case in cases]
    read = parallel_map(stated, [case for case, states in zip(cases, stating, strict=True) if states])
    return [next(read) if states else case for case, states in zip(cases, stating, strict=True)]


def _owner(mask: Found, known: set[str], by_short_name: dict[str, str]) -> tuple[str | None, bool]:
    """Return the id of the matching image, and whether the mask is one object in a folder of several."""
    bare = MASK_ENDING.sub("", mask.id)
    for id in (mask.id, bare):
        if id in known:
            return id, False
    parent = mask.parent_id
    for id in (parent, MASK_ENDING.sub("", parent)):
        if id in known:
            return id, True
    for id in (mask.id, bare):
        short = id.rpartition("/")[2]
        if short in by_short_name:
            return by_short_name[short], False
    return None, False


def _placed(found: Found, place: Path) -> Found:
    """Return the file with its id relative to the root."""
    return found if place == Path() else replace(found, id=f"{text(place.as_posix())}/{found.id}")


def _kind(found: Found) -> str:
    folders = found.parent_id.split("/")
    if any(MASK_FOLDER.search(folder) for folder in folders):
        return "mask"
    return "image" if any(IMAGE_FOLDER.search(folder) for folder in folders) else "loose"


def _bare_id(found: Found, word: re.Pattern[str]) -> str:
    folders = [word.sub("", folder) for folder in found.parent_id.split("/")]
    return "/".join(part for part in [*folders, found.id.rpartition("/")[2]] if part)


def _root(path: Path) -> Path:
    """Return the folder, or its only subfolder (as in many zip archives)."""
    for _ in range(4):
        entries, children = visible(path), subfolders(path)
        if len(children) == len(entries) == 1 and not IMAGE_FOLDER.search(children[0].name):
            path = children[0]
        else:
            break
    beside = subfolders(path.resolve().parent) if IMAGE_FOLDER.fullmatch(path.name) else []
    return path.parent if any(MASK_FOLDER.fullmatch(child.name) for child in beside) else path
