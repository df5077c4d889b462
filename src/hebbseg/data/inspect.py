"""Inspection of a data set (``hebbseg check``): its content and every problem with it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hebbseg.data.cases import Case, ClassInfo, DataError, Problem, Source
from hebbseg.data.io.formats import FORMATS, read_header, suffix_of
from hebbseg.data.io.image_file import Header
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import text


@dataclass(frozen=True, kw_only=True)
class CaseFacts:
    """Properties of one case. ``usable`` is the case without an unreadable mask, or None if the image is unreadable."""

    case: Case
    usable: Case | None
    problems: tuple[Problem, ...]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    digest: bytes = b""
    pixels: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Result of reading every case once. ``usable`` cases exclude unreadable images and masks."""

    source: Source
    facts: tuple[CaseFacts, ...]
    classes: tuple[ClassInfo, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    @property
    def usable(self) -> tuple[Case, ...]:
        return tuple(facts.usable for facts in self.facts if facts.usable is not None)

    @property
    def fatal(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.fatal)


Keep = Callable[[Case, np.ndarray, np.ndarray | None], None]


def examine(
    source: Source, *, masks: bool = True, on_case: Callable[[], None] | None = None, keep: Keep | None = None
) -> Examination:
    """Read every image and mask and collect all problems.

    Args:
        source: the data set.
        masks: whether to read masks.
        on_case: called after each case, for a progress bar.
        keep: called from several threads with each usable case, its image and its mask (or None).
    """
    classes, found = _classes(source) if masks else ((), [])
    facts = []
    for fact in parallel_map(lambda case: _read(source, case, len(classes), keep), source.cases):
        facts.append(fact)
        if on_case is not None:
            on_case()
    problems = [*source.problems, *found, *(problem for fact in facts for problem in fact.problems), *_duplicates(facts)]
    if masks:
        problems += _check_classes(source, facts, classes, problems)
    return Examination(
        source=source,
        facts=tuple(facts),
        classes=classes,
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(_notes(source, facts)),
    )


def _classes(source: Source) -> tuple[tuple[ClassInfo, ...], list[Problem]]:
    try:
        return source.classes, []
    except DataError as error:
        return (), [error.problem]


def _read(source: Source, case: Case, classes: int, keep: Keep | None) -> CaseFacts:
    try:
        image = source.image(case)
    except DataError as error:
        problem = replace(error.problem, finding=error.problem.finding + "; image skipped", fatal=False)
        return CaseFacts(case=case, usable=None, problems=(problem,))
    problems = _check_values(image, case)
    usable, mask, pixels = case, None, None
    if case.has_mask and classes:
        try:
            mask = source.mask(case)
            pixels = tuple(np.bincount(mask.ravel(), minlength=classes).tolist())
        except DataError as error:
            finding = error.problem.finding + "; used as an unlabelled image"
            problems.append(replace(error.problem, finding=finding, fatal=False))
            usable = replace(case, mask=None)
        else:
            problems += _check_geometry(source, case)
    if keep is not None:
        keep(usable, image, mask)
    return CaseFacts(
        case=case,
        usable=usable,
        problems=tuple(problems),
        shape=image.shape[1:],
        dtype=str(image.dtype),
        digest=hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=16).digest(),
        pixels=pixels,
    )


def _check_values(image: np.ndarray, case: Case) -> list[Problem]:
    name = _file(case)
    if image.dtype.kind == "f" and not np.isfinite(image).all():
        n = int((~np.isfinite(image)).sum())
        return [Problem(name, f"NaN or infinite values in {n} pixel(s)", "Replace them with finite values.", fatal=True)]
    if image.min() == image.max():
        return [Problem(name, f"every pixel is {image.flat[0]}", "Remove the image unless it is meant to be blank.")]
    return []


def _check_geometry(source: Source, case: Case) -> list[Problem]:
    """Compare the affines of image and mask, which have the same number of voxels."""
    if not isinstance(source, FileSource) or not case.mask or FORMATS.get(suffix_of(case.mask[0])) not in ("nifti", "itk"):
        return []
    image, mask = source.header(case).affine, read_header(case.mask[0]).affine
    if image is None or mask is None or np.allclose(image, mask, rtol=1e-3, atol=1e-2):
        return []
    return [
        Problem(
            text(case.mask[0]),
            f"origin, orientation or spacing differs from {case.image[0].name}; voxels are matched by index",
            "Check the contact sheet. If the mask is misplaced, resample it onto the grid of its image.",
        )
    ]


def _duplicates(facts: Sequence[CaseFacts]) -> list[Problem]:
    first: dict[tuple[bytes, tuple[int, ...]], Case] = {}
    problems = []
    for fact in facts:
        if fact.usable is None:
            continue
        twin = first.setdefault((fact.digest, fact.shape), fact.case)
        if twin is not fact.case:
            problems.append(
                Problem(
                    _file(fact.case),
                    f"identical to {_file(twin)}",
                    "Remove one of them, or give both the same --group. Otherwise a training image may also be a test image.",
                )
            )
    return problems


def _check_classes(
    source: Source, facts: Sequence[CaseFacts], classes: Sequence[ClassInfo], known: Sequence[Problem]
) -> list[Problem]:
    counted = [fact.pixels for fact in facts if fact.pixels is not None]
    if not counted:
        if any(problem.fatal for problem in known) or not facts:
            return []
        return [
            Problem(
                source.name,
                "no case has a usable mask",
                "Add masks for a few images to train a segmenter. Pre-training needs no masks.",
            )
        ]
    pixels = np.asarray(counted).sum(axis=0)
    if len(classes) > 1 and not pixels[1:].any():
        return [
            Problem(
                source.name,
                f"all {len(counted)} masks are empty (only {classes[0].name})",
                "Check how the masks were exported. Training needs masks with foreground.",
                fatal=True,
            )
        ]
    return [
        Problem(
            source.name,
            f"no mask contains class {c.index} ({c.name}, value {c.value})",
            "Check the label map, or remove the class from it.",
        )
        for c in classes[1:]
        if not pixels[c.index]
    ]


def _notes(source: Source, facts: Sequence[CaseFacts]) -> list[str]:
    """Return conversions and properties worth knowing that need no action."""
    notes = []
    if isinstance(source, FileSource):
        headers = [header for header in source.headers.values() if isinstance(header, Header)]
        gray = sum(header.channels == 1 for header in headers)
        if gray and source.channels == 3:
            notes.append(f"{gray} grayscale image(s) are converted to RGB to match the color images")
        if alpha := sum(header.opacity for header in headers):
            notes.append(f"{alpha} image(s) have an alpha channel, which is ignored")
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


def _file(case: Case) -> str:
    return text(case.image[0]) if case.image else case.id
