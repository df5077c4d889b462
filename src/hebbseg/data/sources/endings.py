"""Masks that lie beside their images in one folder and differ from them in a common ending: ``x_1stHO.png``, ``x.jpg``."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from hebbseg.data.sources.guess import guess
from hebbseg.data.sources.listing import Found
from hebbseg.data.sources.roles import Roles

_FEWEST = 2  # files with an ending
_SEPARATOR = re.compile(r"[_\-. ]")


def files_by_ending(files: Sequence[Found]) -> dict[str, list[Found]]:
    """Return the files whose name is that of another one with an ending: ending → files.

    The longest such name counts: with ``a``, ``a_b`` and ``a_b_mask``, the last one has the ending ``_mask``.
    """
    ids = {found.id for found in files}
    endings: dict[str, list[Found]] = {}
    for found in files:
        if (ending := _ending_of(found.id, ids)) is not None:
            endings.setdefault(ending, []).append(found)
    return endings


def set_aside(roles: Roles) -> None:
    """Take files that look like masks and have an ending in common out of the images; `choose_masks` decides about them."""
    for ending, files in files_by_ending(roles.images).items():
        if len(files) >= _FEWEST and guess([found.path for found in files]).like_masks:
            roles.others.extend(files)
            roles.folder_of.update((found.path, ending) for found in files)
            aside = {found.path for found in files}
            roles.images[:] = [found for found in roles.images if found.path not in aside]


def take_ending(roles: Roles, ending: str) -> bool:
    """Make the files with this ending the masks; return whether there are any. Other endings of masks are not used."""
    everything = [*roles.images, *roles.masks, *roles.others]
    found = files_by_ending(everything)
    ending = next((each for each in found if ending in (each, each[1:])), "")
    if not ending:
        return False
    chosen = found[ending]
    aside = {found.path for found in chosen}
    roles.images[:] = [found for found in everything if found.path not in aside]
    roles.masks.clear()
    roles.others.clear()
    set_aside(roles)
    roles.masks.extend(replace(found, id=found.id.removesuffix(ending)) for found in chosen)
    return True


def _ending_of(id: str, known: Collection[str]) -> str | None:
    """Return what follows the longest known id that this id begins with, from a separator on."""
    folder = len(id) - len(id.rpartition("/")[2])
    for match in reversed(list(_SEPARATOR.finditer(id, folder + 1))):
        if id[: match.start()] in known:
            return id[match.start() :]
    return None
