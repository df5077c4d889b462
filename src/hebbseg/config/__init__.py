"""The settings of a run: frozen, validated, in sections; flat names (`FLAT_NAMES`) outside this package."""

from hebbseg.config.fields import AUTO_BATCH, PRETRAIN_BATCH, Accelerator, AugmentName
from hebbseg.config.presets import PRESETS, preset_values
from hebbseg.config.pretrain import AUTO_INIT, PRETEXT, PretrainSettings
from hebbseg.config.sections import (
    UNLIMITED_UPDATES,
    DataSettings,
    FinetuneSettings,
    HardwareSettings,
    NetworkSettings,
    current_options,
    former_options,
)
from hebbseg.config.settings import BEFORE, FLAT_NAMES, OLD_NAMES, OTHER_NAMES, Settings, make_settings, settings_of_run

__all__ = [
    "AUTO_BATCH",
    "AUTO_INIT",
    "BEFORE",
    "FLAT_NAMES",
    "OLD_NAMES",
    "OTHER_NAMES",
    "PRESETS",
    "PRETEXT",
    "PRETRAIN_BATCH",
    "UNLIMITED_UPDATES",
    "Accelerator",
    "AugmentName",
    "DataSettings",
    "FinetuneSettings",
    "HardwareSettings",
    "NetworkSettings",
    "PretrainSettings",
    "Settings",
    "current_options",
    "former_options",
    "make_settings",
    "preset_values",
    "settings_of_run",
]
