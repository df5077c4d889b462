"""Recipes: TOML files that describe a grid of runs, validated before any run starts."""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from hebbseg.errors import FileError, HebbsegError, did_you_mean, explaining
from hebbseg.experiments.recipe_parts import (
    Applied,
    Arm,
    Axes,
    DataSet,
    Small,
    Table,
    Values,
    check_axes,
    check_names,
    check_settings,
    overridden,
)
from hebbseg.text_files import read_text

APPLIED = "# Options of hebbseg grid:\n[applied]\n"
HINT = "Recipes are TOML files, as in the folder recipes/ of the repository."
MAX_RUNS = 100_000
MAX_DEPTH = 20


class Recipe(Table):
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
        small: changes for a reduced scale.
        applied: options of `hebbseg grid` that are part of the recipe (see `load_recipe`).
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str = ""
    table: str = ""
    kind: Literal["train", "probe"] = "train"
    baseline: str | None = None
    settings: Values = Field(default_factory=dict)
    data: dict[str, DataSet] = Field(min_length=1)
    axes: Axes = Field(default_factory=dict)
    arms: list[Arm] = Field(min_length=1)
    small: Small | None = None
    applied: Applied = Applied()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_settings("[settings]", self.settings)
        check_axes("[axes]", self.axes)
        for name, data in self.data.items():
            check_axes(f"[data.{name}.axes]", data.axes)
        self._check_number()
        self._check_arms()
        self._check_places()
        if self.small is not None:
            self._check_small(self.small)
        return self

    def with_data(self, names: Sequence[str]) -> "Recipe":
        """Return the recipe restricted to these data sets; to all of them if none is named."""
        for name in names:
            if name not in self.data:
                raise HebbsegError(f"--data {name}: recipe {self.name} has no [data.{name}]. {did_you_mean(name, self.data)}")
        return self.model_copy(update={"data": {k: v for k, v in self.data.items() if not names or k in names}})

    def reduced(self) -> "Recipe":
        """Return the recipe with the changes of its ``[small]``, which is part of its name and title."""
        if self.small is None:
            raise HebbsegError(f"--small: recipe {self.name} has no table [small]. Add one, or remove --small.")
        small, kept = self.small, self.small.only_data or list(self.data)
        data = {name: small.data[name].applied_to(old) if name in small.data else old for name, old in self.data.items()}
        data = {name: data[name] for name in kept}
        axes = self.axes | small.axes
        every = _all_axes(axes, data)
        arms = [arm.reduced(small.arms[arm.name].settings if arm.name in small.arms else {}, kept, every) for arm in self.arms]
        return Recipe(
            **dict(self) | {
                "name": f"{self.name}-small",
                "title": f"{self.title}, reduced scale" if self.title else "",
                "settings": self.settings | small.settings,
                "data": data,
                "axes": axes,
                "arms": [arm for arm in arms if arm is not None],
                "small": None,
            }
        )  # fmt: skip

    def with_settings(self, given: Values) -> "Recipe":
        """Return the recipe with settings of ``--set``, which override those of the recipe and its data sets."""
        places = [(f"[data.{name}.axes]", data.axes) for name, data in self.data.items()]
        for name in given:
            for where, axes in (("[axes]", self.axes), *places):
                if name in axes:
                    raise HebbsegError(
                        f"--set {name}: recipe {self.name} varies it in {where}. Use --where {name}=VALUE to select values, or "
                        "change the recipe."
                    )
            if (arm := next((arm for arm in self.arms if name in arm.settings), None)) is not None:
                raise HebbsegError(
                    f"--set {name}: arm {arm.name!r} of recipe {self.name} sets it, so it is part of the comparison. Change "
                    "the recipe instead."
                )
        try:
            check_settings("--set", given)
        except ValueError as error:
            raise HebbsegError(str(error)) from None
        data = {}
        for name, old in self.data.items():
            own = {key: value for key, value in given.items() if key in old.settings}
            data[name] = old.model_copy(update={"settings": overridden(old.settings, own)})
        return self.model_copy(update={"settings": overridden(self.settings, given), "data": data})

    def axes_of(self, data: str) -> Axes:
        """Return the axes of one data set; its own override the recipe's."""
        return self.axes | self.data[data].axes

    def _check_number(self) -> None:
        points = sum(math.prod(map(len, self.axes_of(name).values())) for name in self.data)
        if points * len(self.arms) > MAX_RUNS:
            raise ValueError(f"{points * len(self.arms)} runs; at most {MAX_RUNS} are allowed. Divide it into several recipes")

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
            check_names(f"{where}: only_data", arm.only_data, self.data, "a data set of the recipe")
            self._check_exceptions(arm)
            if self.kind == "probe" and arm.settings.keys() & {"method", "method_options"}:
                raise ValueError(f"{where}: method has no effect, as a probe has no stage 2. Remove it, or set kind = 'train'")

    def _check_exceptions(self, arm: Arm) -> None:
        axes = _all_axes(self.axes, self.data)
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

    def _check_small(self, small: Small) -> None:
        check_settings("[small.settings]", small.settings)
        check_axes("[small.axes]", small.axes)
        check_names("[small]: only_data", small.only_data, self.data, "a data set of the recipe")
        check_names("[small.data]", small.data, self.data, "a data set of the recipe")
        check_names("[small.arms]", small.arms, [arm.name for arm in self.arms], "an arm")
        for name, data in small.data.items():
            check_axes(f"[small.data.{name}.axes]", data.axes)


def _all_axes(axes: Axes, data: Mapping[str, DataSet]) -> Axes:
    """Return the values of each axis on any of the data sets."""
    every: Axes = {}
    for each in data.values():
        for name, values in (axes | each.axes).items():
            every[name] = every.get(name, []) + values
    return every


def load_recipe(path: Path, options: Applied | None = None) -> Recipe:
    """Read and validate a recipe. Errors name the file, the key, the value found and the values allowed.

    Args:
        options: of `hebbseg grid`. They are applied after those that the file records in ``[applied]``.
    """
    if not path.is_file():
        near = [found.name for found in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        reason = "a folder" if path.is_dir() else "no such file"
        hint = did_you_mean(path.name, near) if near else HINT
        raise HebbsegError(f"Recipe {path}: {reason}. {hint}")
    text = _text(path)
    try:
        with explaining(f"Recipe {path}", "not a valid TOML file", "Fix the file."):
            content = tomllib.loads(text)
            if _depth(content) > MAX_DEPTH:
                raise RecursionError
        recipe = Recipe(**content)
    except ValidationError as error:
        raise HebbsegError(f"Recipe {path}: {_in_words(error)}") from None
    applied = recipe.applied.and_then(options or Applied())
    if recipe.small is not None or applied.small:
        try:
            reduced = recipe.reduced()  # must be valid, even if it is not used
        except ValidationError as error:
            raise HebbsegError(f"Recipe {path} with its [small]: {_in_words(error)}") from None
        recipe = reduced if applied.small else recipe
    return recipe.with_settings(applied.set).model_copy(update={"applied": applied})


def _depth(content: Any) -> int:
    """Return how deeply tables and lists are nested, up to one more than allowed."""
    depth, level = 0, [content]
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [value for values in inner for value in values if isinstance(value, Mapping | list)]
    return depth


def _text(path: Path) -> str:
    return read_text(path, HINT, error=lambda file, finding, remedy: FileError(f"Recipe {file}", finding, remedy))


def recipe_text(path: Path, applied: Applied) -> str:
    """Return the text of a recipe with the options applied to it, from which `load_recipe` makes the same runs."""
    text = _text(path).partition(APPLIED)[0]
    if "applied" in tomllib.loads(text):
        raise HebbsegError(
            f"Recipe {path}: [applied] is written by hebbseg grid. Remove it, and use --small and --set instead."
        )
    if applied == Applied():
        return text
    settings = [f"set.{name} = {_toml(value)}\n" for name, value in applied.set.items()]
    return f"{text.rstrip()}\n\n{APPLIED}small = {_toml(applied.small)}\n{''.join(settings)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)  # texts, numbers, truth values and lists are the same in TOML


def _in_words(error: ValidationError) -> str:
    # A misspelled key is also a missing one; report the misspelling.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        tables: dict[str, type[Table]] = {"small": Small, "applied": Applied}
        table = tables.get(place[0], Recipe) if len(place) > 1 else Recipe
        return f"unknown key {place[-1]!r:.200}. {did_you_mean(place[-1], table.model_fields)}"
    if first["type"] == "missing":
        return f"{'.'.join(place)} is missing."
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    found = "" if first["type"] == "value_error" else f" Found: {first['input']!r:.200}."
    return f"{'.'.join(place)[:200] + ': ' if place else ''}{message}.{found}"
