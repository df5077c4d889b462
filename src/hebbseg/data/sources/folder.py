"""Plain folders: ``images/`` and ``masks/`` with matching names, or one folder with a suffix such as ``_mask``.

* An image without a mask is unlabelled.
* ``masks/NAME/*.png`` are one file per object; they are merged.
* ``masks/NAME_mask.png`` matches ``images/NAME.jpg``, and ``masks/p1/a.png`` matches ``images/p1/a.png``.
* ``NAME_1stHO.png`` beside ``NAME.jpg`` is its mask if such files look like masks.
* ``train/images``, ``train/masks``, ``test/images`` … or ``train_images``, ``train_masks`` … define a published split.
* HDF5 and npz files can contain a ``label`` next to their ``image``.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hebbseg.data.cases import Case, DataError, Problem
from hebbseg.data.io.formats import FORMATS, read_header, suffix_of
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.labels.masks import MaskOptions
from hebbseg.data.progress import counted
from hebbseg.data.sources.endings import take_ending
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import Found, list_images, subfolders, text, visible
from hebbseg.data.sources.mask_folders import choose_masks
from hebbseg.data.sources.pairing import pair
from hebbseg.data.sources.roles import IMAGE_FOLDER, MASK_FOLDER, Roles, find_folders, side_of, sort_out
from hebbseg.errors import HebbsegError

NO_MASKS = "none"
_HOLD_BOTH = (".h5", ".hdf5", ".npz")
_STATE_SPACING = ("nifti", "itk", "tiff", "ome_zarr")


def folder(path: Path, masks: MaskOptions, *, image_folder: str | None = None, mask_folder: str | None = None) -> FileSource:
    """Open a plain folder of images with or without masks.

    Args:
        path: the folder.
        masks: how to interpret mask values.
        image_folder: folder of the images, by name or path; default: recognized by its name.
        mask_folder: folder of the masks, by name or path, the ending of their names, or "none"; default: recognized by its
            name, else by its content.
    """
    root = _root(path)
    try:
        roles, problems = _roles(root, image_folder, mask_folder)
    except DataError:
        roles, problems = _roles(root, image_folder, None)
        if mask_folder is None or not take_ending(roles, mask_folder):
            raise
    notes: list[str] = []
    if mask_folder == NO_MASKS:
        roles.masks[:] = [found for found in roles.masks if found.path not in roles.folder_of]
    elif mask_folder is None:
        notes += choose_masks(root, roles)
    pairing = pair(roles.images, roles.masks)
    problems += pairing.problems
    if not pairing.cases:
        reasons = " ".join(str(problem) for problem in problems[:3])
        raise DataError(
            text(path),
            f"no image found. {reasons}".strip(" ."),
            f"Put images into {text(root)}/images and masks with matching names into {text(root)}/masks, or name their folders "
            f"with --images and --masks. Supported: {', '.join(FORMATS)} and folders of DICOM slices.",
        )
    cases = with_spacing(with_own_labels(pairing.cases))
    if mask_folder == NO_MASKS:
        cases = [replace(case, mask=None) for case in cases]
    cases = with_sides(cases, notes)
    return FileSource(
        name=root.resolve().name,
        root=root,
        cases=cases,
        problems=problems,
        notes=[*notes, *pairing.notes],
        masks=masks,
        lists_unused=True,
    )


def _roles(root: Path, image_folder: str | None, mask_folder: str | None) -> tuple[Roles, list[Problem]]:
    """List the files and sort them by role."""
    images = None if image_folder is None else find_folders(root, image_folder, "--images")
    masks = None if mask_folder in (None, NO_MASKS) else find_folders(root, str(mask_folder), "--masks")
    children = subfolders(root)
    named = [child for child in children if IMAGE_FOLDER.fullmatch(child.name)] if images is None else []
    places = [root]
    if named:
        places = [*named, *([child for child in children if MASK_FOLDER.fullmatch(child.name)] if masks is None else masks)]
    else:
        places += [place for place in (*(images or ()), *(masks or ())) if not place.is_relative_to(root)]
    listings = [(place, list_images(place)) for place in places]
    problems = [problem for _, listing in listings for problem in listing.problems]
    found = [_placed(f, place, root) for place, listing in listings for f in listing.found]
    if named and mask_folder is None:
        # Other folders may contain the masks. Problems in them do not matter.
        aside = [child for child in children if child not in places]
        found += [_placed(f, child, root) for child in aside for f in list_images(child).found]
    return sort_out(found, image_folders=images, mask_folders=masks), problems


def with_sides(cases: Iterable[Case], notes: list[str] | None = None) -> list[Case]:
    """Set the published split if every case is in a train, val or test folder; val counts as train.

    A test folder without masks is not a test set; its images are unlabelled images like the others.
    """
    cases = list(cases)
    sides = [side_of(case.id) for case in cases]
    tests = [case for case, side in zip(cases, sides, strict=True) if side == "test"]
    if None in sides or len(set(sides)) < 2:
        return cases
    said = [] if notes is None else notes
    if not any(case.has_mask for case in tests):
        said.append(f"the {len(tests)} images of the test folder have no masks and are used as unlabelled training images")
        return cases
    tested = counted(len(tests), "test image")
    said.append(f"the train and test folders are used as the split ({tested}); --set test=0.2 draws another one")
    return [replace(case, subset=side) for case, side in zip(cases, sides, strict=True)]


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


def _placed(found: Found, place: Path, root: Path) -> Found:
    """Return the file with its id relative to the root; folders elsewhere count as folders in it."""
    if place == root:
        return found
    inside = place.relative_to(root).as_posix() if place.is_relative_to(root) else place.name
    return replace(found, id=f"{text(inside)}/{found.id}")


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
