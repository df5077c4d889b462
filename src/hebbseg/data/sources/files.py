"""The data source of all file layouts."""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from hebbseg.data.cases import IGNORE, Case, ClassInfo, DataError, Problem
from hebbseg.data.io.formats import FORMATS, axes_of, match_axes, read_image, read_labels, suffix_of
from hebbseg.data.io.image_file import Axes, Header, RawMask
from hebbseg.data.io.orientation import header_to_grid, to_grid, values_to_grid
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.labels.classes import find_rule
from hebbseg.data.labels.instances import object_ids
from hebbseg.data.labels.masks import MaskOptions, MaskRule, merged, to_indices, two_classes
from hebbseg.data.sources.headers import common_orientation, read_case_header
from hebbseg.data.sources.kept import Kept
from hebbseg.data.sources.roles import in_own_folder
from hebbseg.errors import HebbsegError, printable

LABELS_KEPT_BYTES = 2**30


class FileSource:
    """A data source whose images and masks are files. Only `mask` and `classes` open mask files.

    All images have the same number of channels: alpha channels are ignored, and grayscale images are repeated to three
    channels if others are in color. If formats differ in the order of axes (as NIfTI does), all images are (z, y, x). If
    volumes differ in orientation, all are turned to RAS.

    Args:
        name: name of the data set in reports.
        root: folder of the data set.
        cases: the cases, sorted by id; control characters in ids are replaced by their escapes.
        problems: problems found while listing the files.
        masks: how to interpret mask values.
        notes: how the files were understood, where this needs no action.
        lists_unused: whether `hebbseg.data.inspect` lists the files below ``root`` that are not used.
    """

    level = 0
    """Level of pyramids that is read, see `at_level`."""

    def __init__(
        self,
        *,
        name: str,
        root: Path,
        cases: Sequence[Case],
        problems: Sequence[Problem] = (),
        masks: MaskOptions | None = None,
        notes: Sequence[str] = (),
        lists_unused: bool = False,
    ) -> None:
        self.name = printable(name)
        self.root = root
        named = {printable(case.id): replace(case, id=printable(case.id)) for case in cases}
        twice = [case for case in cases if named[printable(case.id)].image != case.image]
        self.cases = tuple(named.values())  # needed by `axes` in the next line
        self.cases = tuple(self._with_spacing_in_array_order(case) for case in self.cases)  # reads headers of volumes
        self.masks = masks or MaskOptions()
        self.masks.rule()  # raises if they contradict each other
        self.notes = tuple(notes)
        self.lists_unused = lists_unused
        self._listing_problems = (*problems, *map(_same_name, twice))
        self._labels: Kept[Path, RawMask] = Kept(limit=LABELS_KEPT_BYTES)
        self._masks_ahead: Kept[str, np.ndarray] = Kept(limit=LABELS_KEPT_BYTES)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems from listing the files and, once determined, from the classes."""
        rule = self.__dict__.get("rule")
        return self._listing_problems + (rule.problems if rule is not None else ())

    @property
    def spatial_dims(self) -> int:
        return self._common[0]

    @property
    def channels(self) -> int:
        return self._common[1]

    @property
    def classes(self) -> tuple[ClassInfo, ...]:
        return self.rule.classes

    @cached_property
    def rule(self) -> MaskRule:
        """Mapping of mask values to class indices; reads every mask unless the options define it."""
        if (given := self.masks.rule()) is not None:
            return given
        if any(in_own_folder(case) for case in self.cases):
            # One file per object: nonzero pixels are foreground.
            return MaskRule(classes=two_classes(255, self.masks.names), ignore=self.masks.ignore)
        return find_rule([path for case in self.cases for path in case.mask or ()], self.masks, self._labels_kept, self.level)

    def image(self, case: Case) -> np.ndarray:
        """Return the image, (C, *spatial), in the data type of the file."""
        parts = []
        for path in case.image:
            image = read_image(path, self.level)
            turned = to_grid(np.moveaxis(image.array, 0, -1), *self._grids(case), dims=image.array.ndim - 1)
            parts.append(np.ascontiguousarray(np.moveaxis(turned, -1, 0)))  # (C, *S) → (*S, C) → (*S', C) → (C, *S')
            if parts[-1].shape[1:] != parts[0].shape[1:]:
                raise DataError(
                    path,
                    f"size {_times(parts[-1].shape[1:])}, but {case.image[0].name} has size {_times(parts[0].shape[1:])}",
                    "Export all channels of a case at the same size.",
                )
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)  # (c₁, *spatial), (c₂, *spatial) … → (C, *spatial)
        return self.with_common_channels(array, case)

    def mask(self, case: Case) -> np.ndarray:
        if not case.mask:
            raise HebbsegError(f"Case {case.id!r} has no mask. Check `case.has_mask` first.")
        if (ahead := self._masks_ahead.take(case.id)) is not None:
            return ahead
        rule = self.rule
        mask: np.ndarray | None = None
        for path in case.mask:
            raw = self._labels.take(path) or read_labels(path, self.level)
            indices = self._like_image(to_indices(raw, rule, path), raw.axes, case)
            self.refuse_other_size(indices.shape, case, path)
            mask = indices if mask is None else merged(mask, indices)
        assert mask is not None
        return np.ascontiguousarray(mask)

    @property
    def has_ids(self) -> bool:
        """Whether the values of masks number objects, and are no classes."""
        return self.rule.index_of is None and self.rule.threshold is None

    def instances(self, case: Case) -> np.ndarray | None:
        """Return the object ids, (*spatial) int32 with 0 for background; None if the mask values are classes.

        Every value of every file is an object; of overlapping objects, the first one keeps the pixel.
        """
        if not self.has_ids:
            return None
        rule, ignored = self.rule, self.mask(case) == IGNORE
        ids = np.zeros(ignored.shape, np.int32)
        for path in case.mask or ():
            raw = read_labels(path, self.level)
            found = self._like_image(object_ids(raw, rule), raw.axes, case)
            if not self.masks.instances:  # one file per object, whatever its values
                found = (found > 0).astype(np.int32)
            ids = np.where((found > 0) & (ids == 0) & ~ignored, found + ids.max(initial=0), ids)
        return ids

    def mask_ahead(self, case: Case) -> np.ndarray:
        """Return `mask` and keep it, within a memory limit, for its next call, so that the file is decoded once."""
        found = self.mask(case)
        self._masks_ahead.keep(case.id, found, found.nbytes)
        return found

    def _labels_kept(self, path: Path) -> RawMask:
        """Decode a mask and keep it, within a memory limit, so that `mask` does not decode it again."""
        raw = read_labels(path, self.level)
        self._labels.keep(path, raw, raw.values.nbytes)
        return raw

    def with_cases(self, cases: Sequence[Case]) -> "FileSource":
        """Return the source restricted to these cases; no file is read again."""
        chosen = copy(self)
        chosen.cases = tuple(cases)
        return chosen

    def at_level(self, level: int) -> "FileSource":
        """Return the source with another level of pyramids (OME-TIFF, OME-Zarr); spacings are those of the level."""
        chosen = copy(self)
        for name in ("file_headers", "_common", "rule"):
            chosen.__dict__.pop(name, None)
        chosen.level, chosen._labels = level, Kept(limit=LABELS_KEPT_BYTES)
        return chosen._with_spacings_of_headers()

    def in_grid(self, axes: Axes, orientation: str | None) -> "FileSource":
        """Return the source with this order of axes and orientation of volumes; None: that of each file."""
        if (axes, orientation) == (self.axes, self.orientation):
            return self
        turned = copy(self)
        turned.axes, turned.orientation = axes, orientation
        return turned._with_spacings_of_headers()

    def _with_spacings_of_headers(self) -> "FileSource":
        self.__dict__.pop("headers", None)
        self._masks_ahead = Kept(limit=LABELS_KEPT_BYTES)
        spacings = {name: header.spacing_mm for name, header in self.headers.items() if isinstance(header, Header)}
        self.cases = tuple(replace(case, spacing_mm=spacings.get(case.id, case.spacing_mm)) for case in self.cases)
        return self

    @cached_property
    def headers(self) -> dict[str, Header | HebbsegError]:
        """Header of each case by id, or the error raised by reading it."""
        found = self.file_headers
        grid = self.axes, self.orientation
        return {id: header_to_grid(header, grid) if isinstance(header, Header) else header for id, header in found.items()}

    def header(self, case: Case) -> Header:
        """Return channels, size and spacing of `image` without decoding it."""
        header = self.file_headers[case.id]
        if isinstance(header, HebbsegError):
            raise header
        return header_to_grid(header, (self.axes, self.orientation))

    @cached_property
    def file_headers(self) -> dict[str, Header | HebbsegError]:
        """Like `headers`, but with the axes of each file."""
        read = partial(read_case_header, level=self.level)
        return dict(zip((case.id for case in self.cases), parallel_map(read, self.cases), strict=True))

    @cached_property
    def axes(self) -> Axes:
        """Axis order of all images: that of their format, or (z, y, x) if formats differ."""
        orders = {axes_of(case.image[0]) for case in self.cases}
        return next(iter(orders)) if len(orders) == 1 else "zyx"

    @cached_property
    def orientation(self) -> str | None:
        """Orientation of all volumes: that of their files, or RAS if files differ; None if no volume states one."""
        if not any(FORMATS.get(suffix_of(case.image[0]), "itk") in ("nifti", "itk") for case in self.cases):
            return None
        return common_orientation(self.file_headers.values())

    def _grids(self, case: Case) -> tuple[tuple[Axes, str | None], tuple[Axes, str | None]]:
        """Return the order of axes and the orientation of an image file, and of all images."""
        header = self.file_headers.get(case.id)
        orientation = header.orientation if isinstance(header, Header) else None
        return (axes_of(case.image[0]), orientation), (self.axes, self.orientation)

    def _like_image(self, array: np.ndarray, axes: Axes, case: Case) -> np.ndarray:
        """Turn the pixels (*spatial) of a mask file like its image, whose voxels they match by index."""
        found, wanted = self._grids(case)
        if found[0] == "stored":
            return array
        return to_grid(match_axes(array, axes, found[0], dims=self.spatial_dims), found, wanted, dims=self.spatial_dims)

    def _with_spacing_in_array_order(self, case: Case) -> Case:
        """Return the case with its spacing in the axis order of `image`."""
        if case.spacing_mm is None:
            return case
        return replace(case, spacing_mm=values_to_grid(case.spacing_mm, *self._grids(case)))

    @cached_property
    def _common(self) -> tuple[int, int]:
        """Spatial dimensions and channels of most cases; reading a case that differs raises an error."""
        headers = [header for header in self.headers.values() if isinstance(header, Header)]
        if not headers:
            raise next(error for error in self.headers.values() if isinstance(error, HebbsegError))
        dims = Counter(len(header.shape) for header in headers).most_common(1)[0][0]
        channels = Counter(header.channels for header in headers if len(header.shape) == dims)
        if 3 in channels and 1 in channels:
            return dims, 3
        return dims, channels.most_common(1)[0][0]

    def with_common_channels(self, array: np.ndarray, case: Case) -> np.ndarray:
        """Return an image (C, *spatial) with the number of channels of all images."""
        dims, channels = self._common
        if array.ndim - 1 != dims:
            raise DataError(
                case.image[0],
                f"{array.ndim - 1}D image of size {_times(array.shape[1:])} in a {dims}D data set",
                "Keep 2D images and volumes in separate folders.",
            )
        if len(array) == channels:
            return array
        if len(array) == 1 and channels == 3:
            return np.repeat(array, 3, axis=0)  # (1, *spatial) → (3, *spatial)
        raise DataError(
            case.image[0],
            f"{len(array)}-channel image in a {channels}-channel data set",
            "Convert or remove the image. Only grayscale and color images can be mixed.",
        )

    def refuse_other_size(self, shape: tuple[int, ...], case: Case, path: Path) -> None:
        """Raise if a mask does not have the size of its image."""
        header = self.headers[case.id]
        if isinstance(header, HebbsegError):
            raise header
        if shape == header.shape:
            return
        hint = " (axes swapped)" if shape == header.shape[::-1] else ""
        raise DataError(
            path,
            f"mask has size {_times(shape)}, but image {case.image[0].name} has size {_times(header.shape)}{hint}",
            "Export the mask at the size of its image. Masks are not resampled automatically.",
        )


def _same_name(case: Case) -> Problem:
    remedy = "Rename the file or folder. In names, line breaks and other control characters are replaced by their escapes."
    return Problem(printable(case.image[0] if case.image else case.id), "another case has the same name; skipped", remedy)


def _times(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape)
