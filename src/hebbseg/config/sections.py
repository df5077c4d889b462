"""The settings of each part of a run, with their defaults and descriptions."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from hebbseg.errors import HebbsegError

OLD_OPTIONS = {"unimatch": {"earned": "dice_gated"}}
"""Method → how version 0.1 named its options; still accepted."""


def current_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method under their current names."""
    names = OLD_OPTIONS.get(method, {})
    for old, new in names.items():
        if old in options and new in options:
            raise HebbsegError(f"Method {method}: {old} is the former name of {new}. Give {new} alone.")
    return {names.get(name, name): value for name, value in options.items()}


def former_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method under the names they had in version 0.1."""
    names = {new: old for old, new in OLD_OPTIONS.get(method, {}).items()}
    return {names.get(name, name): value for name, value in options.items()}


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float | Path) else value


def _as_numbers(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*[,x×]\s*\d+)*\s*", value):
        return tuple(int(part) for part in re.split(r"[,x×]", value))
    return value


def _none_as_word(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() in ("none", "off") else value


Text = Annotated[str, BeforeValidator(_as_text)]
Sizes = tuple[Annotated[int, Field(ge=1)], ...]
BatchSize = Annotated[int, Field(ge=1)] | Literal["auto"]
Accelerator = Literal["auto", "cpu", "cuda", "gpu", "mps"]
Options = dict[str, float | int | str | bool]
AUTO_BATCH = {2: 8, 3: 2}  # by spatial dimensions


class Section(BaseModel):
    """A part of the settings. Frozen; an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _flat(name: str) -> dict[str, Any]:
    """The name a setting has outside its section, where its own would be ambiguous."""
    return {"json_schema_extra": {"flat": name}}


class DataSettings(Section):
    """Which images and masks there are, how they are split, and how they are preprocessed."""

    source: str = Field(description="folder, nnU-Net folder, or NAME:PATH", **_flat("data"))
    labelled: Text = Field("100%", description="labelled training images to use: a share (10%) or a number (8)")
    protocol: Literal["few-label", "paper", "selection"] = Field(
        "few-label",
        description="few-label: no validation masks; paper: folds, best validation Dice is kept; "
        "selection: folds of the training side of a published split",
    )
    folds: int | None = Field(None, description="number of cross-validation folds; the run tests on one of them")
    fold: int | None = Field(None, description="which fold to test on, from 0")
    test: Text = Field("auto", description="test cases: auto, official, or a share (0.2; 0 for none)")
    split_seed: int | None = Field(None, description="random seed of the split alone; default: seed")
    group: str | None = Field(None, description="keeps the cases of a patient together: column of a CSV, or a regex")
    mask_threshold: float | None = Field(None, description="mask values at or above this are foreground")
    label_map: str | None = Field(None, description="class of each mask value: background=0;gland=255")
    instances: bool | None = Field(None, description="mask values are object ids: every value above 0 is foreground")
    size: Annotated[Sizes | Literal["auto", "native"], BeforeValidator(_as_numbers)] = Field(
        "auto", description="images are resized to this; auto: 128×128, volumes native"
    )
    normalize: Literal["auto", "unit", "zscore"] = Field(
        "auto", description="intensity normalization; auto: zscore, per image and channel"
    )
    patch: Annotated[Sizes | Literal["auto", "none"], BeforeValidator(_as_numbers)] = Field(
        "auto", description="size of random training patches; auto: volumes only"
    )


class NetworkSettings(Section):
    """The network that is trained."""

    name: str = Field(
        "unet",
        description="unet, or the dotted name of a network factory, as in monai.networks.nets.DynUNet",
        **_flat("network"),
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="keywords of the network factory, as in network_options.init_filters=16",
        **_flat("network_options"),
    )
    features: Annotated[Sizes, BeforeValidator(_as_numbers)] = Field(
        (16, 32, 64, 128, 256), min_length=2, description="channels of each UNet level"
    )
    norm: Literal["batch", "instance", "group", "none"] = Field("group", description="normalization layer")
    dropout: Annotated[float | None, BeforeValidator(_none_as_word)] = Field(
        None,
        ge=0,
        lt=1,
        description="dropout rate of all encoder levels; default 0.05 … 0.5 from the first to the last",
    )


class PretrainSettings(Section):
    """Stage 1: weight initialization from unlabelled images, by default Hebbian learning."""

    init: Text = Field("hebbian", description="weight initialization, or a file of pre-trained weights")
    init_options: Options = Field(
        default_factory=dict,
        description="options of the initialization, as in init_options.steps=500; see docs/methods",
    )
    rule: str = Field("swta", description="Hebbian learning rule")
    temperature: float = Field(0.1, gt=0, description="temperature t of SWTA's softmax; small values approach one winner")
    rule_options: Options = Field(
        default_factory=dict, description="parameters of the rule besides the temperature, as in rule_options.gain=2"
    )
    transpose: Literal["tsa", "s", "tsa-literal", "off"] = Field("tsa", description="rule for transposed convolutions")
    part: Literal["encoder", "decoder", "all"] = Field("encoder", description="part of the network that learns")
    levels: Text = Field(
        "1-3", pattern=r"^(all|\d+|\d+-\d*)$", description="levels of it that learn, 0 is full size: all, 2, 1-3 or 1-"
    )
    patterns: str = Field(
        "auto",
        description="layers that learn, by wildcard, as in conv_0*,down_*; auto: part and levels of the UNet, all "
        "convolutions but the output layer of other networks",
        **_flat("layers"),
    )
    layerwise: bool = Field(True, description="train one layer after another, each on the output of the trained ones")
    unit_norm: bool = Field(True, description="keep filters at norm 1 while they learn")
    center: bool = Field(True, description="subtract the mean from the input of each layer")
    standardize: bool = Field(True, description="standardize activations before the competition")
    whiten: Annotated[float | None, BeforeValidator(_none_as_word)] = Field(
        1.0, gt=0, description="whitening of input patches; small values are strong, none turns it off"
    )
    epochs: int = Field(
        2, ge=0, description="epochs of Hebbian learning (for each layer if layerwise)", **_flat("pretrain_epochs")
    )
    batch: BatchSize = Field("auto", description="batch size of stage 1; auto: 8, or 2 volumes", **_flat("pretrain_batch"))
    rate: float = Field(1.0, gt=0, description="learning rate of Hebbian learning", **_flat("pretrain_rate"))
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="optimizer of Hebbian learning", **_flat("pretrain_optimizer"))
    settle: float = Field(
        0.002,
        ge=0,
        description="early stopping: a layer is done when an epoch changes its weights by less than this share",
    )

    def relevant(self) -> dict[str, Any]:
        """The settings that this initialization reads; all of them for one that we do not know."""
        every = self.model_dump(mode="json")
        if self.init not in ("random", "random-rescaled", "vae", "superpix") and not self.init.endswith(".safetensors"):
            return every
        read = {"init", "init_options", "batch"} | (
            {"part", "levels", "transpose"} if self.init == "random-rescaled" else set()
        )
        return {name: value for name, value in every.items() if name in read}

    def layers(self, depth: int) -> tuple[str, ...] | None:
        """The modules of a UNet of that many levels that learn; None is all of them."""
        if self.levels == "all":
            return None if self.part == "all" else (self.part,)
        parts = ("encoder", "decoder") if self.part == "all" else (self.part,)
        return tuple(f"{part}.level{level}" for part in parts for level in self._levels_of(part, depth))

    def _levels_of(self, part: str, depth: int) -> list[int]:
        there = depth - (part == "decoder")  # the deepest maps are the encoder's
        first, dash, last = self.levels.replace("all", "0-").partition("-")
        end = int(last or there - 1) if dash else int(first)
        return list(range(int(first), min(end + 1, there)))


class FinetuneSettings(Section):
    """Stage 2: fine-tuning on labelled images, alone or with a semi-supervised method."""

    method: str = Field(
        "auto",
        description="training method; auto: UniMatch with dice-gated pseudo-labels, or supervised if every image is labelled",
    )
    method_options: Options = Field(
        default_factory=dict,
        description="options of the method, as in method_options.weight=5; --help-method lists them",
    )
    updates: int = Field(1000, ge=1, description="optimizer steps")
    labelled_batch: BatchSize = Field("auto", description="labelled images per update; auto: 8, or 2 volumes")
    unlabelled_batch: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="unlabelled images per update, for methods that use them; auto: 8, or 2 volumes"
    )
    optimizer: Literal["sgd", "adamw"] = Field("adamw", description="optimizer of fine-tuning")
    learning_rate: float = Field(2e-3, gt=0, description="highest learning rate")
    encoder_rate: float = Field(1.0, ge=0, description="learning rate of the encoder, relative to learning_rate")
    weight_decay: float = Field(1e-2, ge=0, description="weight decay of convolution weights")
    schedule: Literal["cosine", "poly", "step", "constant"] = Field("cosine", description="learning rate schedule")
    warm_up: float = Field(0.05, ge=0, lt=1, description="share of the updates over which the learning rate rises from 0")
    ema: float = Field(0.99, ge=0, lt=1, description="decay of the exponential moving average that is kept; 0 for none")
    clip: Annotated[float | None, BeforeValidator(_none_as_word)] = Field(5.0, gt=0, description="maximum gradient norm")
    loss: Literal["dice+ce", "dice"] = Field("dice+ce", description="supervised loss")
    augment: bool = Field(True, description="augment training images")
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field("32-true", description="floating-point precision")
    time_budget_s: float | None = Field(None, gt=0, description="time limit in seconds; the schedule ends with it")
    validate_every: int = Field(50, ge=1, description="validation interval in updates, with validation cases")
    patience: int = Field(10, ge=1, description="early stopping: validations without improvement before training ends")
    tta: Literal["none", "flips", "flips+rot"] = Field("none", description="test-time augmentation")

    @field_validator("method_options")
    @classmethod
    def _current_names(cls, value: Options, info: ValidationInfo) -> Options:
        return current_options(info.data.get("method", ""), value)


class HardwareSettings(Section):
    """How a run is computed. Changes nothing in what is computed, up to rounding."""

    accelerator: Accelerator = Field("auto", description="device to use")
    devices: int = Field(1, ge=1, description="processes on this machine")
    num_nodes: int = Field(1, ge=1, description="machines that train together")
    tensorboard: bool = Field(False, description="also write TensorBoard events to the run folder")
    checkpoint_every_s: float = Field(30.0, ge=0, description="seconds between checkpoints")
