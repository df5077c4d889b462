"""Which value of a mask is which class: given by the user as text, a mapping or a JSON file."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hebbseg.data.cases import ClassInfo
from hebbseg.errors import HebbsegError

Value = int | tuple[int, ...]
LabelMapGiven = str | Path | Mapping[str, object]

_HOW = (
    "Write it as 'background=0;gland=255', with colours as 'tumour=#ff0000' or 'tumour=255,0,0', "
    'or as a JSON file {"background": 0, "gland": 255}.'
)
BLACK = (0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class LabelMap:
    """``index_of`` has every value that may occur; several values may mean the same class."""

    classes: tuple[ClassInfo, ...]
    index_of: Mapping[Value, int]

    @property
    def in_colour(self) -> bool:
        return any(isinstance(value, tuple) for value in self.index_of)


def parse_label_map(given: LabelMapGiven) -> LabelMap:
    """Name → value, or (as nnU-Net's first version has it) value → name; a name given twice merges its values.

    Index 0 is the class named background, else the one with value 0 (or black), else a background of value 0 is added.

    >>> [c.name for c in parse_label_map("gland=255;background=0").classes]
    ['background', 'gland']
    """
    pairs = _pairs(given)
    if not pairs:
        raise HebbsegError(f"Label map {str(given)!r}: no class found. {_HOW}")
    values = [value for _, value in pairs]
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise HebbsegError(f"Label map {str(given)!r}: value {twice} is given twice. Each value means one class.")
    if len({isinstance(value, tuple) for value in values}) > 1:
        raise HebbsegError(f"Label map {str(given)!r}: numbers and colours are mixed. Use one or the other.")
    zero: Value = BLACK if isinstance(values[0], tuple) else 0
    background = next((name for name, _ in pairs if name.lower() == "background"), None)
    if background is None:
        background = next((name for name, value in pairs if value == zero), None)
    if background is None:
        background = "background"
        pairs = [(background, zero), *pairs]
    names = list(dict.fromkeys([background, *(name for name, _ in pairs)]))
    index_of = {value: names.index(name) for name, value in pairs}
    first_value = dict(reversed(pairs))
    classes = tuple(ClassInfo(index=i, value=first_value[name], name=name) for i, name in enumerate(names))
    return LabelMap(classes=classes, index_of=index_of)


def _pairs(given: LabelMapGiven) -> list[tuple[str, Value]]:
    if isinstance(given, Mapping):
        if all(str(key).lstrip("-").isdigit() for key in given):
            return [(str(name), _value(key, given)) for key, name in given.items()]
        return [(str(name), _value(value, given)) for name, value in given.items()]
    text = str(given)
    if text.lower().endswith(".json"):
        path = Path(text)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HebbsegError(f"Label map {text!r} cannot be read: {error}. {_HOW}") from error
        if not isinstance(content, dict):
            raise HebbsegError(f"Label map {text!r}: found a {type(content).__name__}, not an object. {_HOW}")
        return _pairs(content.get("labels", content))
    pairs = []
    # A comma separates classes only where a name and an equals sign follow; elsewhere it is inside a colour.
    for part in re.split(r";|,(?=[^,;=]*=)", text):
        if not part.strip():
            continue
        name, equals, value = part.rpartition("=")
        if not equals or not name.strip():
            raise HebbsegError(f"Label map {text!r}: {part.strip()!r} is not name=value. {_HOW}")
        pairs.append((name.strip(), _value(value.strip(), text)))
    return pairs


def _value(value: object, whole: object) -> Value:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple) and len(value) == 3:
        return _colour([int(part) for part in value], whole)
    if isinstance(value, str):
        if re.fullmatch(r"-?\d+", value):
            return int(value)
        if re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            return tuple(bytes.fromhex(value[1:]))
        parts = re.findall(r"\d+", value)
        if len(parts) == 3 and re.fullmatch(r"[\s\d,()\[\]]+", value):
            return _colour([int(part) for part in parts], whole)
    raise HebbsegError(f"Label map {str(whole)!r}: {value!r} is neither a whole number nor a colour. {_HOW}")


def _colour(parts: list[int], whole: object) -> tuple[int, ...]:
    if not all(0 <= part <= 255 for part in parts):
        raise HebbsegError(f"Label map {str(whole)!r}: colour {tuple(parts)} is outside 0 … 255. {_HOW}")
    return tuple(parts)
