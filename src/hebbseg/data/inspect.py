"""What was understood of some data, and everything that is wrong with it: the work behind ``hebbseg check``."""

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
    """What reading one case showed. ``usable`` is the case without what cannot be read, or None."""

    case: Case
    usable: Case | None
    problems: tuple[Problem, ...]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    digest: bytes = b""
    pixels: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Every case read once. ``usable`` can be trained on: bad images left out, bad masks taken off."""

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
    """Reads every image and every mask and collects what is wrong, rather than stopping at the first fault.

    Args:
        source: the data.
        masks: False never opens a mask.
        on_case: called after each case, for a progress bar.
        keep: called with each usable case, its image and its mask (None without one), from several threads.
    """
    classes, found = _classes(source) if masks else ((), [])
    facts = []
    for fact in parallel_map(lambda case: _read(source, case, len(classes), keep), source.cases):
        facts.append(fact)
        if on_case is not None:
            on_case()
    problems = [*source.problems, *found]
    for fact in facts:
        problems += fact.problems
    problems += _same_pictures(facts)
    if masks:
        problems += _about_the_set(source, facts, classes, problems)
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
        problem = replace(error.problem, finding=error.problem.finding + "; left out", fatal=False)
        return CaseFacts(case=case, usable=None, problems=(problem,))
    problems = _about_pixels(image, case)
    usable, mask, pixels = case, None, None
    if case.has_mask and classes:
        try:
            mask = source.mask(case)
            pixels = tuple(np.bincount(mask.ravel(), minlength=classes).tolist())
        except DataError as error:
            finding = error.problem.finding + "; used without a mask"
            problems.append(replace(error.problem, finding=finding, fatal=False))
            usable = replace(case, mask=None)
        else:
            problems += _about_place(source, case)
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


def _about_pixels(image: np.ndarray, case: Case) -> list[Problem]:
    name = _file(case)
    if image.dtype.kind == "f" and not np.isfinite(image).all():
        n = int((~np.isfinite(image)).sum())
        return [Problem(file=name, finding=f"{n} pixels that are not numbers (NaN or ∞)", remedy="Fill them.", fatal=True)]
    if image.min() == image.max():
        return [
            Problem(
                file=name,
                finding=f"every pixel is {image.flat[0]}",
                remedy="Remove it, unless it is meant to be blank.",
            )
        ]
    return []


def _about_place(source: Source, case: Case) -> list[Problem]:
    """Whether a mask says it lies elsewhere in space than its image, although it has as many voxels."""
    if not isinstance(source, FileSource) or not case.mask or FORMATS.get(suffix_of(case.mask[0])) not in ("nifti", "itk"):
        return []
    image, mask = source.header(case).affine, read_header(case.mask[0]).affine
    if image is None or mask is None or np.allclose(image, mask, rtol=1e-3, atol=1e-2):
        return []
    return [
        Problem(
            file=text(case.mask[0]),
            finding=f"another origin, orientation or spacing than {case.image[0].name}; taken voxel by voxel as if equal",
            remedy="Look at the contact sheet: if it lies wrong, resample the mask onto its image.",
        )
    ]


def _same_pictures(facts: Sequence[CaseFacts]) -> list[Problem]:
    first: dict[tuple[bytes, tuple[int, ...]], Case] = {}
    problems = []
    for fact in facts:
        if fact.usable is None:
            continue
        twin = first.setdefault((fact.digest, fact.shape), fact.case)
        if twin is not fact.case:
            problems.append(
                Problem(
                    file=_file(fact.case),
                    finding=f"the same picture as {_file(twin)}",
                    remedy="Remove one, or give both the same --group: else one could train what the other tests.",
                )
            )
    return problems


def _about_the_set(
    source: Source, facts: Sequence[CaseFacts], classes: Sequence[ClassInfo], known: Sequence[Problem]
) -> list[Problem]:
    counted = [fact.pixels for fact in facts if fact.pixels is not None]
    if not counted:
        if any(problem.fatal for problem in known) or not facts:
            return []
        return [
            Problem(
                file=source.name,
                finding="no case has a mask that can be used",
                remedy="Pre-training needs none; to train a segmenter, add masks for a few of the images.",
            )
        ]
    pixels = np.asarray(counted).sum(axis=0)
    if len(classes) > 1 and not pixels[1:].any():
        return [
            Problem(
                file=source.name,
                finding=f"all {len(counted)} masks are empty (nothing but {classes[0].name})",
                remedy="Check the export; there is nothing to learn from them.",
                fatal=True,
            )
        ]
    return [
        Problem(
            file=source.name,
            finding=f"no mask has class {c.index} ({c.name}, value {c.value})",
            remedy="Check the label map, or take the class out of it.",
        )
        for c in classes[1:]
        if not pixels[c.index]
    ]


def _notes(source: Source, facts: Sequence[CaseFacts]) -> list[str]:
    """What was done to make the images alike; nothing to mend."""
    notes = []
    if isinstance(source, FileSource):
        headers = [header for header in source.headers.values() if isinstance(header, Header)]
        grey = sum(header.channels == 1 for header in headers)
        if headers and source.channels == 3 and grey:
            notes.append(f"{grey} grey image(s) among colour ones are read as colour")
        opaque = sum(header.opacity for header in headers)
        if opaque:
            notes.append(f"{opaque} image(s) have an opacity channel, which is dropped")
    sides: dict[str, set[str]] = {}
    for case in source.cases:
        if case.group is not None and case.subset is not None:
            sides.setdefault(case.group, set()).add(case.subset)
    both = sum(len(subsets) > 1 for subsets in sides.values())
    if both:
        notes.append(f"the published split has {both} of {len(sides)} groups (patients) on both sides; kept as published")
    types = Counter(fact.dtype for fact in facts if fact.usable is not None)
    if len(types) > 1:
        notes.append("mixed number types: " + ", ".join(f"{n} × {name}" for name, n in types.most_common()))
    return notes


def _file(case: Case) -> str:
    return text(case.image[0]) if case.image else case.id
