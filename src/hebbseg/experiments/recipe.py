"""Recipes: TOML files that describe a grid of runs, validated before any run starts."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hebbseg.config import FLAT_NAMES, OLD_NAMES
from hebbseg.errors import HebbsegError, did_you_mean, explaining

SETTINGS = frozenset({*FLAT_NAMES, *OLD_NAMES}) - {"data"}
Values = dict[str, Any]


class _Part(BaseModel):
    """A table of the recipe: keys of its own; every other key is a setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Values = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _separate_settings(cls, given: Any) -> Any:
        own = set(cls.model_fields) - {"settings"}
        if not isinstance(given, Mapping):
            return given
        for key in given:
            if key not in own | SETTINGS:
                raise ValueError(f"unknown key {key!r}. {did_you_mean(key, own | SETTINGS)}")
        settings = {key: value for key, value in given.items() if key not in own}
        return {key: value for key, value in given.items() if key in own} | {"settings": settings}


class DataSet(_Part):
    """``[data.NAME]``: its source, its own settings, and axes that override the recipe's."""

    source: str
    axes: dict[str, list[Any]] = Field(default_factory=dict)


class Arm(_Part):
    """``[[arms]]``: a named combination of settings.

    Args:
        name: its label in tables and figures.
        gain_over: reference arm for the gain; it differs from this one in a single component.
        without: axes that do not apply to this arm; it runs once, not once per value.
        skip: axis → values at which this arm is not run.
    """

    name: str = Field(min_length=1)
    gain_over: str | None = None
    without: list[str] = Field(default_factory=list)
    skip: dict[str, list[Any]] = Field(default_factory=dict)

    def skips(self, point: Values) -> bool:
        return any(name in point and point[name] in values for name, values in self.skip.items())


class Recipe(BaseModel):
    """One experiment: data sets × axes × arms.

    Args:
        name: default name of the output folder.
        title: heading in the report.
        table: layout of the report.
        kind: train (both stages) or probe (stage 1, then a linear layer on its features).
        baseline: the arm all others are compared with.
        settings: of all runs; those of a data set or an arm override them.
        data: data sets by name. The name, not the path, identifies a run.
        axes: setting → its values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str = ""
    table: str = ""
    kind: Literal["train", "probe"] = "train"
    baseline: str | None = None
    settings: Values = Field(default_factory=dict)
    data: dict[str, DataSet] = Field(min_length=1)
    axes: dict[str, list[Any]] = Field(default_factory=dict)
    arms: list[Arm] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _known_settings("[settings]", self.settings)
        _check_axes("[axes]", self.axes)
        for name, data in self.data.items():
            _check_axes(f"[data.{name}.axes]", data.axes)
        self._check_arms()
        self._check_places()
        return self

    def with_data(self, names: Sequence[str]) -> "Recipe":
        """Return the recipe restricted to these data sets; to all of them if none is named."""
        for name in names:
            if name not in self.data:
                raise HebbsegError(f"--data {name}: recipe {self.name} has no [data.{name}]. {did_you_mean(name, self.data)}")
        return self.model_copy(update={"data": {k: v for k, v in self.data.items() if not names or k in names}})

    def axes_of(self, data: str) -> dict[str, list[Any]]:
        """Return the axes of one data set; its own override the recipe's."""
        return self.axes | self.data[data].axes

    def _check_arms(self) -> None:
        names = [arm.name for arm in self.arms]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two arms are named {twice[0]!r}. Arm names must be unique")
        if self.baseline is not None and self.baseline not in names:
            raise ValueError(f"baseline = {self.baseline!r} is not an arm. {did_you_mean(self.baseline, names)}")
        for arm in self.arms:
            where = f"arm {arm.name!r}"
            others = [name for name in names if name != arm.name]
            if arm.gain_over is not None and arm.gain_over not in others:
                hint = did_you_mean(arm.gain_over, others)
                raise ValueError(f"{where}: gain_over = {arm.gain_over!r} is not another arm. {hint}")
            self._check_exceptions(arm)
            if self.kind == "probe" and arm.settings.keys() & {"method", "method_options"}:
                raise ValueError(f"{where}: method has no effect, as a probe has no stage 2. Remove it, or set kind = 'train'")

    def _check_exceptions(self, arm: Arm) -> None:
        axes: dict[str, list[Any]] = {}
        for data in self.data:
            for name, values in self.axes_of(data).items():
                axes[name] = axes.get(name, []) + values
        for key, names in (("without", arm.without), ("skip", arm.skip)):
            for name in names:
                if name not in axes:
                    hint = did_you_mean(name, axes) if axes else "The recipe has no axes."
                    raise ValueError(f"arm {arm.name!r}: {key} names {name!r}, which is not an axis. {hint}")
        for name, values in arm.skip.items():
            for value in values:
                if value not in axes[name]:
                    hint = did_you_mean(str(value), map(str, axes[name]))
                    raise ValueError(f"arm {arm.name!r}: skip names {name} = {value!r}, which is not on this axis. {hint}")

    def _check_places(self) -> None:
        """Raise an error if an axis is also a fixed setting of the recipe, a data set or an arm."""
        for data_name, data in self.data.items():
            axes = self.axes_of(data_name)
            places: list[tuple[str, Values, list[str]]] = [("[settings]", self.settings, [])]
            places += [(f"[data.{data_name}]", data.settings, [])]
            places += [(f"arm {arm.name!r}", arm.settings, arm.without) for arm in self.arms]
            for where, settings, without in places:
                if both := sorted(settings.keys() & axes.keys() - set(without)):
                    raise ValueError(f"{both[0]} is an axis and also set in {where}. Remove one of the two")


def load_recipe(path: Path) -> Recipe:
    """Read and validate a recipe. Errors name the file, the key, the value found and the values allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        near = [found.name for found in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        hint = did_you_mean(path.name, near) if near else "Recipes are TOML files, as in the folder recipes/ of the repository."
        raise HebbsegError(f"Recipe {path}: {reason}. {hint}") from None
    try:
        with explaining(f"Recipe {path}", "not a valid TOML file", "Fix the file."):
            content = tomllib.loads(text)
        return Recipe(**content)
    except ValidationError as error:
        raise HebbsegError(f"Recipe {path}: {_in_words(error)}") from None


def _in_words(error: ValidationError) -> str:
    # A misspelled key is also a missing one; report the misspelling.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return f"unknown key {place[-1]!r}. {did_you_mean(place[-1], Recipe.model_fields)}"
    if first["type"] == "missing":
        return f"{'.'.join(place)} is missing."
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    found = "" if first["type"] == "value_error" else f" Found: {first['input']!r}."
    return f"{'.'.join(place) + ': ' if place else ''}{message}.{found}"


def _known_settings(where: str, names: Mapping[str, Any]) -> None:
    for name in names:
        if name not in SETTINGS:
            raise ValueError(f"{where}: unknown setting {name!r}. {did_you_mean(name, SETTINGS)}")


def _check_axes(where: str, axes: Mapping[str, list[Any]]) -> None:
    _known_settings(where, axes)
    for name, values in axes.items():
        if not values:
            raise ValueError(f"{where}: {name} = [] has no values, so there are no runs. Add a value, or remove the axis")
        if twice := [value for value in values if values.count(value) > 1]:
            raise ValueError(f"{where}: {name} lists {twice[0]!r} twice. Remove one of them")
