"""Presets: values for all settings that a user does not give."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

Preset = Literal["hebbseg", "paper"]
PRESETS: tuple[Preset, ...] = ("hebbseg", "paper")

RAMPED = ("em", "mean-teacher", "uamt", "cct", "cps", "urpc", "dtc")
"""Methods of the paper's comparison whose unlabelled loss has the weight λ."""

INVERSE_TEMPERATURE = {"glas": 100, "phantom:glands": 100}
"""K = 1/t of SWTA; 20 for PH2 and HMEPS, and for data sets that are not in the paper."""

VOLUMES = ("la", "phantom:atrium")

STABLE_RATES = {("hpca", "tsa"): 0.002, ("hpca", "s"): 5e-5, ("swta", "s"): 0.0005}
"""Rule and form whose learning rate of the paper diverges → the largest stable one (studies/results/stable-rates.csv).

With the form S, filters grow at any rate: these are the largest rates at which none exceeds ten times its initial norm.
"""


def preset_values(preset: str, data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a preset, by flat name, for a data set and the settings that are given.

    Args:
        data: the source as the user gives it, such as ``glas:PATH``; a data set that the paper does not use has the values of
            PH2.
    """
    return _VALUES[preset](data, given) if preset in _VALUES else {}


def paper(data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the paper's appendix; where it is silent, those of its authors' scripts (docs/how-to/paper.md)."""
    name = data.partition(":")[0] if not data.startswith("phantom:") else data.partition("?")[0]
    volumes = name in VOLUMES
    rate = 0.1 if volumes else 0.5
    values: dict[str, Any] = {
        # both stages
        "protocol": "paper", "folds": 5 if volumes else 10, "folds_by": "images", "norm": "batch",
        # stage 1
        "init": "hebbian", "rule": "swta", "transpose": "tsa", "part": "all", "levels": "all", "layerwise": False,
        "temperature": 1 / INVERSE_TEMPERATURE.get(name, 20),
        "unit_norm": False, "center": False, "standardize": False, "whiten": None, "restore_norms": False,
        "pretrain_step": "absolute", "pretrain_epochs": 200, "pretrain_batch": 2, "pretrain_optimizer": "sgd",
        "pretrain_schedule": "step", "pretrain_augment": "flips-rotations", "pretrain_max_batches": None, "settle": 0.0,
        # stage 2
        "method": "supervised", "epochs": 200, "labelled_batch": 2, "unlabelled_batch": 2, "unlabelled_pool": "unlabelled",
        "optimizer": "sgd", "momentum": 0.9, "learning_rate": rate, "weight_decay": 5e-5, "schedule": "step", "warm_up": 0.0,
        "ema": 0.0, "clip": None, "loss": "dice", "augment": "flips-rotations", "cutmix": 0.0, "validate_every": 2,
        "patience": None, "tta": "none", "metrics_grid": "training", "precision": "32-true",
    }  # fmt: skip
    if volumes:
        values |= {"patch": (96, 96, 80), "patch_foreground": 0.0, "window_blend": "constant"}
    else:
        values |= {"size": (128, 128), "patch": "none"}
    chosen = values | dict(given)
    values["pretrain_rate"] = min(rate, STABLE_RATES.get((str(chosen["rule"]), str(chosen["transpose"])), rate))
    if chosen["init"] in ("vae", "superpix"):
        values["pretrain_rate"] = 1e-4 if volumes else 1e-3
    if chosen["method"] in RAMPED:
        values["method_options"] = {"weight": 5.0, "ramp": "linear", "ramp_share": 1.0}
    for instead in ("updates", "test"):  # of epochs, of folds
        if instead in given and given[instead] != "auto":
            values.pop({"updates": "epochs", "test": "folds"}[instead])
    return values


_VALUES: dict[str, Callable[[str, Mapping[str, Any]], dict[str, Any]]] = {"paper": paper}
