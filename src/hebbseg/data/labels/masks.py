"""From the values a mask file has to class indices: the rule, how it is found, how it is applied."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.data.cases import ClassInfo, DataError, Problem
from hebbseg.data.io.image_file import RawMask
from hebbseg.data.labels.label_map import LabelMap, Value

SAY_THRESHOLD = "Export the masks as PNG without smoothing, or say where to cut: --mask-threshold {}."


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """What the user (or a named source) says about masks; None means: find out.

    Args:
        label_map: which value is which class.
        threshold: values from here on are foreground, the rest background; of colours, the mean of red, green and blue.
        instances: every value above 0 is foreground, whichever object it names. False: never guess so.
        channel: of colour masks, only this channel counts.
        foreground_value: what a written mask has where ``instances`` or ``threshold`` say foreground; None: 1, or
            255 for thresholds of 8-bit masks.
        names: what to call background and foreground where there are just these two.
    """

    label_map: LabelMap | None = None
    threshold: float | None = None
    instances: bool | None = None
    channel: int | None = None
    foreground_value: int | None = None
    names: tuple[str, str] = ("background", "foreground")

    def rule(self) -> "MaskRule | None":
        """The rule, where the options settle it without a look at any mask."""
        if self.threshold is not None or self.instances:
            usual = 255 if self.threshold is not None and self.threshold > 1 else 1
            classes = two_classes(self.foreground_value or usual, self.names)
            return MaskRule(classes=classes, threshold=self.threshold, channel=self.channel)
        if self.label_map is not None:
            return MaskRule(classes=self.label_map.classes, index_of=self.label_map.index_of, channel=self.channel)
        return None

    def over(self, usual: "MaskOptions") -> "MaskOptions":
        """What the user says over what a named set usually means: the set's channel and names stay."""
        if self.rule() is None:
            return usual
        return replace(self, channel=usual.channel, names=usual.names)


@dataclass(frozen=True, kw_only=True)
class MaskRule:
    """How values become class indices: by table, else by threshold, else everything above 0 is class 1."""

    classes: tuple[ClassInfo, ...]
    index_of: Mapping[Value, int] | None = None
    threshold: float | None = None
    channel: int | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def in_colour(self) -> bool:
        return self.index_of is not None and any(isinstance(value, tuple) for value in self.index_of)

    def describe(self) -> dict[str, Any]:
        """All that decides which index a pixel gets, as plain values: rules that differ in it make other masks."""
        indices = None if self.index_of is None else sorted([str(value), i] for value, i in self.index_of.items())
        return {"indices": indices, "threshold": self.threshold, "channel": self.channel}


def two_classes(value: int, names: tuple[str, str] = ("background", "foreground")) -> tuple[ClassInfo, ...]:
    return ClassInfo(index=0, value=0, name=names[0]), ClassInfo(index=1, value=value, name=names[1])


def to_indices(raw: RawMask, rule: MaskRule, path: Path) -> np.ndarray:
    """Class indices of a mask, uint8, (*spatial). A value the rule does not know is an error that names it."""
    values, colour = raw.values, raw.colour
    if raw.palette is not None and (rule.threshold is not None or rule.channel is not None):
        # What is compared is how bright a pixel looks; the number of its colour says nothing about that.
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
            "a colour mask where the classes are numbers",
            "Save it as a grey or indexed picture like the others, or give all classes as colours: --label-map.",
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


def _refuse_unknown(strange: np.ndarray, raw: RawMask, rule: MaskRule, path: Path) -> None:
    found = [int(value) if float(value).is_integer() else float(value) for value in np.unique(strange)[:6]]
    shown = ", ".join(hex_colour(unpack_colour(int(value))) if rule.in_colour else str(value) for value in found)
    allowed = ", ".join(f"{c.name}={hex_colour(c.value) if isinstance(c.value, tuple) else c.value}" for c in rule.classes)
    remedy = SAY_THRESHOLD.format(128) if raw.lossy else "Correct the mask or add the value to --label-map."
    raise DataError(path, f"mask value {shown} is none of the classes ({allowed})", remedy)


def _colours(raw: RawMask) -> np.ndarray:
    """(*spatial, 3) colours of any mask: indexed pictures looked up, grey ones as grey."""
    if raw.colour:
        return raw.values
    if raw.palette is not None:
        return raw.palette[raw.values]
    return np.repeat(raw.values[..., None], 3, axis=-1)


def pack_colours(colours: np.ndarray) -> np.ndarray:
    """(*spatial, 3) → (*spatial): one number per colour, 16 bits a channel."""
    red, green, blue = np.moveaxis(colours.astype(np.int64), -1, 0)
    return (red << 32) | (green << 16) | blue


def pack_colour(colour: tuple[int, ...]) -> int:
    return (colour[0] << 32) | (colour[1] << 16) | colour[2]


def unpack_colour(packed: int) -> tuple[int, ...]:
    return packed >> 32, (packed >> 16) & 0xFFFF, packed & 0xFFFF


def hex_colour(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
