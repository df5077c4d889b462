"""All settings of a run, and how they are made from flat names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from hebbseg.config.sections import (
    DataSettings,
    FinetuneSettings,
    HardwareSettings,
    NetworkSettings,
    PretrainSettings,
    Section,
)
from hebbseg.errors import HebbsegError, did_you_mean


class Settings(Section):
    """A run from images to a segmenter."""

    seed: int = Field(0, description="random seed of split, weights, batches and augmentation")
    data: DataSettings
    network: NetworkSettings = NetworkSettings()
    pretrain: PretrainSettings = PretrainSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    hardware: HardwareSettings = HardwareSettings()

    @model_validator(mode="after")
    def _some_layers_learn(self) -> Self:
        depth = len(self.network.features)
        of_unet = (self.network.name, self.pretrain.patterns) == ("unet", "auto")
        if of_unet and "levels" in self.pretrain.relevant() and self.pretrain.layers(depth) == ():
            raise HebbsegError(
                f"levels={self.pretrain.levels!r}: a network of {depth} levels has none of these in "
                f"part={self.pretrain.part!r}, so nothing would learn in stage 1. Level 0 is the one at full size."
            )
        return self

    @property
    def split_seed(self) -> int:
        """The random seed of the split."""
        return self.seed if self.data.split_seed is None else self.data.split_seed

    def flat(self, *, relevant: bool = False) -> dict[str, Any]:
        """{flat name: value}, as JSON has it; `make_settings` takes it back. ``relevant``: only those of `identity`."""
        nested = self.identity() if relevant else self.model_dump(mode="json")
        places = ((name, nested.get(section, {}) if section else nested, key) for name, (section, key, _) in FLAT_NAMES.items())
        return {name: values[key] for name, values, key in places if key in values}

    def changed(self, **values: Any) -> Self:
        """These settings with other values, by flat name; they are not validated again."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            section, key, _ = FLAT_NAMES[name]
            sections.setdefault(section, {})[key] = value
        update = sections.pop("", {})
        for section, inner in sections.items():
            update[section] = getattr(self, section).model_copy(update=inner)
        return self.model_copy(update=update)

    def identity(self) -> dict[str, Any]:
        """All that the result of the run follows from; hardware and settings that nothing reads are left out."""
        every = self.model_dump(mode="json", exclude={"hardware"})
        return every | {"pretrain": self.pretrain.relevant()}


def _flat_names() -> dict[str, tuple[str, str, FieldInfo]]:
    names: dict[str, tuple[str, str, FieldInfo]] = {}
    for section, field in Settings.model_fields.items():
        inside = field.annotation
        if not (isinstance(inside, type) and issubclass(inside, Section)):
            names[section] = ("", section, field)
            continue
        for key, setting in inside.model_fields.items():
            extra = setting.json_schema_extra
            flat = str(extra["flat"]) if isinstance(extra, dict) else key
            assert flat not in names, flat
            names[flat] = (section, key, setting)
    return names


FLAT_NAMES = _flat_names()
"""Flat name → its section ("" for none), its name there, and its description and default."""

OLD_NAMES = {
    "normalise": "normalize", "centre": "center", "standardise": "standardize", "optimiser": "optimizer",
    "pretrain_optimiser": "pretrain_optimizer",
}  # fmt: skip
"""How version 0.1 spelled a setting; still accepted."""


def make_settings(data: str | Path, options: Mapping[str, Any]) -> Settings:
    """Settings from keywords or ``--set`` texts, or an error that names the option, what it got and what it takes."""
    sections: dict[str, dict[str, Any]] = {"data": {"source": str(data)}}
    for given, value in options.items():
        name = OLD_NAMES.get(given, given)
        if name not in FLAT_NAMES or name == "data":
            raise HebbsegError(f"Unknown option {given!r}. {did_you_mean(given, FLAT_NAMES)}")
        section, key, _ = FLAT_NAMES[name]
        sections.setdefault(section, {})[key] = value
    try:
        return Settings.model_validate(sections.pop("", {}) | sections)
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(said := first.get("ctx", {}).get("error"), HebbsegError):
            raise said from None
        place = [str(part) for part in first["loc"]]
        name = next((n for n, (section, key, _) in FLAT_NAMES.items() if [section, key] == place[:2]), place[0])
        about = FLAT_NAMES[name][2].description
        raise HebbsegError(f"Option {name}={first['input']!r} ({about}): {first['msg']}.") from None


def settings_of_run(stored: Mapping[str, Any]) -> Settings:
    """The settings that run.json holds, also of version 0.1; what it does not know has its default."""
    options = {name: value for name, value in stored.items() if name != "data"}
    return make_settings(str(stored["data"]), options)
