"""Conversion of mask values to class indices."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.data.cases import IGNORE, ClassInfo, DataError, Problem
from hebbseg.data.io.image_file import RawMask
from hebbseg.data.labels.label_map import LabelMap, Value
from hebbseg.errors import HebbsegError

USE_THRESHOLD = "Export the masks as PNG without smoothing, or binarize them with --mask-threshold {}."


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """How to interpret mask values; None means automatic.

    Args:
        label_map: maps values to classes.
        threshold: values at or above it are foreground; for color masks, the mean of red, green and blue.
        instances: values number objects, and every value above 0 is foreground. False disables the detection.
        channel: the only channel of color masks to use.
        foreground_value: foreground in predicted masks with ``instances`` or ``threshold``; default 1, or 255 for
            thresholds above 1.
        names: names of background and foreground if there are only these two.
        ignore: value or color of pixels that are not annotated.
    """

    label_map: LabelMap | None = None
    threshold: float | None = None
    instances: bool | None = None
    channel: int | None = None
    foreground_value: int | None = None
    names: tuple[str, str] = ("background", "foreground")
    ignore: Value | None = None

    def rule(self) -> "MaskRule | None":
        """Return the rule, or None if it depends on the masks."""
        if self.threshold is not None or self.instances:
            usual = 255 if self.threshold is not None and self.threshold > 1 else 1
            classes = two_classes(self.foreground_value or usual, self.names)
            return MaskRule(classes=classes, threshold=self.threshold, channel=self.channel, ignore=self.ignore)
        if self.label_map is not None:
            rule = MaskRule(classes=self.label_map.classes, index_of=self.label_map.index_of, channel=self.channel)
            return rule if self.ignore is None else rule.ignoring(self.ignore)
        return None

    def over(self, usual: "MaskOptions") -> "MaskOptions":
        """Return these options if they define a rule (with the data set's channel and names), else the data set's.

        ``ignore`` is always that of these options.
        """
        if self.rule() is None:
            return replace(usual, ignore=self.ignore)
        return replace(self, channel=usual.channel, names=usual.names)


@dataclass(frozen=True, kw_only=True)
class MaskRule:
    """Maps values to class indices: by table, else by threshold, else every value above 0 is class 1.

    Pixels that are not annotated have the index `IGNORE`: by table, or if they have the value ``ignore``.
    """

    classes: tuple[ClassInfo, ...]
    index_of: Mapping[Value, int] | None = None
    threshold: float | None = None
    channel: int | None = None
    ignore: Value | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def in_colour(self) -> bool:
        return self.index_of is not None and any(isinstance(value, tuple) for value in self.index_of)

    def describe(self) -> dict[str, Any]:
        """Return what determines the index of a pixel, as plain values for the cache key."""
        indices = None if self.index_of is None else sorted([str(value), i] for value, i in self.index_of.items())
        described = {"indices": indices, "threshold": self.threshold, "channel": self.channel}
        return described if self.ignore is None else described | {"ignore": str(self.ignore)}

    def ignoring(self, value: Value) -> "MaskRule":
        """Return this rule by table with ``value`` added as the value of pixels that are not annotated."""
        assert self.index_of is not None
        if self.in_colour and isinstance(value, int):
            value = (value,) * 3
        elif not self.in_colour and isinstance(value, tuple):
            if len(set(value)) > 1:
                raise HebbsegError(
                    f"ignore={hex_colour(value)}: the classes are defined by numbers, not by colors. Give the mask value "
                    "of the pixels that are not annotated, such as 255."
                )
            value = value[0]
        if (index := self.index_of.get(value, IGNORE)) != IGNORE:
            shown = hex_colour(value) if isinstance(value, tuple) else value
            raise HebbsegError(
                f"ignore={shown}: this mask value is class {self.classes[index].name!r}. Choose the value of the pixels that "
                "are not annotated, or change the label map."
            )
        return replace(self, index_of={**self.index_of, value: IGNORE})


def two_classes(value: int, names: tuple[str, str] = ("background", "foreground")) -> tuple[ClassInfo, ...]:
    return ClassInfo(index=0, value=0, name=names[0]), ClassInfo(index=1, value=value, name=names[1])


def to_indices(raw: RawMask, rule: MaskRule, path: Path) -> np.ndarray:
    """Return the class indices of a mask, (*spatial) uint8. Raises if a value belongs to no class."""
    if rule.index_of is None and rule.ignore is not None:
        indices = to_indices(raw, replace(rule, ignore=None), path)
        indices[_has_value(raw, rule.ignore, rule.channel)] = IGNORE
        return indices
    values, colour = raw.values, raw.colour
    if raw.palette is not None and (rule.threshold is not None or rule.channel is not None):
        # Thresholds and channels refer to the color of a pixel, not to its palette index.
        values, colour = _colours(raw), True
    if rule.channel is not None and colour:
        values, colour = values[..., rule.channel], False
    if rule.index_of is None:
        if rule.threshold is not None:
            values = values.mean(axis=-1) if colour else values  # (*spatial, 3) → (*spatial)
            return (values >= rule.threshold).astype(np.uint8)
        values = values.max(axis=-1) if colour else values
        return (values > 0).astype(np.uint8)
    if rule.in_colour:
        keys = pack_colours(_colours(raw))
        table = {pack_colour(value): index for value, index in rule.index_of.items() if isinstance(value, tuple)}
    elif colour:
        raise DataError(
            path,
            "color mask, but the classes are defined by numbers",
            "Save it as a grayscale or indexed image like the others, or define all classes by color with --label-map.",
        )
    else:
        keys = values
        table = {value: index for value, index in rule.index_of.items() if isinstance(value, int)}
    indices = np.zeros(keys.shape, np.uint8)
    known = np.zeros(keys.shape, bool)
    for value, index in table.items():
        here = keys == value
        indices[here] = index
        known |= here
    if not known.all():
        _refuse_unknown(keys[~known], raw, rule, path)
    return indices


def merged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the class indices of two masks of one image: the larger of two classes; a foreground class before `IGNORE`."""
    ignored = (first == IGNORE) | (second == IGNORE)
    if not ignored.any():
        return np.maximum(first, second)
    both = np.maximum(*(np.where(mask == IGNORE, 0, mask) for mask in (first, second)))
    return np.where(ignored & (both == 0), IGNORE, both).astype(np.uint8)


def _has_value(raw: RawMask, value: Value, channel: int | None) -> np.ndarray:
    """Return where a mask has this value or color, (*spatial); a number is a gray level in color masks."""
    if isinstance(value, tuple):
        return pack_colours(_colours(raw)) == pack_colour(value)
    if not raw.colour:
        return raw.values == value
    return raw.values[..., channel] == value if channel is not None else (raw.values == value).all(axis=-1)


def _refuse_unknown(unknown: np.ndarray, raw: RawMask, rule: MaskRule, path: Path) -> None:
    found = [int(value) if float(value).is_integer() else float(value) for value in np.unique(unknown)[:6]]
    shown = ", ".join(hex_colour(unpack_colour(int(value))) if rule.in_colour else str(value) for value in found)
    allowed = ", ".join(f"{c.name}={hex_colour(c.value) if isinstance(c.value, tuple) else c.value}" for c in rule.classes)
    remedy = USE_THRESHOLD.format(128) if raw.lossy else "Correct the mask, or add the value to --label-map."
    raise DataError(path, f"mask value {shown} belongs to none of the classes ({allowed})", remedy)


def _colours(raw: RawMask) -> np.ndarray:
    """Return the RGB values, (*spatial, 3), of a color, indexed or grayscale mask."""
    if raw.colour:
        return raw.values
    if raw.palette is not None:
        return raw.palette[raw.values]
    return np.repeat(raw.values[..., None], 3, axis=-1)


def pack_colours(colours: np.ndarray) -> np.ndarray:
    """Pack (*spatial, 3) into (*spatial): one integer per color, 16 bits per channel."""
    red, green, blue = np.moveaxis(colours.astype(np.int64), -1, 0)
    return (red << 32) | (green << 16) | blue


def pack_colour(colour: tuple[int, ...]) -> int:
    return (colour[0] << 32) | (colour[1] << 16) | colour[2]


def unpack_colour(packed: int) -> tuple[int, ...]:
    return packed >> 32, (packed >> 16) & 0xFFFF, packed & 0xFFFF


def hex_colour(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
