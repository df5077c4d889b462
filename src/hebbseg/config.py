"""Every choice of a run, in one frozen and checked place. The command line, Python and recipes use these names."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from hebbseg.errors import HebbsegError, did_you_mean

Part = Literal["encoder", "decoder", "all"]
BatchSize = Annotated[int, Field(ge=1)] | Literal["auto"]
Sizes = tuple[Annotated[int, Field(ge=1)], ...]
Accelerator = Literal["auto", "cpu", "cuda", "gpu", "mps"]
OwnOptions = dict[str, float | int | str | bool]


class Settings(BaseModel):
    """A run from images to a segmenter. Frozen; an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # data and protocol
    data: str = Field(description="folder, nnU-Net folder, or NAME:PATH")
    labelled: str = Field("100%", description="how many of the training masks are used: a share (10%) or a number (8)")
    protocol: Literal["few-label", "paper"] = Field(
        "few-label", description="paper: folds, best validation Dice is kept"
    )
    folds: int | None = Field(None, description="test on one of so many folds")
    fold: int | None = Field(None, description="which fold, from 0")
    test: str = Field("auto", description="auto, official, or the share of cases to test on (0.2; 0 for none)")
    seed: int = Field(0, description="of split, weights, batches and augmentation")
    split_seed: int | None = Field(None, description="of the split alone; default: seed")
    group: str | None = Field(None, description="what keeps cases of one patient together: a CSV's column or a regex")
    mask_threshold: float | None = Field(
        None, description="masks with soft edges: values (of colours, their mean) from here on are foreground"
    )
    label_map: str | None = Field(None, description="which mask value is which class: background=0;gland=255")
    instances: bool | None = Field(None, description="mask values are object numbers: all above 0 is foreground")
    size: Sizes | Literal["auto", "native"] = Field("auto", description="images are resized to this; auto: 128×128")
    normalise: Literal["auto", "unit", "zscore"] = Field(
        "auto", description="scale of intensities; auto: each channel of each image to mean 0 and variance 1 (zscore)"
    )
    patch: Sizes | Literal["auto", "none"] = Field("auto", description="random patches; auto: volumes only")

    # network
    features: Sizes = Field((16, 32, 64, 128, 256), min_length=2, description="channels of each UNet level")
    norm: Literal["batch", "instance", "group", "none"] = Field(
        "group",
        description="of each layer's maps: group and instance look at one image at a time, batch at all of a batch",
    )
    dropout: float | None = Field(None, ge=0, lt=1, description="one rate for all encoder levels; default 0.05 … 0.5")

    # stage 1: no masks, no back-propagation
    init: str = Field("hebbian", description="where the weights of stage 2 come from; or a pretrained.safetensors")
    init_options: OwnOptions = Field(
        default_factory=dict,
        description="of init vae or superpix alone, as in init_options.steps=500; see docs/methods",
    )
    rule: str = Field("swta", description="Hebbian learning rule: swta, hpca or hebb")
    rule_options: OwnOptions = Field(
        default_factory=dict, description="parameters of a rule besides the temperature, as in rule_options.gain=2"
    )
    temperature: float = Field(0.1, gt=0, description="t of SWTA's softmax; small: one winner")
    transpose: Literal["tsa", "s", "tsa-literal", "off"] = Field("tsa", description="rule for transposed convolutions")
    part: Part = Field("encoder", description="which half of the network learns in stage 1")
    levels: str = Field(
        "1-3", pattern=r"^(all|\d+|\d+-\d*)$", description="which levels of it learn, 0 is full size: all, 2, 1-3 or 1-"
    )
    layerwise: bool = Field(True, description="one layer after the other, each on the settled ones before it")
    unit_norm: bool = Field(True, description="filters keep norm 1 in stage 1")
    centre: bool = Field(True, description="signals less their mean")
    standardise: bool = Field(True, description="activations on one scale before they compete")
    whiten: float | None = Field(1.0, gt=0, description="strength of decorrelation, small is strong; none for off")
    pretrain_epochs: int = Field(2, ge=0, description="passes over the training images (for each layer if layerwise)")
    pretrain_batch: BatchSize = Field("auto", description="images of a step of stage 1; auto: 8, or 2 volumes")
    pretrain_rate: float = Field(1.0, gt=0, description="learning rate of stage 1")
    pretrain_optimiser: Literal["sgd", "adam"] = "sgd"
    settle: float = Field(
        0.002, ge=0, description="stop a layer early when an epoch moves its weights by less than this"
    )

    # stage 2
    method: str = Field(
        "auto",
        description="how stage 2 learns from masks and from images without; "
        "auto: unimatch with dice_gated=true, or supervised if all have masks",
    )
    method_options: OwnOptions = Field(
        default_factory=dict, description="of the method alone, as in method_options.weight=5; --help-method lists them"
    )
    updates: int = Field(1000, ge=1, description="optimiser steps of stage 2")
    labelled_batch: BatchSize = Field("auto", description="labelled images of an update; auto: 8, or 2 volumes")
    unlabelled_batch: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="for methods that use unlabelled images; auto: 8, or 2 volumes"
    )
    optimiser: Literal["sgd", "adamw"] = "adamw"
    learning_rate: float = Field(2e-3, gt=0)
    encoder_rate: float = Field(1.0, ge=0, description="learning rate of the encoder, relative to the rest's")
    weight_decay: float = Field(1e-2, ge=0)
    schedule: Literal["cosine", "poly", "step", "constant"] = "cosine"
    warm_up: float = Field(0.05, ge=0, lt=1, description="share of the updates over which the rate rises from 0")
    ema: float = Field(0.99, ge=0, lt=1, description="decay of the averaged weights that are kept; 0 for none")
    clip: float | None = Field(5.0, gt=0, description="largest gradient norm")
    loss: Literal["dice+ce", "dice"] = "dice+ce"
    augment: bool = True
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    time_budget_s: float | None = Field(
        None, gt=0, description="end stage 2 after so many seconds, the schedule with it"
    )
    validate_every: int = Field(
        50, ge=1, description="updates between two looks at the validation cases, if there are any"
    )
    patience: int = Field(10, ge=1, description="looks without a better validation Dice before stage 2 ends")
    checkpoint_every_s: float = Field(30.0, ge=0, description="seconds between two checkpoints")

    # machine
    accelerator: Accelerator = "auto"
    devices: int = Field(1, ge=1)
    num_nodes: int = Field(1, ge=1)
    tensorboard: bool = False

    # use
    tta: Literal["none", "flips", "flips+rot"] = Field("none", description="average over mirrored (and turned) images")

    @field_validator("labelled", "test", "levels", "init", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float | Path) else value

    @field_validator("size", "patch", "features", mode="before")
    @classmethod
    def _as_numbers(cls, value: Any) -> Any:
        if isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*[,x×]\s*\d+)*\s*", value):
            return tuple(int(part) for part in re.split(r"[,x×]", value))
        return value

    @field_validator("whiten", "dropout", "clip", mode="before")
    @classmethod
    def _none_as_word(cls, value: Any) -> Any:
        return None if isinstance(value, str) and value.lower() in ("none", "off") else value

    @field_validator("method_options")
    @classmethod
    def _current_names(cls, value: OwnOptions, info: ValidationInfo) -> OwnOptions:
        return current_options(info.data.get("method", ""), value)

    @model_validator(mode="after")
    def _some_layers_learn(self) -> Self:
        if "levels" not in without_effect(self.init) and self.layers_of_stage1() == ():
            raise HebbsegError(
                f"levels={self.levels!r}: a network of {len(self.features)} levels has none of these in part={self.part!r}, "
                "so nothing would learn in stage 1. Level 0 is the one at full size."
            )
        return self

    def layers_of_stage1(self) -> tuple[str, ...] | None:
        """The modules of the network that learn in stage 1; None is all of them."""
        if self.levels == "all":
            return None if self.part == "all" else (self.part,)
        parts = ("encoder", "decoder") if self.part == "all" else (self.part,)
        return tuple(f"{part}.level{level}" for part in parts for level in self._levels_of(part))

    def _levels_of(self, part: str) -> list[int]:
        there = len(self.features) - (part == "decoder")  # the deepest maps are the encoder's
        first, dash, last = self.levels.replace("all", "0-").partition("-")
        end = int(last or there - 1) if dash else int(first)
        return list(range(int(first), min(end + 1, there)))

    @property
    def drawn_by(self) -> int:
        return self.seed if self.split_seed is None else self.split_seed


# What may differ between a run and its resumption: how it is computed, not what.
NOT_OF_THE_RESULT = frozenset({"checkpoint_every_s", "accelerator", "tensorboard"})
# What only these initialisations read.
READ_BY = {
    frozenset({"hebbian"}): {
        "rule", "rule_options", "temperature", "layerwise", "unit_norm", "centre", "standardise", "whiten", "settle",
        "pretrain_epochs", "pretrain_rate", "pretrain_optimiser",
    },
    frozenset({"hebbian", "random-rescaled"}): {"part", "levels", "transpose"},
}  # fmt: skip


def without_effect(init: str) -> frozenset[str]:
    """The settings that cannot change the result of a run with this initialisation."""
    return NOT_OF_THE_RESULT.union(*(names for inits, names in READ_BY.items() if init not in inits))


RENAMED_OPTIONS = {"unimatch": {"earned": "dice_gated"}}
"""Method → the names of its options in earlier versions → their names now."""


def current_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method under their current names; earlier versions may have written them."""
    names = RENAMED_OPTIONS.get(method, {})
    for old, new in names.items():
        if old in options and new in options:
            raise HebbsegError(f"Method {method}: {old} is the former name of {new}. Give {new} alone.")
    return {names.get(name, name): value for name, value in options.items()}


def current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a run folder, under their current names."""
    options = current_options(settings.get("method", ""), settings.get("method_options") or {})
    return {**settings, "method_options": options}


def make_settings(data: str | Path, options: Mapping[str, Any]) -> Settings:
    """Settings from keywords or ``--set`` texts, or an error that names the option, what it got and what it takes."""
    for name in options:
        if name not in Settings.model_fields:
            raise HebbsegError(f"Unknown option {name!r}. {did_you_mean(name, Settings.model_fields)}")
    try:
        return Settings(data=str(data), **options)
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(said := first.get("ctx", {}).get("error"), HebbsegError):
            raise said from None
        name = str(first["loc"][0])
        described = Settings.model_fields[name].description
        about = f" ({described})" if described else ""
        raise HebbsegError(f"Option {name}={first['input']!r}{about}: {first['msg']}.") from None
