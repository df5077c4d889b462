"""Which classes the masks of a set have, found by looking at all of them, where nobody said."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hebbseg.data.cases import ClassInfo, DataError, Problem
from hebbseg.data.io.formats import read_labels
from hebbseg.data.io.image_file import RawMask
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.labels.label_map import BLACK, Value
from hebbseg.data.labels.masks import SAY_THRESHOLD, MaskOptions, MaskRule, hex_colour, pack_colours, unpack_colour

# More values than this in one set are not classes somebody drew without saying so.
MOST_CLASSES_GUESSED = 20
_COLOUR_NAMES: dict[tuple[int, ...], str] = {
    (255, 0, 0): "red",
    (0, 255, 0): "green",
    (0, 0, 255): "blue",
    (255, 255, 0): "yellow",
    (255, 0, 255): "magenta",
    (0, 255, 255): "cyan",
    (255, 255, 255): "white",
    BLACK: "black",
}
_SAY_INSTANCES = "If every object has its own number, pass --instances; if they are classes, name them: --label-map."


def find_rule(paths: Sequence[Path], options: MaskOptions, read: Callable[[Path], RawMask] = read_labels) -> MaskRule:
    """Looks at every mask of a set and finds its classes; problems worth telling come with the rule.

    Raises `DataError` where guessing would be wrong: soft edges, fractions, too many values to be classes.
    """
    looked_at = list(parallel_map(lambda path: _summarize(path, read), paths))
    summaries = [summary for summary in looked_at if isinstance(summary, _Summary)]
    failures = [failure for failure in looked_at if isinstance(failure, DataError)]
    if failures and not summaries:
        raise failures[0]
    if not summaries:
        return MaskRule(classes=(ClassInfo(index=0, value=0, name=options.names[0]),), index_of={0: 0})
    for summary in summaries:
        _refuse_soft(summary)
    palette = _common_palette(summaries)
    if palette is None or any(summary.colour for summary in summaries):
        return _colour_rule(summaries)
    return _number_rule(summaries, palette, options)


@dataclass(frozen=True, kw_only=True)
class _Summary:
    """The values of one mask with their pixel counts; of indexed pictures also what colour each index has."""

    path: Path
    counts: Mapping[Value, int]
    colour: bool = False
    lossy: bool = False
    fraction: float | None = None
    palette: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def _summarize(path: Path, read: Callable[[Path], RawMask]) -> _Summary | DataError:
    """A file that cannot be read gives its error: reading its case says so, and the other masks still count."""
    try:
        raw = read(path)
    except DataError as error:
        return error
    if raw.colour:
        keys, counts = np.unique(pack_colours(raw.values), return_counts=True)
        colours: dict[Value, int] = {unpack_colour(int(key)): int(n) for key, n in zip(keys, counts, strict=True)}
        return _Summary(path=path, counts=colours, colour=True, lossy=raw.lossy)
    if raw.values.dtype.kind == "f":
        whole = raw.values == np.rint(raw.values)
        if not whole.all():
            return _Summary(path=path, counts={}, fraction=float(raw.values[~whole][0]))
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
    return _Summary(path=path, counts=numbers, lossy=raw.lossy, palette=palette)


def _refuse_soft(summary: _Summary) -> None:
    if summary.fraction is not None:
        raise DataError(
            summary.path,
            f"values between whole numbers, such as {summary.fraction:.4g}: a probability map, not a mask",
            SAY_THRESHOLD.format(0.5),
        )
    if summary.colour:
        if summary.lossy or len(summary.counts) > MOST_CLASSES_GUESSED:
            raise DataError(
                summary.path,
                f"a colour mask with {len(summary.counts)} colours: its edges are soft (JPEG or smoothing)",
                "Export the masks as PNG without smoothing, or, for two classes, pass --mask-threshold 128.",
            )
        return
    levels = {value: n for value, n in summary.counts.items() if isinstance(value, int)}
    drawn = sum(n for value, n in levels.items() if value > 8)
    white = sum(n for value, n in levels.items() if 247 <= value <= 255)
    # Many levels of which near-white has the lion's share: an edge that fades. Objects share the numbers evenly.
    fading = len(levels) > MOST_CLASSES_GUESSED and max(levels) <= 255 and white > 0.3 * drawn
    if (summary.lossy and len(levels) > 2) or fading:
        raise DataError(
            summary.path,
            f"soft edges: {len(levels)} grey levels from {min(levels)} to {max(levels)}"
            + (" (JPEG blurs masks)" if summary.lossy else ""),
            SAY_THRESHOLD.format(128),
        )


def _common_palette(summaries: Iterable[_Summary]) -> dict[int, tuple[int, ...]] | None:
    """Index → colour over all indexed masks, or None if one index has two colours and only colours have meaning."""
    palette: dict[int, tuple[int, ...]] = {}
    for summary in summaries:
        for index, colour in summary.palette.items():
            if palette.setdefault(index, colour) != colour:
                return None
    return palette


def _colour_rule(summaries: Sequence[_Summary]) -> MaskRule:
    """Black is background (the commonest colour where there is no black); the other colours in order."""
    totals: dict[tuple[int, ...], int] = {}
    for summary in summaries:
        for value, n in summary.counts.items():
            colour = value if isinstance(value, tuple) else summary.palette.get(value, (value, value, value))
            totals[colour] = totals.get(colour, 0) + n
    example = next((s.path for s in summaries if s.colour), summaries[0].path)
    if len(totals) > MOST_CLASSES_GUESSED:
        raise DataError(
            example,
            f"colour masks with {len(totals)} colours in the set and no label map",
            "Name the colours: --label-map 'background=#000000;tumour=#ff0000;…'.",
        )
    background = BLACK if BLACK in totals or len(totals) == 1 else max(sorted(totals), key=lambda colour: totals[colour])
    colours = [background, *sorted(colour for colour in totals if colour != background)]
    names = ["background", *(_COLOUR_NAMES.get(colour, hex_colour(colour)) for colour in colours[1:])]
    classes = tuple(ClassInfo(index=i, value=c, name=n) for i, (c, n) in enumerate(zip(colours, names, strict=True)))
    shown = ";".join(f"{c.name}={hex_colour(c.value)}" for c in classes if isinstance(c.value, tuple))
    notice = Problem(
        file=str(example),
        finding=f"colour masks and no label map; understood as {shown}",
        remedy=f"If that is right, say so: --label-map '{shown}'. If not, change it.",
    )
    return MaskRule(classes=classes, index_of={c.value: c.index for c in classes}, problems=(notice,))


def _number_rule(summaries: Sequence[_Summary], palette: Mapping[int, tuple[int, ...]], options: MaskOptions) -> MaskRule:
    values = sorted({value for summary in summaries for value in summary.counts if isinstance(value, int)})
    fullest = max(summaries, key=lambda summary: len(summary.counts))
    limit = 256 if options.instances is False else MOST_CLASSES_GUESSED
    if len(values) > limit:
        raise DataError(
            fullest.path,
            f"{len(values)} different values in the set ({len(fullest.counts)} in this mask), such as {values[:6]}",
            f"{_SAY_INSTANCES} If their edges are soft, say where to cut: --mask-threshold 128.",
        )
    problems = []
    background = 0
    if 0 not in values and len(values) > 1:
        background = values[0]
        problems.append(
            Problem(
                file=str(fullest.path),
                finding=f"no mask has the value 0; the smallest, {background}, is taken as background",
                remedy="If it is a class of its own, say so: --label-map 'background=0;…'.",
            )
        )
    if len(values) == 1:
        empty = "empty (nothing but 0)" if values == [0] else f"one class only (nothing but {values[0]})"
        problems.append(
            Problem(
                file=str(fullest.path.parent),
                finding=f"all {len(summaries)} masks are {empty}",
                remedy="Check the export; there is nothing to learn from them.",
                fatal=True,
            )
        )
    elif options.instances is None and _look_like_instances(summaries):
        problems.append(
            Problem(
                file=str(fullest.path),
                finding=f"values 1 to {values[-1]}, in each mask counted up from 1: objects rather than classes?",
                remedy=_SAY_INSTANCES,
            )
        )
    ordered = [background, *(value for value in values if value != background)]
    names = list(options.names) if len(ordered) == 2 else [options.names[0], *(f"class {v}" for v in ordered[1:])]
    classes = tuple(
        ClassInfo(index=i, value=value, name=name, colour=_rgb(palette.get(value)))
        for i, (value, name) in enumerate(zip(ordered, names, strict=True))
    )
    return MaskRule(
        classes=classes, index_of={c.value: c.index for c in classes}, channel=options.channel, problems=tuple(problems)
    )


def _look_like_instances(summaries: Sequence[_Summary]) -> bool:
    """Every mask counts its objects from 1 without a gap, and the numbers of objects differ a good deal."""
    highest = []
    for summary in summaries:
        objects = sorted(value for value in summary.counts if isinstance(value, int) and value > 0)
        if objects != list(range(1, len(objects) + 1)):
            return False
        highest.append(len(objects))
    return max(highest) > 3 and len(set(highest)) > 3


def _rgb(colour: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    return None if colour is None else (colour[0], colour[1], colour[2])
