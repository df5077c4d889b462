"""Names of the data set and the arm of runs without a recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hebbseg.config import AUTO_INIT, PretrainSettings

BASELINE = "Supervised"
DEFAULT_STAGE_1 = PretrainSettings().model_dump(
    mode="json", include={"rule", "rule_options", "transpose", "part", "levels"}
) | {"init": "hebbian"}


def dataset_of(data: str) -> str:
    """``glas:PATH`` → glas, ``phantom:glands?n=12`` → phantom glands, a folder → its name."""
    name, colon, place = data.partition(":")
    if colon and name == "phantom":
        return f"phantom {place.partition('?')[0]}"
    if colon and name not in ("folder", "nnunet") and len(name) > 1:  # one letter is a drive
        return name
    return Path(place if colon and len(name) > 1 else data).name or data


def arm_of(settings: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the name of an arm, and that of the same arm with random weights unless it is the baseline."""
    from hebbseg.methods import AUTO_TITLE, method_title  # imports torch

    method = method_title(str(settings["method"]), settings.get("method_options") or {})
    if settings["init"] == "random":
        return method, None
    if settings["init"] == AUTO_INIT:
        settings = {**settings, "init": "hebbian"}
    if method == AUTO_TITLE and DEFAULT_STAGE_1.items() <= (DEFAULT_STAGE_1 | dict(settings)).items():
        return f"Default ({AUTO_TITLE})", method
    return f"{method} + {_init_title(settings)}", None if method == BASELINE else method


def _init_title(settings: Mapping[str, Any]) -> str:
    """``Hebbian SWTA-TSA``, ``VAE (latent=8)``, ``weights from stage1.safetensors``."""
    from hebbseg.methods import options_text
    from hebbseg.pretraining.initializers import initializer, is_initializer

    init, options = str(settings["init"]), settings.get("init_options")
    if init == "hebbian":
        form = "" if settings.get("part") == "encoder" else f"-{settings['transpose']}"
        title, options = "Hebbian " + f"{settings['rule']}{form}".upper(), settings.get("rule_options")
    elif is_initializer(init):
        title = initializer(init).title
    else:
        title = f"weights from {Path(init).name}" if Path(init).suffix else init
    return f"{title} ({options_text(options)})" if options else title
