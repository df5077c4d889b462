"""Inspection of a data set (``hebbseg check``): its content and every problem with it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hebbseg.data.cases import IGNORE, Case, ClassInfo, DataError, Problem, Source
from hebbseg.data.findings import (
    CaseFacts,
    check_areas,
    check_classes,
    check_values,
    duplicates,
    not_annotated,
    notes_on,
    small_area,
)
from hebbseg.data.inspect_large import read_large
from hebbseg.data.io.formats import FORMATS, read_header, suffix_of
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.large_files import LargeFiles, find_large
from hebbseg.data.sources import nnunet
from hebbseg.data.sources.files import FileSource
from hebbseg.data.sources.listing import text
from hebbseg.data.sources.patients import propose_groups
from hebbseg.data.sources.unused import Unused, find_unused


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Result of reading every case once. ``usable`` cases exclude unreadable images and masks."""

    source: Source
    facts: tuple[CaseFacts, ...]
    classes: tuple[ClassInfo, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    unused: tuple[Unused, ...] = ()

    @property
    def usable(self) -> tuple[Case, ...]:
        return tuple(facts.usable for facts in self.facts if facts.usable is not None)

    @property
    def fatal(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.fatal)


Keep = Callable[[Case, np.ndarray, np.ndarray | None], None]


def examine(
    source: Source,
    *,
    masks: bool = True,
    on_case: Callable[[], None] | None = None,
    keep: Keep | None = None,
    large: LargeFiles | None = None,
) -> Examination:
    """Read every image and mask and collect all problems.

    Args:
        source: the data set.
        masks: whether to read masks.
        on_case: called after each case, for a progress bar.
        keep: called from several threads with each usable case, its image and its mask (or None).
        large: the cases that are read in parts, and not kept; default: without ``keep``, all large ones.
    """
    if large is None and keep is None and isinstance(source, FileSource):
        large = LargeFiles(source, find_large(source))
    classes, found = _classes(source) if masks else ((), [])
    facts = []
    for fact in parallel_map(lambda case: _read(source, case, len(classes), keep, large), source.cases):
        facts.append(fact)
        if on_case is not None:
            on_case()
    problems = [*source.problems, *found, *(problem for fact in facts for problem in fact.problems), *duplicates(facts)]
    if masks:
        problems += [*check_classes(source, facts, classes, problems), *check_areas(source, facts)]
    if (proposal := propose_groups([fact.case for fact in facts], source.name)) is not None:
        problems.append(proposal)
    return Examination(
        source=source,
        facts=tuple(facts),
        classes=classes,
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(notes_on(source, facts)),
        unused=tuple(_unused(source, problems)),
    )


def _classes(source: Source) -> tuple[tuple[ClassInfo, ...], list[Problem]]:
    try:
        return source.classes, []
    except DataError as error:
        return (), [error.problem]


def _read(source: Source, case: Case, classes: int, keep: Keep | None, large: LargeFiles | None) -> CaseFacts:
    if large is not None and case.id in large:
        return read_large(large, case, classes)
    try:
        image = source.image(case)
    except DataError as error:
        problem = replace(error.problem, finding=error.problem.finding + "; image skipped", fatal=False)
        return CaseFacts(case=case, usable=None, problems=(problem,))
    problems = list(check_values(image, case))
    usable, mask, pixels, ignored = case, None, None, 0
    if case.has_mask and classes:
        try:
            mask = source.mask(case)
            counts = np.bincount(mask.ravel(), minlength=IGNORE + 1)
            pixels, ignored = tuple(counts[:classes].tolist()), int(counts[IGNORE])
        except DataError as error:
            finding = error.problem.finding + "; used as an unlabelled image"
            problems.append(replace(error.problem, finding=finding, fatal=False))
            usable = replace(case, mask=None)
        else:
            problems += _check_geometry(source, case)
            if ignored == mask.size:
                problems.append(not_annotated(case))
                usable, mask = replace(case, mask=None), None
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
        ignored=ignored,
        area=None if mask is None else small_area(mask),
    )


def _unused(source: Source, problems: Sequence[Problem]) -> list[Unused]:
    if not isinstance(source, FileSource) or not source.lists_unused:
        return []
    used = {path for case in source.cases for path in (*case.image, *(case.mask or ()))}
    if nnunet.looks_like(source.root):
        used.add(source.root / nnunet.DESCRIPTION)
    return find_unused(source.root, used, {problem.file for problem in problems})


def _check_geometry(source: Source, case: Case) -> Iterator[Problem]:
    """Compare the affines of image and mask, which have the same number of voxels."""
    if not isinstance(source, FileSource) or not case.mask or FORMATS.get(suffix_of(case.mask[0])) not in ("nifti", "itk"):
        return
    image, mask = source.header(case).affine, read_header(case.mask[0]).affine
    if image is not None and mask is not None and not np.allclose(image, mask, rtol=1e-3, atol=1e-2):
        yield Problem(
            text(case.mask[0]),
            f"origin, orientation or spacing differs from {case.image[0].name}; voxels are matched by index",
            "Check the contact sheet. If the mask is misplaced, resample it onto the grid of its image.",
        )
