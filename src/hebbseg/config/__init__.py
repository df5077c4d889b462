"""Every choice of a run, frozen and validated, in one section per stage.

The command line, Python and recipes use flat names (``updates``, ``pretrain_epochs``): see `FLAT_NAMES`.
"""

from hebbseg.config.sections import (
    AUTO_BATCH,
    Accelerator,
    DataSettings,
    FinetuneSettings,
    HardwareSettings,
    NetworkSettings,
    PretrainSettings,
    current_options,
    former_options,
)
from hebbseg.config.settings import FLAT_NAMES, OLD_NAMES, Settings, make_settings, settings_of_run

__all__ = [
    "AUTO_BATCH",
    "FLAT_NAMES",
    "OLD_NAMES",
    "Accelerator",
    "DataSettings",
    "FinetuneSettings",
    "HardwareSettings",
    "NetworkSettings",
    "PretrainSettings",
    "Settings",
    "current_options",
    "former_options",
    "make_settings",
    "settings_of_run",
]
