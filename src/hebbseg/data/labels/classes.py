"""Detection of the classes of a data set from its masks."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hebbseg.data.cases import ClassInfo, DataError, Problem
from hebbseg.data.io.formats import read_labels
from hebbseg.data.io.image_file import RawMask
from hebbseg.data.io.parallel import parallel_map
from hebbseg.data.labels.label_map import BLACK, MOST_CLASSES, Value
from hebbseg.data.labels.masks import MaskOptions, MaskRule, hex_colour
from hebbseg.data.labels.objects import IGNORE_VALUE, has_ignore_value, number_objects
from hebbseg.data.labels.summary import MAX_DETECTED_CLASSES, MaskSummary, as_number, refuse_soft, summarize
from hebbseg.data.progress import counted

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
_OBJECTS_OR_CLASSES = (
    "If each object has its own number, pass --instances. If the values are classes, name them with --label-map."
)
_OBJECTS = (
    "Pass --instances to train one foreground class. If the values are classes, pass --no-instances, or name them with "
    "--label-map."
)


def find_rule(
    paths: Sequence[Path], options: MaskOptions, read: Callable[[Path], RawMask] = read_labels, level: int = 0
) -> MaskRule:
    """Read all masks and return the rule for their values, with the problems found.

    Raises `DataError` if the masks are ambiguous: soft edges, non-integer values, or too many values.
    """
    results = list(parallel_map(lambda path: summarize(path, read, options.ignore, level), paths))
    summaries = [result for result in results if isinstance(result, MaskSummary)]
    failures = [result for result in results if isinstance(result, DataError)]
    if failures and not summaries:
        raise failures[0]
    if not summaries:
        return MaskRule(classes=(ClassInfo(index=0, value=0, name=options.names[0]),), index_of={0: 0})
    for summary in summaries:
        refuse_soft(summary)
    palette = _common_palette(summaries)
    if palette is None or any(summary.colour for summary in summaries):
        rule = _colour_rule(summaries)
    else:
        rule = _number_rule(summaries, palette, options)
    return rule if options.ignore is None else _with_ignored(rule, options.ignore, palette, summaries)


def _with_ignored(
    rule: MaskRule, ignore: Value, palette: Mapping[int, tuple[int, ...]] | None, summaries: Sequence[MaskSummary]
) -> MaskRule:
    """Return the rule with the value of the pixels that are not annotated."""
    if not any(summary.ignored for summary in summaries):
        shown = hex_colour(ignore) if isinstance(ignore, tuple) else ignore
        problem = Problem(
            str(summaries[0].path.parent),
            f"ignore={shown}: no mask contains this value",
            "Check the value; `hebbseg check` without --ignore lists the values of the masks.",
        )
        return replace(rule, problems=(*rule.problems, problem))
    number = None if rule.in_colour else as_number(ignore, palette or {})
    return rule.ignoring(ignore if number is None else number)


def _common_palette(summaries: Iterable[MaskSummary]) -> dict[int, tuple[int, ...]] | None:
    """Return the color of each index over all indexed masks, or None if an index has two colors."""
    palette: dict[int, tuple[int, ...]] = {}
    for summary in summaries:
        for index, colour in summary.palette.items():
            if palette.setdefault(index, colour) != colour:
                return None
    return palette


def _colour_rule(summaries: Sequence[MaskSummary]) -> MaskRule:
    """Black is background, or the most common color if there is no black; the other colors are sorted."""
    totals: dict[tuple[int, ...], int] = {}
    for summary in summaries:
        for value, n in summary.counts.items():
            colour = value if isinstance(value, tuple) else summary.palette.get(value, (value, value, value))
            totals[colour] = totals.get(colour, 0) + n
    example = next((s.path for s in summaries if s.colour), summaries[0].path)
    if len(totals) > MAX_DETECTED_CLASSES:
        raise DataError(
            example,
            f"color masks with {len(totals)} colors in the data set and no label map",
            "Name the colors: --label-map 'background=#000000;tumor=#ff0000;…'.",
        )
    if not totals:
        return _nothing_annotated(summaries, BLACK)
    background = BLACK if BLACK in totals or len(totals) == 1 else max(sorted(totals), key=lambda colour: totals[colour])
    colours = [background, *sorted(colour for colour in totals if colour != background)]
    names = ["background", *(_COLOUR_NAMES.get(colour, hex_colour(colour)) for colour in colours[1:])]
    classes = tuple(ClassInfo(index=i, value=c, name=n) for i, (c, n) in enumerate(zip(colours, names, strict=True)))
    shown = ";".join(f"{c.name}={hex_colour(c.value)}" for c in classes if isinstance(c.value, tuple))
    ignored = " If a color marks pixels that are not annotated, pass --ignore '#RRGGBB'." if len(classes) > 2 else ""
    notice = Problem(
        str(example),
        f"color masks and no label map; interpreted as {shown}",
        f"If this is correct, pass --label-map {shlex.quote(shown)}. Otherwise, edit it.{ignored}",
    )
    return MaskRule(classes=classes, index_of={c.value: c.index for c in classes}, problems=(notice,))


def _number_rule(summaries: Sequence[MaskSummary], palette: Mapping[int, tuple[int, ...]], options: MaskOptions) -> MaskRule:
    values = sorted({value for summary in summaries for value in summary.counts if isinstance(value, int)})
    fullest = max(summaries, key=lambda summary: len(summary.counts))
    if not values:
        return _nothing_annotated(summaries, 0)
    limit = MOST_CLASSES if options.instances is False else MAX_DETECTED_CLASSES
    objects = options.instances is None and number_objects([summary.foreground for summary in summaries])
    if objects and len(values) > limit:
        raise DataError(fullest.path, _numbers(values, summaries), _OBJECTS)
    if len(values) > limit:
        raise DataError(
            fullest.path,
            f"{len(values)} different values in the data set ({len(fullest.counts)} in this mask), such as {values[:6]}",
            f"{_OBJECTS_OR_CLASSES} If the edges are soft, binarize the masks with --mask-threshold 128.",
        )
    problems = []
    background = 0
    if 0 not in values and len(values) > 1:
        background = values[0]
        found = "the value 0 is ignored" if options.ignore == 0 else "no mask contains the value 0"
        problems.append(
            Problem(
                str(fullest.path),
                f"{found}; the smallest value, {background}, is used as background",
                f"If {background} is a foreground class, pass --label-map 'background=0;NAME={background};…'.",
            )
        )
    if len(values) == 1:
        content = "are empty (only 0)" if values == [0] else f"have a single class (only {values[0]})"
        problems.append(
            Problem(
                str(fullest.path.parent),
                f"all {len(summaries)} masks {content}",
                "Check how the masks were exported. Training needs masks with foreground and background.",
                fatal=True,
            )
        )
    elif objects:
        problems.append(Problem(str(fullest.path), _numbers(values, summaries), _OBJECTS, fatal=True))
    elif has_ignore_value(values):
        problems.append(_extra_value(values, summaries))
    ordered = [background, *(value for value in values if value != background)]
    names = list(options.names) if len(ordered) == 2 else [options.names[0], *(f"class {v}" for v in ordered[1:])]
    classes = tuple(
        ClassInfo(index=i, value=value, name=name, colour=_rgb(palette.get(value)))
        for i, (value, name) in enumerate(zip(ordered, names, strict=True))
    )
    return MaskRule(
        classes=classes, index_of={c.value: c.index for c in classes}, channel=options.channel, problems=tuple(problems)
    )


def _numbers(values: Sequence[int], summaries: Sequence[MaskSummary]) -> str:
    counts = sorted(len(summary.foreground.values) for summary in summaries)
    return (
        f"values up to {values[-1]}, {counts[0]} to {counts[-1]} of them per mask, each one connected area: object numbers, "
        "not classes"
    )


def _extra_value(values: Sequence[int], summaries: Sequence[MaskSummary]) -> Problem:
    """Return the problem of the value 255 beside 0 … n: another encoding of the foreground, or an ignore label."""
    with_255 = [summary for summary in summaries if IGNORE_VALUE in summary.counts]
    ignored = f"If {IGNORE_VALUE} marks pixels that are not annotated, pass --ignore {IGNORE_VALUE}. "
    others = [f"class {value}={value}" for value in values[1:-1]]
    if len(values) == 3 and not any(1 in summary.counts for summary in with_255):
        n = sum(1 in summary.counts for summary in summaries)
        return Problem(
            str(with_255[0].path),
            f"foreground is {IGNORE_VALUE} in {counted(len(with_255), 'mask')} and 1 in {n} others",
            f"{ignored}If both mean the same, pass --label-map 'background=0;foreground=1;foreground=255'. If they are two "
            "classes, name them: --label-map 'background=0;NAME=1;OTHER=255'.",
            fatal=True,
        )
    return Problem(
        str(with_255[0].path),
        f"value {IGNORE_VALUE} beside 0 … {values[-2]} in {len(with_255)} of {len(summaries)} masks: probably an ignore "
        "label (pixels that are not annotated)",
        f"{ignored}To count these pixels as background, pass --label-map "
        f"{shlex.quote(';'.join(['background=0', *others, f'background={IGNORE_VALUE}']))}. If {IGNORE_VALUE} is a class, pass "
        f"--label-map {shlex.quote(';'.join(['background=0', *others, f'NAME={IGNORE_VALUE}']))}.",
        fatal=True,
    )


def _nothing_annotated(summaries: Sequence[MaskSummary], background: Value) -> MaskRule:
    """Return the rule of masks that contain no value other than the ignored one."""
    problem = Problem(
        str(summaries[0].path.parent),
        f"nothing is annotated in all {len(summaries)} masks: every pixel has the ignored value",
        "Check the value of --ignore, or annotate some pixels.",
        fatal=True,
    )
    only = ClassInfo(index=0, value=background, name="background")
    return MaskRule(classes=(only,), index_of={background: 0}, problems=(problem,))


def _rgb(colour: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    return None if colour is None else (colour[0], colour[1], colour[2])
