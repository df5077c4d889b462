"""The values of a mask file, counted."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from skimage.measure import label

from hebbseg.data.cases import DataError
from hebbseg.data.io.formats import has_parts, map_labels, read_header
from hebbseg.data.io.image_file import RawMask
from hebbseg.data.io.tiles import bands, is_large_size
from hebbseg.data.labels.label_map import Value
from hebbseg.data.labels.masks import USE_THRESHOLD, pack_colours, unpack_colour
from hebbseg.data.labels.objects import MaskValues

# A data set with more values needs a label map.
MAX_DETECTED_CLASSES = 20


@dataclass(frozen=True, kw_only=True)
class MaskSummary:
    """The values of one mask with their pixel counts, and the color of each index of indexed images.

    ``counts`` is without the ``ignored`` pixels, which are not annotated.
    """

    path: Path
    counts: Mapping[Value, int]
    colour: bool = False
    lossy: bool = False
    fraction: float | None = None
    palette: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    areas: int | None = None
    ignored: int = 0

    @property
    def foreground(self) -> MaskValues:
        return MaskValues(values=tuple(sorted(v for v in self.counts if isinstance(v, int) and v > 0)), areas=self.areas)


def summarize(path: Path, read: Callable[[Path], RawMask], ignore: Value | None, level: int = 0) -> MaskSummary | DataError:
    """Return the summary of a mask, or the error if it cannot be read (inspection reports it per case).

    Masks of large images are read in bands of rows; their connected areas are not counted.
    """
    try:
        large = has_parts(path) and is_large_size(read_header(path))
        mapped = map_labels(path, level) if large else None
        if mapped is None:
            return _summary(path, read(path), ignore)
        array, raw = mapped
        return _merged([_summary(path, raw(array[:, rows]), ignore, areas=False) for rows in bands(array)])
    except DataError as error:
        return error


def _merged(parts: Sequence[MaskSummary]) -> MaskSummary:
    """Return the summary of a mask that was read in parts."""
    fraction = next((part.fraction for part in parts if part.fraction is not None), None)
    counts: Counter[Value] = Counter()
    colour = any(part.colour for part in parts)
    for part in parts:
        for value, n in part.counts.items():
            counts[(value,) * 3 if colour and isinstance(value, int) else value] += n
    return replace(
        parts[0],
        counts={} if fraction is not None else dict(counts),
        colour=colour,
        fraction=fraction,
        palette={value: shown for part in parts for value, shown in part.palette.items()},
        ignored=sum(part.ignored for part in parts),
    )


def _summary(path: Path, raw: RawMask, ignore: Value | None, *, areas: bool = True) -> MaskSummary:
    if raw.colour:
        keys, counts = np.unique(pack_colours(raw.values), return_counts=True)
        colours: dict[Value, int] = {unpack_colour(int(key)): int(n) for key, n in zip(keys, counts, strict=True)}
        n = colours.pop((ignore,) * 3 if isinstance(ignore, int) else ignore, 0) if ignore is not None else 0
        return MaskSummary(path=path, counts=colours, colour=True, lossy=raw.lossy, ignored=n)
    if raw.values.dtype.kind == "f":
        whole = raw.values == np.rint(raw.values)
        if not whole.all():
            return MaskSummary(path=path, counts={}, fraction=float(raw.values[~whole][0]))
    numbers: dict[Value, int]
    if raw.values.dtype == np.uint8:
        histogram = np.bincount(raw.values.ravel(), minlength=256)
        numbers = {int(value): int(histogram[value]) for value in np.flatnonzero(histogram)}
    else:
        keys, counts = np.unique(raw.values, return_counts=True)
        numbers = {int(key): int(n) for key, n in zip(keys, counts, strict=True)}
    palette = {}
    if raw.palette is not None:
        palette = {value: tuple(int(part) for part in raw.palette[value]) for value in numbers if isinstance(value, int)}
    ignored = as_number(ignore, palette)
    n = 0 if ignored is None else numbers.pop(ignored, 0)
    drawn_areas = None
    if areas and not raw.lossy and sum(isinstance(value, int) and value > 0 for value in numbers) > 2:
        drawn = raw.values.astype(np.int64)
        drawn_areas = int(label(np.where(drawn == ignored, 0, drawn) if n else drawn, background=0).max())
    return MaskSummary(path=path, counts=numbers, lossy=raw.lossy, palette=palette, areas=drawn_areas, ignored=n)


def as_number(value: Value | None, palette: Mapping[int, tuple[int, ...]]) -> int | None:
    """Return the number of a color in grayscale and indexed masks, None if it has none."""
    if not isinstance(value, tuple):
        return value
    if palette:
        return next((index for index, colour in palette.items() if colour == value), None)
    return value[0] if len(set(value)) == 1 else None


def refuse_soft(summary: MaskSummary) -> None:
    if summary.fraction is not None:
        raise DataError(
            summary.path,
            f"non-integer values, such as {summary.fraction:.4g}: a probability map, not a mask",
            USE_THRESHOLD.format(0.5),
        )
    if summary.colour:
        if summary.lossy or len(summary.counts) > MAX_DETECTED_CLASSES:
            raise DataError(
                summary.path,
                f"color mask with {len(summary.counts)} colors: soft edges (JPEG compression or smoothing)",
                "Export the masks as PNG without smoothing, or, for two classes, binarize them with --mask-threshold 128.",
            )
        return
    levels = {value: n for value, n in summary.counts.items() if isinstance(value, int)}
    drawn = sum(n for value, n in levels.items() if value > 8)
    white = sum(n for value, n in levels.items() if 247 <= value <= 255)
    # Many levels, mostly near white, indicate soft edges; object numbers are distributed more evenly.
    soft = len(levels) > MAX_DETECTED_CLASSES and max(levels) <= 255 and white > 0.3 * drawn
    if (summary.lossy and len(levels) > 2) or soft:
        raise DataError(
            summary.path,
            f"soft edges: {len(levels)} gray levels from {min(levels)} to {max(levels)}"
            + (" (JPEG compression blurs masks)" if summary.lossy else ""),
            USE_THRESHOLD.format(128),
        )
