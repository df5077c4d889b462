"""Label maps: the class of each mask value, given as text, a mapping or a JSON file."""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hebbseg.data.cases import IGNORE, ClassInfo
from hebbseg.errors import FileError, HebbsegError
from hebbseg.text_files import read_json

Value = int | tuple[int, ...]
LabelMapGiven = str | Path | Mapping[str, object]

_HOW = (
    "Write it as 'background=0;gland=255', with colors as 'tumor=#ff0000' or 'tumor=255,0,0', "
    'or as a JSON file {"background": 0, "gland": 255}.'
)
BLACK = (0, 0, 0)
MOST_CLASSES = IGNORE  # indices 0 … 254
_IGNORE = re.compile(r"ignored?([_ ]?label)?|void", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class LabelMap:
    """Classes and the index of each allowed value; several values can map to one class.

    Values of pixels that are not annotated have the index `IGNORE`.
    """

    classes: tuple[ClassInfo, ...]
    index_of: Mapping[Value, int]


def parse_label_map(given: LabelMapGiven) -> LabelMap:
    """Parse name → value pairs, or value → name as in nnU-Net v1; a repeated name merges its values.

    Index 0 is the class named background, else the class with value 0 (or black), else an added background of value 0.
    The names ignore, ignored and void mark pixels that are not annotated; void is the background if its value is 0.

    >>> [c.name for c in parse_label_map("gland=255;background=0").classes]
    ['background', 'gland']
    """
    pairs = _pairs(given)
    if not pairs:
        raise HebbsegError(f"Label map {_shown(given)}: no class found. {_HOW}")
    values = [value for _, value in pairs]
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise HebbsegError(f"Label map {_shown(given)}: value {_shown(twice)} is given twice. A value belongs to one class.")
    if len({isinstance(value, tuple) for value in values}) > 1:
        raise HebbsegError(f"Label map {_shown(given)}: numbers and colors are mixed. Use one or the other.")
    zero: Value = BLACK if isinstance(values[0], tuple) else 0
    pairs, ignored = _without_ignored(pairs, zero, given)
    background = next((name for name, _ in pairs if name.lower() == "background"), None)
    if background is None:
        background = next((name for name, value in pairs if value == zero), None)
    if background is None:
        background = "background"
        if zero in ignored:
            raise HebbsegError(
                f"Label map {_shown(given)}: the pixels with value {_shown(zero)} are not annotated, and no class is named "
                "background. Name it: 'background=VALUE;…'."
            )
        pairs = [(background, zero), *pairs]
    names = list(dict.fromkeys([background, *(name for name, _ in pairs)]))
    if len(names) > MOST_CLASSES:
        raise HebbsegError(f"Label map {_shown(given)}: {len(names)} classes; at most {MOST_CLASSES} are supported.")
    index_of = {value: names.index(name) for name, value in pairs} | dict.fromkeys(ignored, IGNORE)
    first_value = dict(reversed(pairs))
    classes = tuple(ClassInfo(index=i, value=first_value[name], name=name) for i, name in enumerate(names))
    return LabelMap(classes=classes, index_of=index_of)


def parse_value(text: str) -> Value:
    """Parse the mask value, or the color such as ``#808080``, of pixels that are not annotated (``--ignore``)."""
    try:
        return _value(text.strip(), text)
    except HebbsegError:
        raise HebbsegError(
            f"ignore={text!r}: allowed are a mask value such as 255, or a color such as '#808080'. It marks pixels that are "
            "not annotated."
        ) from None


def _without_ignored(
    pairs: list[tuple[str, Value]], zero: Value, given: LabelMapGiven
) -> tuple[list[tuple[str, Value]], list[Value]]:
    """Return the pairs of classes, and the values of pixels that are not annotated."""

    def is_ignored(name: str, value: Value) -> bool:
        return bool(_IGNORE.fullmatch(name)) and not (name.lower() == "void" and value == zero)

    classes = [pair for pair in pairs if not is_ignored(*pair)]
    if not classes:
        raise HebbsegError(f"Label map {_shown(given)}: no class found besides {pairs[0][0]!r}. {_HOW}")
    return classes, [value for name, value in pairs if is_ignored(name, value)]


def _pairs(given: LabelMapGiven) -> list[tuple[str, Value]]:
    if isinstance(given, Mapping):
        if all(re.fullmatch(r"-?[0-9]+", str(key)) for key in given):
            return [(str(name), _value(key, given)) for key, name in given.items()]
        return [(str(name), _value(value, given)) for name, value in given.items()]
    text = str(given)
    if text.lower().endswith(".json"):
        content = read_json(Path(text), _HOW)
        labels = content.get("labels", content)
        if not isinstance(labels, dict):
            raise FileError(text, f"'labels' is a {type(labels).__name__}, not an object", _HOW)
        return _pairs(labels)
    pairs = []
    # A comma separates classes only before a name and an equals sign; elsewhere it is part of a color.
    for part in re.split(r";|,(?=[^,;=]*=)", text):
        if not part.strip():
            continue
        name, equals, value = part.rpartition("=")
        if not equals or not name.strip():
            raise HebbsegError(f"Label map {text!r}: {part.strip()!r} is not name=value. {_HOW}")
        pairs.append((name.strip(), _value(value.strip(), text)))
    return pairs


def _value(value: object, label_map: object) -> Value:
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        return _number(int(value), label_map)
    if isinstance(value, list | tuple) and len(value) == 3 and all(isinstance(part, int) for part in value):
        return _colour([int(part) for part in value], label_map)
    if isinstance(value, str):
        if re.fullmatch(r"-?[0-9]{1,20}", value):
            return _number(int(value), label_map)
        if re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            return tuple(bytes.fromhex(value[1:]))
        parts = re.findall(r"[0-9]{1,9}", value)
        if len(parts) == 3 and re.fullmatch(r"[\s0-9,()\[\]]+", value):
            return _colour([int(part) for part in parts], label_map)
    raise HebbsegError(f"Label map {_shown(label_map)}: {_shown(value)} is neither an integer nor a color. {_HOW}")


def _number(value: int, label_map: object) -> int:
    if not -(2**31) <= value < 2**32:
        raise HebbsegError(f"Label map {_shown(label_map)}: value {_shown(value)} is not a mask value. {_HOW}")
    return value


def _shown(value: object) -> str:
    """Return a value from a file, shortened: it may be nested deeply or have millions of entries."""
    return reprlib.repr(value)


def _colour(parts: list[int], label_map: object) -> tuple[int, ...]:
    if not all(0 <= part <= 255 for part in parts):
        raise HebbsegError(f"Label map {_shown(label_map)}: color {tuple(parts)} is outside 0 … 255. {_HOW}")
    return tuple(parts)
