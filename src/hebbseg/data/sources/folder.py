"""A user's folder: ``images/`` and ``masks/`` of the same names, or all in one place with an ending such as ``_mask``.

* A mask may be missing; the image is then used without one.
* ``masks/NAME/*.png``, a folder per image, is one file per object; they are merged.
* ``masks/NAME_mask.png`` belongs to ``images/NAME.jpg``; subfolders (``images/p1/a.png``, ``masks/p1/a.png``) do too.
* HDF5 and npz files that hold a ``label`` beside their ``image`` are their own masks.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.formats import FORMATS, read_header, suffix_of
from hebbseg.data.masks import MaskOptions
from hebbseg.data.parallel import parallel_map
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import Found, list_images, subfolders, text, visible
from hebbseg.errors import HebbsegError

IMAGE_FOLDERS = ("images", "image", "imgs", "img")
MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "annotation", "segmentations", "gt", "groundtruth")
MASK_ENDING = re.compile(
    r"[_\-. ](mask|masks|anno|annotation|lesion|seg|segmentation|label|labels|gt|groundtruth)$", re.IGNORECASE
)
_HOLD_BOTH = (".h5", ".hdf5", ".npz")
_STATE_SPACING = ("nifti", "itk", "tiff")


def folder(path: Path, masks: MaskOptions) -> FileSource:
    """Reads a plain folder of images with or without masks."""
    root = _root(path)
    image_folder, mask_folder = _child(root, IMAGE_FOLDERS), _child(root, MASK_FOLDERS)
    if image_folder is not None:
        images = list_images(image_folder)
        labels = list_images(mask_folder) if mask_folder is not None else None
        problems = [*images.problems, *(labels.problems if labels else ())]
        pairing = pair(images.found, labels.found if labels else ())
    else:
        listed = list_images(root)
        problems = list(listed.problems)
        ids = {found.id for found in listed.found}
        is_mask = {f.path: _is_mask_beside_image(f, ids) for f in listed.found}
        pairing = pair([f for f in listed.found if not is_mask[f.path]], [f for f in listed.found if is_mask[f.path]])
    problems += pairing.problems
    if not pairing.cases:
        reasons = " ".join(str(problem) for problem in problems[:3])
        raise DataError(
            text(path),
            f"no image found. {reasons}".strip(),
            f"Put images into {text(root)}/images (and masks of the same name into masks/). Read are: "
            f"{', '.join(FORMATS)} and folders of DICOM slices.",
        )
    cases = with_spacing(with_own_labels(pairing.cases))
    return FileSource(name=root.resolve().name, root=root, cases=cases, problems=problems, masks=masks)


@dataclass
class Pairing:
    cases: list[Case] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def pair(images: Sequence[Found], masks: Sequence[Found]) -> Pairing:
    """Which mask belongs to which image; whatever does not fit is a problem, never a guess."""
    result = Pairing()
    twice = {id for id, n in Counter(found.id for found in images).items() if n > 1}
    for id in sorted(twice):
        files = [found.path for found in images if found.id == id]
        names = ", ".join(text(file.name) for file in files)
        result.problems.append(
            Problem(
                file=text(files[0]),
                finding=f"{len(files)} images with the same name ({names}); all left out",
                remedy="Keep one, or rename them, so that it is clear which one a mask belongs to.",
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
                    file=text(mask.path),
                    finding="a mask without an image of its name; left out",
                    remedy="Add the image, or rename the mask like its image. If it is an image, move it to images/.",
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
                    file=text(image.path),
                    finding=f"several masks for one image ({names}); used without a mask",
                    remedy="Keep one mask per image, or put one file per object into a folder masks/NAME/.",
                )
            )
            mask_files = []
        result.cases.append(Case(id=image.id, image=(image.path,), mask=tuple(mask_files) or None))
    return result


def with_own_labels(cases: Iterable[Case]) -> list[Case]:
    """Image files that hold their mask get it as their mask; only names inside the file are looked at."""

    def own(case: Case) -> Case:
        if case.mask is None and suffix_of(case.image[0]) in _HOLD_BOTH:
            from hebbseg.data.filetypes.arrays import has_label

            try:
                return replace(case, mask=case.image) if has_label(case.image[0]) else case
            except OSError:
                return case  # damaged: reading its image says so
        return case

    return [own(case) for case in cases]


def with_spacing(cases: Iterable[Case]) -> list[Case]:
    """Cases with the spacing their image's header states."""

    def stated(case: Case) -> Case:
        try:
            return replace(case, spacing_mm=read_header(case.image[0]).spacing_mm)
        except HebbsegError:
            return case  # damaged: reading its image says so

    cases = list(cases)
    stating = [FORMATS.get(suffix_of(case.image[0]), "itk") in _STATE_SPACING for case in cases]
    read = parallel_map(stated, [case for case, states in zip(cases, stating, strict=True) if states])
    return [next(read) if states else case for case, states in zip(cases, stating, strict=True)]


def _owner(mask: Found, known: set[str], by_short_name: dict[str, str]) -> tuple[str | None, bool]:
    """The id of the image a mask belongs to, and whether the mask is one object of several in a folder."""
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


def _is_mask_beside_image(found: Found, ids: set[str]) -> bool:
    """Whether a file of a flat folder is a mask: by its ending, or by its folder, ``a_masks/`` beside ``a.png``."""
    parent = found.parent_id
    return bool(MASK_ENDING.search(found.id)) or (
        bool(MASK_ENDING.search(parent)) and MASK_ENDING.sub("", parent) in ids
    )


def _child(root: Path, names: Sequence[str]) -> Path | None:
    children = {child.name.lower(): child for child in subfolders(root)}
    return next((children[name] for name in names if name in children), None)


def _root(path: Path) -> Path:
    """The folder itself, or the one it consists of: zips like to hold a single folder."""
    for _ in range(4):
        entries = visible(path)
        children = subfolders(path)
        if len(children) == 1 and len(entries) == 1 and children[0].name.lower() not in IMAGE_FOLDERS:
            path = children[0]
        else:
            break
    return path.parent if path.name.lower() in IMAGE_FOLDERS and _child(path.parent, MASK_FOLDERS) else path
