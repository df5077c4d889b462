"""What is found by comparing all cases of a data set."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hebbseg.data.cases import IGNORE, Case, ClassInfo, Problem, Source
from hebbseg.data.io.image_file import Header
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.guess import SAME_AREA, area_overlap, thumbnail
from hebbseg.data.sources.listing import text

_FEWEST_AREAS = 6  # masks; fewer can be alike by chance


@dataclass(frozen=True, kw_only=True)
class CaseFacts:
    """Properties of one case. ``usable`` is the case without an unreadable mask, or None if the image is unreadable.

    ``pixels`` is the number of pixels of each class, ``ignored`` that of pixels that are not annotated; ``area`` is the
    foreground at a small size, see `small_area`.
    """

    case: Case
    usable: Case | None
    problems: tuple[Problem, ...]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    digest: bytes = b""
    pixels: tuple[int, ...] | None = None
    ignored: int = 0
    area: bytes | None = None


def not_annotated(case: Case) -> Problem:
    return Problem(
        text(case.mask[0]) if case.mask else case.id,
        "nothing is annotated: every pixel has the ignored value; used as an unlabelled image",
        "Annotate some pixels, or remove the mask.",
    )


def check_values(image: np.ndarray, case: Case) -> Iterator[Problem]:
    name = file_of(case)
    if image.dtype.kind == "f" and not np.isfinite(image).all():
        n = int((~np.isfinite(image)).sum())
        yield Problem(name, f"NaN or infinite values in {n} pixel(s)", "Replace them with finite values.", fatal=True)
    elif image.min() == image.max():
        yield Problem(name, f"every pixel is {image.flat[0]}", "Remove the image unless it is meant to be blank.")


def duplicates(facts: Sequence[CaseFacts]) -> Iterator[Problem]:
    first: dict[tuple[bytes, tuple[int, ...]], Case] = {}
    for fact in facts:
        if fact.usable is None:
            continue
        twin = first.setdefault((fact.digest, fact.shape), fact.case)
        if twin is not fact.case:
            yield Problem(
                file_of(fact.case),
                f"identical to {file_of(twin)}",
                "Remove one of them, or give both the same --group. Otherwise a training image may also be a test image.",
            )


def check_classes(
    source: Source, facts: Sequence[CaseFacts], classes: Sequence[ClassInfo], known: Sequence[Problem]
) -> Iterator[Problem]:
    counted = [fact.pixels for fact in facts if fact.pixels is not None]
    if not counted:
        if facts and not any(problem.fatal for problem in known):
            remedy = (
                "Add masks for a few images (`hebbseg next` ranks the images to annotate), or name their folder: --masks "
                "FOLDER. `hebbseg pretrain` needs none."
            )
            yield Problem(source.name, "no case has a usable mask", remedy)
        return
    pixels = np.asarray(counted).sum(axis=0)
    if not pixels.any():
        if not any(problem.fatal for problem in known):
            remedy = "Annotate some pixels, or check the value of --ignore."
            yield Problem(source.name, f"nothing is annotated in all {len(counted)} masks", remedy, fatal=True)
        return
    if len(classes) > 1 and not pixels[1:].any():
        remedy = "Check how the masks were exported. Training needs masks with foreground."
        yield Problem(source.name, f"all {len(counted)} masks are empty (only {classes[0].name})", remedy, fatal=True)
        return
    if len(classes) == 2 and not pixels[0] and not any(problem.fatal for problem in known):
        remedy = "Check how the masks were exported. Training needs masks with background."
        finding = f"all {len(counted)} masks are full: {classes[1].name} covers every pixel that is annotated"
        yield Problem(source.name, finding, remedy, fatal=True)
        return
    for c in classes[1:]:
        if not pixels[c.index]:
            finding = f"no mask contains class {c.index} ({c.name}, value {c.value})"
            yield Problem(source.name, finding, "Check the label map, or remove the class from it.")


def check_areas(source: Source, facts: Sequence[CaseFacts]) -> Iterator[Problem]:
    """Report masks that mark nearly the same area in every image, as a field of view does."""
    packed = [fact.area for fact in facts if fact.area is not None and any(fact.area)]
    if len(packed) < _FEWEST_AREAS or len({len(area) for area in packed}) > 1:
        return
    total, full = np.zeros(8 * len(packed[0]), np.int64), True
    for area in map(_unpacked, packed):
        total += area
        full = full and bool(area.all())
    average = total >= len(packed) / 2
    least = min(area_overlap(area, average) for area in map(_unpacked, packed))
    if least > SAME_AREA and not full:
        yield Problem(
            source.name,
            f"suspicious: all {len(packed)} masks mark nearly the same area, as a field of view does (Dice with their average: "
            f"{least:.2f} or more)",
            "Check the contact sheet. If these are not the masks of the objects, name the right folder with --masks.",
        )


def small_area(mask: np.ndarray) -> bytes:
    """Return the foreground of a mask at 64 × 64 pixels (24 × 24 × 24 voxels), one bit each, to compare masks of any size."""
    small = thumbnail(mask)
    return np.packbits((small > 0) & (small != IGNORE)).tobytes()


def _unpacked(area: bytes) -> np.ndarray:
    return np.unpackbits(np.frombuffer(area, np.uint8)).astype(bool)


def notes_on(source: Source, facts: Sequence[CaseFacts]) -> list[str]:
    """Return conversions and properties worth knowing that need no action."""
    notes: list[str] = []
    if isinstance(source, FileSource):
        notes += source.notes
        headers = [header for header in source.headers.values() if isinstance(header, Header)]
        gray = sum(header.channels == 1 for header in headers)
        if gray and source.channels == 3:
            notes.append(f"{gray} grayscale image(s) are converted to RGB to match the color images")
        if alpha := sum(header.opacity for header in headers):
            notes.append(f"{alpha} image(s) have an alpha channel, which is ignored")
        notes += _orientations(source)
    sides: dict[str, set[str]] = {}
    for case in source.cases:
        if case.group is not None and case.subset is not None:
            sides.setdefault(case.group, set()).add(case.subset)
    if both := sum(len(subsets) > 1 for subsets in sides.values()):
        notes.append(
            f"in the published split, {both} of {len(sides)} groups (patients) are in both the training and the test set; "
            "kept as published"
        )
    types = Counter(fact.dtype for fact in facts if fact.usable is not None)
    if len(types) > 1:
        notes.append("mixed data types: " + ", ".join(f"{n} × {name}" for name, n in types.most_common()))
    return notes


def _orientations(source: FileSource) -> list[str]:
    """Return a note if volumes of different orientation are turned to a common one."""
    if source.orientation is None or source.spatial_dims != 3:
        return []
    headers = [header for header in source.file_headers.values() if isinstance(header, Header)]
    found = Counter(header.orientation or "unknown" for header in headers)
    if len(found) < 2:
        return []
    kinds = ", ".join(f"{n} × {name}" for name, n in found.most_common())
    unknown = " (those of unknown orientation are left as they are)" if "unknown" in found else ""
    return [f"volumes of different orientation are turned to {source.orientation}: {kinds}{unknown}"]


def file_of(case: Case) -> str:
    return text(case.image[0]) if case.image else case.id
