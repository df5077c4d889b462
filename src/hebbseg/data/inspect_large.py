"""Inspection of cases that are read in parts."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hebbseg.data.cases import IGNORE, Case, DataError, Problem
from hebbseg.data.findings import CaseFacts, check_values, not_annotated, small_area
from hebbseg.data.io.tiles import sampled
from hebbseg.data.large_files import LargeFiles

_SIDE = 64  # of the small mask, as of `hebbseg.data.findings.small_area`
_HASHED_BYTES = 2**24


def read_large(large: LargeFiles, case: Case, classes: int) -> CaseFacts:
    """Return the facts of a large case: from sampled tiles of its image, and from its whole mask, band by band."""
    try:
        sample = sampled(large.array(case))
        shape = large.shape(case.id)
    except DataError as error:
        problem = replace(error.problem, finding=error.problem.finding + "; image skipped", fatal=False)
        return CaseFacts(case=case, usable=None, problems=(problem,))
    problems: list[Problem] = list(check_values(sample, case))
    usable, pixels, ignored, area = case, None, 0, None
    if case.has_mask and classes:
        try:
            counts, area = _counted(large, case, shape)
            pixels, ignored = tuple(counts[:classes].tolist()), int(counts[IGNORE])
        except DataError as error:
            finding = error.problem.finding + "; used as an unlabelled image"
            problems.append(replace(error.problem, finding=finding, fatal=False))
            usable = replace(case, mask=None)
        else:
            if ignored == counts.sum():
                problems.append(not_annotated(case))
                usable = replace(case, mask=None)
    return CaseFacts(
        case=case,
        usable=usable,
        problems=tuple(problems),
        shape=tuple(shape),
        dtype=str(sample.dtype),
        digest=_digest(case.image[0]),
        pixels=pixels,
        ignored=ignored,
        area=area,
    )


def _counted(large: LargeFiles, case: Case, shape: Sequence[int]) -> tuple[np.ndarray, bytes]:
    """Return the number of pixels of each index, and the small area."""
    counts = np.zeros(IGNORE + 1, np.int64)
    rows, columns = (np.arange(_SIDE) * n // _SIDE for n in shape)
    small = []
    for top, band in large.mask_bands(case):
        counts += np.bincount(band.ravel(), minlength=IGNORE + 1)
        here = rows[(rows >= top) & (rows < top + len(band))] - top
        small.append(band[np.ix_(here, columns)])
    return counts, small_area(np.concatenate(small))


def _digest(path: Path) -> bytes:
    """Return a digest of the beginning and the size of a file, or of the files in a folder."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]:
        digest.update(str(file.stat().st_size).encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_HASHED_BYTES if file == path else 2**12))
    return digest.digest()
