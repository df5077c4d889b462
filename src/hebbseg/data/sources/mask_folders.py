"""Which folder contains the masks, if that is not clear from its name."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hebbseg.data.cases import DataError
from hebbseg.data.sources.endings import set_aside
from hebbseg.data.sources.guess import Guess, guess
from hebbseg.data.sources.listing import Found, text
from hebbseg.data.sources.pairing import Matcher
from hebbseg.data.sources.roles import Roles

_LEAST_SHARE = 0.1  # of a folder's files that match an image, for a folder that is not named as one of masks

_MOST_FOLDERS = 20  # of images, in which masks are searched


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    folder: str
    files: list[Found]
    images: frozenset[str]

    def look(self) -> Guess:
        return guess([found.path for found in self.files])


def choose_masks(root: Path, roles: Roles) -> list[str]:
    """Add the masks of a folder that is recognized by its content; return notes on it.

    Raises `DataError` if more than one folder could contain the masks of an image.
    """
    if not roles.masks:
        _separate(roles)
        set_aside(roles)
    named = _candidates(roles, roles.masks)
    others = [each for each in _candidates(roles, roles.others) if len(each.images) >= max(1, _LEAST_SHARE * len(each.files))]
    others = [each for each in others if each.look().like_masks]
    in_doubt = _in_doubt([*named, *others])
    if in_doubt:
        described = sorted(((each, each.look()) for each in in_doubt), key=lambda pair: pair[1].is_field_of_view)
        shown = "; ".join(f"{each.folder} ({len(each.files)} files: {found.words})" for each, found in described)
        raise DataError(
            text(root),
            f"{len(in_doubt)} {_kind(in_doubt)} could {'be' if _kind(in_doubt) == 'endings' else 'contain'} the masks: {shown}",
            f"Pass the right one, such as --masks {shlex.quote(described[0][0].folder)}, or --masks none to read images only.",
        )
    notes = []
    for each in others:
        roles.masks.extend(replace(found, id=_without_folder(found.id, each.folder)) for found in each.files)
        used = {found.path for found in each.files}
        roles.others[:] = [found for found in roles.others if found.path not in used]
        where = f"the files ending in {each.folder}" if _kind([each]) == "endings" else f"read from {each.folder}/"
        matching = f"{len(each.files)} files match {len(each.images)} images by name and look like masks"
        notes.append(f"the masks are {where}: {matching}; --masks chooses others")
    return notes


def _separate(roles: Roles) -> None:
    """Take folders that look like masks of the images in other folders out of the images."""
    folders: dict[str, list[Found]] = {}
    for found in roles.images:
        folders.setdefault(found.path.parent.name if found.parent_id else "", []).append(found)
    if not 1 < len(folders) <= _MOST_FOLDERS:
        return
    like_masks = {name for name, files in folders.items() if name and guess([found.path for found in files]).like_masks}
    images = [found for name, files in folders.items() if name not in like_masks for found in files]
    for name in sorted(like_masks) if images else ():
        matcher = Matcher(images, folders[name])
        if sum(matcher.match(found) is not None for found in folders[name]) >= 0.5 * len(folders[name]):
            roles.others.extend(folders[name])
            roles.folder_of.update((found.path, name) for found in folders[name])
            roles.images[:] = [found for found in roles.images if found not in folders[name]]


def _candidates(roles: Roles, files: Sequence[Found]) -> list[_Candidate]:
    """Return the folders with files that match images by name."""
    folders: dict[str, list[Found]] = {}
    for found in files:
        if found.path in roles.folder_of:
            folders.setdefault(roles.folder_of[found.path], []).append(found)
    candidates = []
    for folder, members in sorted(folders.items()):
        bare = [replace(found, id=_without_folder(found.id, folder)) for found in members]
        matcher = Matcher(roles.images, bare)
        matches = [matcher.match(found) for found in bare]
        images = frozenset(match.image for match in matches if match is not None)
        if images:
            candidates.append(_Candidate(folder=folder, files=members, images=images))
    return candidates


def _in_doubt(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the folders that share an image with another one."""
    owners: dict[str, int] = {}
    for each in candidates:
        for image in each.images:
            owners[image] = owners.get(image, 0) + 1
    return [each for each in candidates if any(owners[image] > 1 for image in each.images)]


def _kind(candidates: Sequence[_Candidate]) -> str:
    """Return "endings" if the files lie beside the images and have an ending of their own, else "folders"."""
    return "endings" if all(each.files[0].id.endswith(each.folder) for each in candidates) else "folders"


def _without_folder(id: str, folder: str) -> str:
    """Return the id without the first folder of this name, or this ending; ids of masks have none any more."""
    parts = id.split("/")
    if folder in parts[:-1]:
        parts.remove(folder)
        return "/".join(parts)
    return id.removesuffix(folder)
