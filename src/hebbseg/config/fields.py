"""Field types shared by the sections of the settings."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float | Path) else value


def as_numbers(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*[,x×]\s*\d+)*\s*", value):
        return tuple(int(part) for part in re.split(r"[,x×]", value))
    return value


def as_decimals(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str) and value[:1] in "+-.0123456789nN" and value != "native":
        try:
            return tuple(float(part) for part in re.split(r"[,x×]", value))
        except ValueError:
            return value
    return value


def as_levels(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+([x×]\d+)*(\s*,\s*\d+([x×]\d+)*)*\s*", value):
        return tuple(tuple(int(side) for side in re.split("[x×]", level)) for level in value.split(","))
    return value


def none_as_word(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() in ("none", "off") else value


AugmentName = Literal["none", "flips-rotations", "full"]


def _former_augment(value: Any) -> Any:
    """Version 0.1 had true and false."""
    known = {True: "full", False: "none", "true": "full", "false": "none", "True": "full", "False": "none"}
    return known.get(value, value) if isinstance(value, bool | str) else value


Augmentation = Annotated[AugmentName, BeforeValidator(_former_augment)]
Text = Annotated[str, BeforeValidator(as_text)]
Spacings = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1, max_length=3)]
Strides = tuple[tuple[Literal[1, 2], ...], ...]
Kernels = tuple[tuple[Literal[1, 3], ...], ...]
Sizes = tuple[Annotated[int, Field(ge=1)], ...]
BatchSize = Annotated[int, Field(ge=1)] | Literal["auto"]
Accelerator = Literal["auto", "cpu", "cuda", "gpu", "mps"]
Options = dict[str, float | int | str | bool]
AUTO_BATCH = {2: 4, 3: 2}  # of stage 2, by spatial dimensions
PRETRAIN_BATCH = {2: 8, 3: 2}  # of stage 1


class Section(BaseModel):
    """A part of the settings. Frozen; an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def flat_name(name: str) -> dict[str, Any]:
    """Give a setting another name outside its section, where its own would be ambiguous."""
    return {"json_schema_extra": {"flat": name}}
