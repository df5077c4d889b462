"""All settings of a run, and their construction from flat names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from hebbseg.config.fields import Section
from hebbseg.config.presets import PRESETS, Preset, preset_values
from hebbseg.config.pretrain import AUTO_INIT, PretrainSettings
from hebbseg.config.sections import UNLIMITED_UPDATES, DataSettings, FinetuneSettings, HardwareSettings, NetworkSettings
from hebbseg.errors import HebbsegError, nearest
from hebbseg.seeding import derive_seed


class Settings(Section):
    """All settings of a run."""

    preset: Preset = Field(
        "hebbseg",
        description="values of the settings that are not given: the defaults (hebbseg), or those of the paper for the data set",
    )
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
                f"part={self.pretrain.part!r}, so stage 1 would train nothing. Level 0 has full resolution."
            )
        return self

    @property
    def split_seed(self) -> int:
        """Random seed of the split."""
        return self.seed if self.data.split_seed is None else self.data.split_seed

    @property
    def run_seed(self) -> int:
        """Random seed of weights, batches and augmentation: a different one in each fold."""
        return derive_seed(self.seed, "fold", self.data.fold) if self.data.fold else self.seed

    def flat(self, *, relevant: bool = False) -> dict[str, Any]:
        """Return {flat name: JSON value}, the input of `make_settings`; ``relevant``: only the settings in `identity`."""
        nested = self.identity() if relevant else self.model_dump(mode="json")
        places = ((name, nested.get(section, {}) if section else nested, key) for name, (section, key, _) in FLAT_NAMES.items())
        return {name: values[key] for name, values, key in places if key in values}

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, by flat name, without validation."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            section, key, _ = FLAT_NAMES[name]
            sections.setdefault(section, {})[key] = value
        update = sections.pop("", {})
        for section, inner in sections.items():
            update[section] = getattr(self, section).model_copy(update=inner)
        return self.model_copy(update=update)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result: without hardware and settings that are not read."""
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
"""Flat name → section ("" for none), name in the section, and field with description and default."""

OLD_NAMES = {
    "normalise": "normalize", "centre": "center", "standardise": "standardize", "optimiser": "optimizer",
    "pretrain_optimiser": "pretrain_optimizer",
}  # fmt: skip
"""Former spelling of a setting (version 0.1), still accepted → current name."""

OTHER_NAMES = OLD_NAMES | {
    "labeled": "labelled", "labeled_batch": "labelled_batch", "unlabeled_batch": "unlabelled_batch",
    "unlabeled_pool": "unlabelled_pool",
}  # fmt: skip
"""Any other spelling that is accepted → current name."""


def make_settings(data: str | Path, options: Mapping[str, Any]) -> Settings:
    """Return validated settings from values or texts by flat name.

    Raises:
        HebbsegError: an option is unknown or invalid; names the option, its value and what is allowed.
    """
    given = _current_names(options)
    chosen = str(given.get("preset", PRESETS[0]))
    sections: dict[str, dict[str, Any]] = {"data": {"source": str(data)}}
    values = preset_values(chosen, str(data), given)
    if given.get("init", AUTO_INIT) == AUTO_INIT and given.get("time_budget_s") is None:
        given["init"] = values.get("init", "hebbian")
    if given.get("time_budget_s") is not None and not {"updates", "epochs"} & (values | given).keys():
        given["updates"] = UNLIMITED_UPDATES
    for name, value in (values | given).items():
        section, key, _ = FLAT_NAMES[name]
        # Single options of a method change the preset's, they do not replace all of them.
        both = isinstance(value, Mapping) and name in values
        sections.setdefault(section, {})[key] = {**values[name], **value} if both else value
    try:
        return Settings.model_validate(sections.pop("", {}) | sections)
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(cause := first.get("ctx", {}).get("error"), HebbsegError):
            raise cause from None
        place = [str(part) for part in first["loc"]]
        name = next((n for n, (section, key, _) in FLAT_NAMES.items() if [section, key] == place[:2]), place[0])
        description = FLAT_NAMES[name][2].description
        raise HebbsegError(f"Option {name}={first['input']!r} ({description}): {first['msg']}.") from None


def _current_names(options: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for old, value in options.items():
        name = OTHER_NAMES.get(old, old)
        if name not in FLAT_NAMES or name == "data":
            raise HebbsegError(
                f"Unknown option {old!r}. {nearest(old, FLAT_NAMES)}`hebbseg train --help` and `--list-settings` list all."
            )
        if name == "folds" and value in ("images", "grouped"):
            name = "folds_by"
        given[name] = value
    return given


BEFORE = {"cutmix": 0.0}
"""Values of settings that runs of earlier versions do not have, where they differ from the default."""


def settings_of_run(stored: Mapping[str, Any]) -> Settings:
    """Return the settings in run.json, also of version 0.1; missing ones have their defaults, or what was done before."""
    options = BEFORE | {name: value for name, value in stored.items() if name != "data"}
    return make_settings(str(stored["data"]), options)
