"""Matching of masks to images by name."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from hebbseg.data.cases import Case, Problem
from hebbseg.data.sources.listing import Found, text
from hebbseg.data.sources.roles import MASK_ENDING, NUMBER, owner_of_ending

_LETTERS_OR_DIGITS = r"[^\W\d_]+|\d+"


@dataclass
class Pairing:
    cases: list[Case] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Match:
    """The image of a mask file. ``part`` is "number" or "folder" if the file is one of several of its mask."""

    image: str
    part: str = ""


class Matcher:
    """Finds the image of a mask, by these rules in this order.

    * ``a.png`` or ``a_mask.png`` is the mask of ``a``; ``a_mask_1.png`` is a part of it, as ``masks/a_1.png``.
    * ``masks/a/1.png`` is a part of the mask of ``a``.
    * Folders may differ if the name of the image is unique.
    * Beginnings and endings shared by all names may differ: ``21_manual1`` is the mask of ``21_training``.
    """

    def __init__(self, images: Sequence[Found], masks: Sequence[Found]) -> None:
        self._images = {found.id for found in images}
        self._masks = {found.id for found in masks}
        self._by_short_name = _unique({id: id.rpartition("/")[2] for id in self._images})
        # Where names of images end in numbers, a number does not mark a part of a mask.
        self._numbers_are_names = any(NUMBER.sub("", id) in self._images for id in self._images if NUMBER.search(id))

    def match(self, mask: Found) -> Match | None:
        bare = MASK_ENDING.sub("", mask.id)
        for id in (mask.id, bare):
            if id in self._images:
                return Match(image=id)
        if (owner := owner_of_ending(mask.id, self._images)) is not None:
            return Match(image=owner, part="number")
        if not self._numbers_are_names and (id := NUMBER.sub("", mask.id)) in self._images:
            return Match(image=id, part="number")
        for id in (mask.parent_id, MASK_ENDING.sub("", mask.parent_id)):
            if id in self._images:
                return Match(image=id, part="folder")
        for id in (mask.id, bare):
            if (short := id.rpartition("/")[2]) in self._by_short_name:
                return Match(image=self._by_short_name[short])
        if (owner := owner_of_ending(mask.id.rpartition("/")[2], self._by_short_name)) is not None:
            return Match(image=self._by_short_name[owner], part="number")
        image = self._by_core.get(self._mask_cores[mask.id])
        return None if image is None else Match(image=image)

    @cached_property
    def _mask_cores(self) -> dict[str, str]:
        return _cores(self._masks)

    @cached_property
    def _by_core(self) -> dict[str, str]:
        """Image by the part of its name that differs between images, where this also identifies the mask."""
        once = _unique(self._mask_cores)
        return {core: id for core, id in _unique(_cores(self._images)).items() if core in once}


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
    matcher = Matcher(images, masks)
    files_of: dict[str, dict[str, list[Path]]] = {}
    for mask in masks:
        match = matcher.match(mask)
        if match is None:
            result.problems.append(
                Problem(
                    text(mask.path),
                    "mask with no matching image; skipped",
                    "Add the image, or rename the mask like its image. If it is an image, move it to images/.",
                )
            )
        else:
            files_of.setdefault(match.image, {}).setdefault(match.part, []).append(mask.path)
    merged: list[list[Path]] = []
    for image in images:
        if image.id in twice:
            continue
        parts = files_of.get(image.id, {})
        whole, numbered, in_folder = (parts.get(part, []) for part in ("", "number", "folder"))
        files = [*whole, *numbered] or in_folder
        if len(whole) > 1 or (in_folder and files is not in_folder):
            names = ", ".join(text(f.name) for f in [*whole, *numbered, *in_folder][:4])
            result.problems.append(
                Problem(
                    text(image.path),
                    f"several masks for one image ({names}); used as an unlabelled image",
                    "Keep one mask per image. Parts of a mask are named NAME_mask.png, NAME_mask_1.png …, or are in a folder "
                    "masks/NAME/.",
                )
            )
            files = []
        elif numbered and len(files) > 1:
            merged.append(files)
        result.cases.append(Case(id=image.id, image=(image.path,), mask=tuple(files) or None))
    if merged:
        example = ", ".join(text(file.name) for file in max(merged, key=len)[:3])
        result.notes.append(f"{len(merged)} image(s) have several masks, which are merged ({example})")
    return result


def _unique(names: dict[str, str]) -> dict[str, str]:
    """Return name → id for the names that only one id has."""
    counts = Counter(names.values())
    return {name: id for id, name in names.items() if counts[name] == 1}


def _cores(ids: Collection[str]) -> dict[str, str]:
    """Return each id without the beginning and ending that all file names in its folder share, cut between words.

    >>> _cores(["21_training", "22_training"])
    {'21_training': '21', '22_training': '22'}
    """
    folders: dict[str, list[str]] = {}
    for id in sorted(ids):
        folders.setdefault(id.rpartition("/")[0], []).append(id.rpartition("/")[2])
    cores = {}
    for folder, names in folders.items():
        start = _common(names)
        end = _common([name[::-1] for name in names])[::-1]
        for name in names:
            core = name[len(start) :].removesuffix(end) if len(names) > 1 else name
            cores["/".join(filter(None, (folder, name)))] = "/".join(filter(None, (folder, core)))
    return cores


def _common(names: Sequence[str]) -> str:
    """Return the common beginning of the names without a word or number that it cuts."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    start = "".join(letters[0] for letters in same)
    following = [name[len(start) : len(start) + 1] for name in names]
    last = re.search(rf"({_LETTERS_OR_DIGITS})$", start)
    if last is None:
        return start
    cut = any(c.isdigit() if last.group()[-1].isdigit() else c.isalpha() for c in following)
    return start[: last.start()] if cut else start
