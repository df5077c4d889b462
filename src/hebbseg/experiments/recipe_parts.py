"""The tables of a recipe: data sets, arms, the reduced scale, and options of `hebbseg grid` that are applied to it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hebbseg.config import FLAT_NAMES, OTHER_NAMES
from hebbseg.errors import did_you_mean

SETTINGS = frozenset({*FLAT_NAMES, *OTHER_NAMES}) - {"data"}
MAX_VALUES = 10_000  # of an axis
Values = dict[str, Any]
Axes = dict[str, list[Any]]


class Table(BaseModel):
    """A table of the recipe. Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(Table):
    """A table with keys of its own; every other key is a setting."""

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


class DataSet(Part):
    """``[data.NAME]``: its source, its own settings, and axes that override the recipe's.

    Args:
        identity: what identifies its runs; default: its name.
    """

    source: str
    identity: str | None = None
    axes: Axes = Field(default_factory=dict)


class Arm(Part):
    """``[[arms]]``: a named combination of settings.

    Args:
        name: its label in tables and figures.
        gain_over: reference arm for the gain; it differs from this one in a single component.
        only_data: data sets that this arm is run on; default: all.
        without: axes that do not apply to this arm; it runs once, not once per value.
        skip: axis → values at which this arm is not run.
    """

    name: str = Field(min_length=1)
    gain_over: str | None = None
    only_data: list[str] = Field(default_factory=list)
    without: list[str] = Field(default_factory=list)
    skip: Axes = Field(default_factory=dict)

    def skips(self, data: str, point: Values) -> bool:
        if self.only_data and data not in self.only_data:
            return True
        return any(name in point and point[name] in values for name, values in self.skip.items())

    def reduced(self, settings: Values, data: Sequence[str], axes: Axes) -> "Arm | None":
        """Return the arm on a reduced recipe with these data sets and axes; None if it is run on none of them."""
        only = [name for name in self.only_data if name in data]
        if self.only_data and not only:
            return None
        skip = {name: [value for value in values if value in axes.get(name, ())] for name, values in self.skip.items()}
        changes = {"settings": self.settings | settings, "only_data": only, "skip": {n: v for n, v in skip.items() if v}}
        return self.model_copy(update=changes)


class SmallData(Part):
    """``[small.data.NAME]``: changes of a data set."""

    source: str | None = None
    axes: Axes = Field(default_factory=dict)

    def applied_to(self, data: DataSet) -> DataSet:
        changes: Values = {"settings": data.settings | self.settings, "axes": data.axes | self.axes}
        if self.source is not None:
            # Other files are another data set, although it keeps its name.
            changes |= {"source": self.source, "identity": Path(self.source.rpartition(":")[2]).name}
        return data.model_copy(update=changes)


class SmallArm(Part):
    """``[small.arms.NAME]``: settings of an arm."""


class Small(Table):
    """``[small]``: changes that ``hebbseg grid --small`` applies to the tables of the recipe.

    Args:
        only_data: the data sets that are kept; default: all.
    """

    only_data: list[str] = Field(default_factory=list)
    settings: Values = Field(default_factory=dict)
    axes: Axes = Field(default_factory=dict)
    data: dict[str, SmallData] = Field(default_factory=dict)
    arms: dict[str, SmallArm] = Field(default_factory=dict)


class Applied(Table):
    """``[applied]``: options of ``hebbseg grid``, recorded in the recipe of its output folder.

    Args:
        small: ``--small``.
        set: settings of ``--set``.
    """

    small: bool = False
    set: Values = Field(default_factory=dict)

    def and_then(self, later: "Applied") -> "Applied":
        return Applied(small=self.small or later.small, set=self.set | later.set)


def overridden(old: Values, given: Values) -> Values:
    """Return ``old | given``, where single options (of a method, of a network) change the others of it and keep the rest."""
    both = {name for name in old.keys() & given.keys() if isinstance(old[name], Mapping) and isinstance(given[name], Mapping)}
    return old | given | {name: {**old[name], **given[name]} for name in both}


def check_settings(where: str, names: Mapping[str, Any]) -> None:
    for name in names:
        if name not in SETTINGS:
            raise ValueError(f"{where}: unknown setting {name!r}. {did_you_mean(name, SETTINGS)}")


def check_axes(where: str, axes: Mapping[str, list[Any]]) -> None:
    check_settings(where, axes)
    for name, values in axes.items():
        if not values:
            raise ValueError(f"{where}: {name} = [] has no values, so there are no runs. Add a value, or remove the axis")
        if len(values) > MAX_VALUES:
            raise ValueError(f"{where}: {name} has {len(values)} values; at most {MAX_VALUES} are allowed")
        if twice := [value for value in values if values.count(value) > 1]:
            raise ValueError(f"{where}: {name} lists {twice[0]!r} twice. Remove one of them")


def check_names(where: str, names: Iterable[str], known: Collection[str], kind: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{where} names {name!r}, which is not {kind}. {did_you_mean(name, known)}")
