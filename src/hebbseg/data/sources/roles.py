"""Roles of files by the names of their folders and their endings: images, masks, others; sides of a published split."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hebbseg.data.cases import Case, DataError
from hebbseg.data.sources.listing import Found, below, text
from hebbseg.errors import did_you_mean

_MASK_WORDS = r"masks?|labels?|annotations?|segmentations?|gt|ground[_ ]?truth|(\d(st|nd|rd)[_ ]?)?manual\d?"
IMAGE_FOLDER = re.compile(r"(^|[_\- ])(images?|imgs?)$", re.IGNORECASE)
MASK_FOLDER = re.compile(rf"(^|[_\- ])({_MASK_WORDS})$", re.IGNORECASE)
MASK_ENDING = re.compile(rf"[_\-. ]({_MASK_WORDS}|anno|lesion|seg)$", re.IGNORECASE)
NUMBER = re.compile(r"([_\-. ]\d{1,3}| ?\(\d{1,3}\))$")
_COMPANION = re.compile(r"[_\-. ](superpixels?|overlays?|previews?|thumb(nail)?s?|contours?|heatmaps?)$", re.IGNORECASE)
_SIDE = re.compile(r"(?:^|[^a-z])(train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?)(?:data(?:set)?|set)?(?:$|[^a-z])")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Files by role. Ids of images and masks have no folder words: ``train/images/a`` is ``train/a``.

    ``folder_of`` is the folder of each file beside the images, such as ``masks`` or ``1st_manual``; masks in the folder of
    their images have none.
    """

    images: list[Found] = field(default_factory=list)
    masks: list[Found] = field(default_factory=list)
    others: list[Found] = field(default_factory=list)
    folder_of: dict[Path, str] = field(default_factory=dict)


def sort_out(
    found: Sequence[Found], *, image_folders: Collection[Path] | None = None, mask_folders: Collection[Path] | None = None
) -> Roles:
    """Return images, masks and other files; folders that are not given are recognized by name."""
    roles = Roles()
    placed: list[Found] = []
    loose: list[Found] = []
    for f in found:
        if (place := _place(f, MASK_FOLDER, mask_folders)) is not None:
            roles.masks.append(replace(f, id=_bare_id(f, MASK_FOLDER, place)))
            roles.folder_of[f.path] = f.id.split("/")[place]
        elif (place := _place(f, IMAGE_FOLDER, image_folders)) is not None:
            placed.append(replace(f, id=_bare_id(f, IMAGE_FOLDER, place)))
        else:
            loose.append(f)
    ids = {f.id for f in (*found, *placed)}
    for f in placed:
        # images/a_mask.png next to images/a.png is a mask.
        _add(f, roles, ids, is_mask=mask_folders is None and owner_of_ending(f.id, ids) is not None)
    if placed or image_folders is not None:
        bases = sorted({f.id.rpartition("/")[0] for f in placed}, key=len, reverse=True)
        for f in loose:
            is_mask = mask_folders is None and MASK_ENDING.search(f.id) is not None
            (roles.masks if is_mask else roles.others).append(f)
            if not is_mask and (folder := _folder_beside(f, bases)):
                roles.folder_of[f.path] = folder
        return roles
    for f in loose:
        has_ending = MASK_ENDING.search(f.id) is not None or owner_of_ending(f.id, ids) is not None
        _add(f, roles, ids, is_mask=mask_folders is None and has_ending)
    return roles


def owner_of_ending(id: str, known: Collection[str]) -> str | None:
    """Return the known id whose mask ``a_mask``, ``a_mask_1`` or ``a_mask (1)`` is."""
    for name in (id, NUMBER.sub("", id)):
        if MASK_ENDING.search(name) and (bare := MASK_ENDING.sub("", name)) in known:
            return bare
    return None


def side_of(id: str) -> str | None:
    """Return the side of a published split that a folder names; a validation set counts as training.

    >>> side_of("ISIC-2017_Test_Data/x"), side_of("Training/x"), side_of("latest/x")
    ('test', 'train', None)
    """
    for folder in id.split("/")[:-1]:
        if match := _SIDE.search(folder.lower()):
            return "test" if match.group(1).startswith("test") else "train"
    return None


def find_folders(root: Path, given: str, option: str) -> list[Path]:
    """Return the folders that the value of ``--images`` or ``--masks`` means.

    It is the name of one or more folders in ``root``, a path in it, or the path of a folder elsewhere.
    """
    folders = [folder for folder in below(root) if folder != root]
    wanted = given.strip().rstrip("/\\").lower()
    relative = {folder: folder.relative_to(root).as_posix() for folder in folders}
    for found in (
        [folder for folder in folders if relative[folder].lower() == wanted],
        [folder for folder in folders if folder.name.lower() == wanted],
    ):
        if found:
            return found
    if (path := Path(given).expanduser()).is_dir():
        return [path]
    names = {name for folder in folders for name in (folder.name, relative[folder])}
    hint = did_you_mean(given, names) if names else "It has no subfolders."
    raise DataError(text(root), f"{option} {given}: no such folder", hint)


def _add(f: Found, roles: Roles, ids: set[str], *, is_mask: bool) -> None:
    is_companion = _COMPANION.search(f.id) is not None and _COMPANION.sub("", f.id) in ids
    (roles.others if is_companion else roles.masks if is_mask else roles.images).append(f)


def _place(found: Found, word: re.Pattern[str], folders: Collection[Path] | None) -> int | None:
    """Return the position in the id of the folder with this role, or None."""
    parts = found.id.split("/")[:-1]
    if folders is None:
        return next((i for i, part in enumerate(parts) if word.search(part)), None)
    for up, parent in enumerate(found.path.parents):
        if parent in folders:
            return max(0, len(parts) - 1 - up)
    return None


def _bare_id(found: Found, word: re.Pattern[str], place: int) -> str:
    """Return the id without the folder at ``place``, of which the side of a split is kept: ``train_masks`` → ``train``."""
    *folders, name = found.id.split("/")
    bare = [word.sub("", folder) for folder in folders]
    if folders and bare[place] == folders[place] and side_of(f"{folders[place]}/") is None:
        bare[place] = ""
    return "/".join(part for part in [*bare, name] if part)


def _folder_beside(found: Found, bases: Sequence[str]) -> str | None:
    """Return the folder of a file below the folder that also contains the images."""
    for base in bases:
        inside = found.id.removeprefix(f"{base}/") if base else found.id
        if (not base or inside != found.id) and "/" in inside:
            return inside.partition("/")[0]
    return None


def in_own_folder(case: Case) -> bool:
    """Return whether the mask consists of several files in a folder named like the image."""
    if not case.mask or len(case.mask) == 1:
        return False
    return MASK_ENDING.sub("", case.mask[0].parent.name) == case.id.rpartition("/")[2]
