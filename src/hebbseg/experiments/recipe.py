"""A recipe: which runs there are, written as data. Everything that is wrong with it is said before anything starts."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hebbseg.config import FLAT_NAMES, OLD_NAMES
from hebbseg.errors import HebbsegError, did_you_mean

SETTINGS = frozenset({*FLAT_NAMES, *OLD_NAMES}) - {"data"}
Values = dict[str, Any]


class _Part(BaseModel):
    """A table of the recipe: its own keys, and every other one is a setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Values = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _settings_apart(cls, given: Any) -> Any:
        own = set(cls.model_fields) - {"settings"}
        if not isinstance(given, Mapping):
            return given
        for key in given:
            if key not in own | SETTINGS:
                raise ValueError(f"unknown key {key!r}. {did_you_mean(key, own | SETTINGS)}")
        settings = {key: value for key, value in given.items() if key not in own}
        return {key: value for key, value in given.items() if key in own} | {"settings": settings}


class DataSet(_Part):
    """``[data.NAME]``: where it is, settings for it alone, and axes that differ from the recipe's."""

    source: str
    axes: dict[str, list[Any]] = Field(default_factory=dict)


class Arm(_Part):
    """``[[arms]]``: a named combination of settings.

    Args:
        name: as tables show it.
        gain_over: the arm that this one differs from by one thing, whose worth is asked for.
        without: axes that mean nothing to this arm; it is run once, not once for each value.
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
        name: of the folder of its results, unless told otherwise.
        title: a sentence for the report.
        table: which table or figure of the report shows it.
        kind: train (both stages) or probe (stage 1, then a linear layer on its features).
        baseline: the arm that all others are compared with.
        settings: of all runs; a data set's and an arm's own come before them.
        data: the data sets, by name. The name, not the path, tells runs apart.
        axes: setting → its values.
        arms: what is compared.
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
        """The recipe with these of its data sets alone; with all of them if none is named."""
        for name in names:
            if name not in self.data:
                raise HebbsegError(f"--data {name}: recipe {self.name} has no [data.{name}]. {did_you_mean(name, self.data)}")
        return self.model_copy(update={"data": {k: v for k, v in self.data.items() if not names or k in names}})

    def axes_of(self, data: str) -> dict[str, list[Any]]:
        """The axes of one data set, its own values before the recipe's."""
        return self.axes | self.data[data].axes

    def _check_arms(self) -> None:
        names = [arm.name for arm in self.arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two arms are named {twice[0]!r}. Give each its own name")
        if self.baseline is not None and self.baseline not in names:
            raise ValueError(f"baseline = {self.baseline!r} is no arm. {did_you_mean(self.baseline, names)}")
        for arm in self.arms:
            where = f"arm {arm.name!r}"
            others = [name for name in names if name != arm.name]
            if arm.gain_over is not None and arm.gain_over not in others:
                hint = did_you_mean(arm.gain_over, others)
                raise ValueError(f"{where}: gain_over = {arm.gain_over!r} is no other arm. {hint}")
            self._check_exceptions(arm)
            if self.kind == "probe" and arm.settings.keys() & {"method", "method_options"}:
                raise ValueError(f"{where}: a probe has no stage 2, so method means nothing. Leave it out, or kind = 'train'")

    def _check_exceptions(self, arm: Arm) -> None:
        axes: dict[str, list[Any]] = {}
        for data in self.data:
            for name, values in self.axes_of(data).items():
                axes[name] = axes.get(name, []) + values
        for key, names in (("without", arm.without), ("skip", arm.skip)):
            for name in names:
                if name not in axes:
                    hint = did_you_mean(name, axes) if axes else "There are none."
                    raise ValueError(f"arm {arm.name!r}: {key} names {name!r}, which is no axis. {hint}")
        for name, values in arm.skip.items():
            for value in values:
                if value not in axes[name]:
                    hint = did_you_mean(str(value), map(str, axes[name]))
                    raise ValueError(f"arm {arm.name!r}: skip names {name} = {value!r}, which is no value of it. {hint}")

    def _check_places(self) -> None:
        """One setting, one place: an axis is not also fixed for all runs, for a data set or for an arm."""
        for data_name, data in self.data.items():
            axes = self.axes_of(data_name)
            places: list[tuple[str, Values, list[str]]] = [("[settings]", self.settings, [])]
            places += [(f"[data.{data_name}]", data.settings, [])]
            places += [(f"arm {arm.name!r}", arm.settings, arm.without) for arm in self.arms]
            for where, settings, without in places:
                both = sorted(settings.keys() & axes.keys() - set(without))
                if both:
                    raise ValueError(f"{both[0]} is an axis and also fixed in {where}. Keep one of them")


def load_recipe(path: Path) -> Recipe:
    """Reads and checks a recipe; an error names the file, the place in it, what was found and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        near = [found.name for found in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        hint = did_you_mean(path.name, near) if near else "Recipes are TOML files, as in recipes/ of the project."
        raise HebbsegError(f"Recipe {path}: {reason}. {hint}") from None
    try:
        return Recipe(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise HebbsegError(f"Recipe {path}: this is not TOML ({error}).") from None
    except ValidationError as error:
        raise HebbsegError(f"Recipe {path}: {_in_words(error)}") from None


def _in_words(error: ValidationError) -> str:
    # A misspelt key is also a missing one; the misspelling says more.
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
            raise ValueError(f"{where}: {name} = [] has no value, so there would be no run. Give one or more, or leave it out")
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ValueError(f"{where}: {name} has {twice[0]!r} twice. Keep one of them")
