"""The settings of each part of a run, with their defaults and descriptions."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from hebbseg.errors import HebbsegError

OLD_OPTIONS = {"unimatch": {"earned": "dice_gated"}}
"""Method → former names of its options (version 0.1), which are still accepted."""


def current_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a method under their current names."""
    names = OLD_OPTIONS.get(method, {})
    for old, new in names.items():
        if old in options and new in options:
            raise HebbsegError(f"Method {method}: options {old} and {new} are the same ({old} is the former name). Keep {new}.")
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
    """Give a setting another name outside its section, where its own would be ambiguous."""
    return {"json_schema_extra": {"flat": name}}


class DataSettings(Section):
    """Data source, split and preprocessing."""

    source: str = Field(description="folder, zip archive, or NAME:PATH such as glas:GlaS/", **_flat("data"))
    labelled: Text = Field(
        "100%",
        description="labelled training images whose masks are used: a share (10%, rounded up) or a number (8); the others "
        "count as unlabelled",
    )
    protocol: Literal["few-label", "paper", "selection"] = Field(
        "few-label",
        description="evaluation protocol; few-label: one test set, no validation set, final weights; paper: cross-validation, "
        "weights with the best validation Dice; selection: cross-validation within a published training set, for tuning",
    )
    folds: int | None = Field(
        None, description="number of cross-validation folds; default: 10 (volumes: 5) for paper, 5 for selection"
    )
    fold: int | None = Field(None, description="fold used as test set, from 0; default: 0, for selection seed modulo folds")
    test: Text = Field(
        "auto",
        description="test set: official (the published one), or a share of the labelled cases (0.2; 0 for none); "
        "auto: the fold, else official, else 0.2",
    )
    split_seed: int | None = Field(None, description="random seed of the split, if it differs from seed")
    group: str | None = Field(
        None,
        description="patient of each case, to keep patients together in the split: a CSV column (patients.csv:patient) or a "
        "regular expression whose first group is the patient ('^(p[0-9]+)_')",
    )
    mask_threshold: float | None = Field(None, description="mask values from this on are foreground, for masks with soft edges")
    label_map: str | None = Field(None, description="classes and their mask values ('background=0;gland=255'), or a JSON file")
    instances: bool | None = Field(None, description="mask values are object ids: all values above 0 form one foreground class")
    size: Annotated[Sizes | Literal["auto", "native"], BeforeValidator(_as_numbers)] = Field(
        "auto",
        description="size of images in training and in metrics (predicted masks have the original size); auto: 128x128 in 2D, "
        "whatever the aspect ratio; native (no resizing) in 3D",
    )
    normalize: Literal["auto", "unit", "zscore"] = Field(
        "auto", description="intensity normalization; auto: zscore, per image and channel"
    )
    patch: Annotated[Sizes | Literal["auto", "none"], BeforeValidator(_as_numbers)] = Field(
        "auto",
        description="size of training patches and of the sliding window; auto: up to 96x96x80 for volumes, none for images",
    )


class NetworkSettings(Section):
    """Network architecture."""

    name: str = Field(
        "unet",
        description="network: unet, or the import path of a class or function such as monai.networks.nets.DynUNet; "
        "network_options.NAME=VALUE sets its arguments",
        **_flat("network"),
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="keyword arguments of the network factory, such as network_options.init_filters=16",
        **_flat("network_options"),
    )
    features: Annotated[Sizes, BeforeValidator(_as_numbers)] = Field(
        (16, 32, 64, 128, 256), min_length=2, description="channels of each level of the UNet"
    )
    norm: Literal["batch", "instance", "group", "none"] = Field("group", description="normalization layer")
    dropout: Annotated[float | None, BeforeValidator(_none_as_word)] = Field(
        None,
        ge=0,
        lt=1,
        description="dropout rate of all encoder levels; default: 0.05 to 0.5 from the first to the last level",
    )


class PretrainSettings(Section):
    """Stage 1: weight initialization, by default Hebbian learning without masks."""

    init: Text = Field(
        "hebbian",
        description="weight initialization: hebbian, vae or superpix; random or random-rescaled (controls without learning); "
        "for hebbseg train also the pretrained.safetensors of hebbseg pretrain",
    )
    init_options: Options = Field(
        default_factory=dict,
        description="options of the initialization, such as init_options.steps=500; see docs/methods",
    )
    rule: str = Field("swta", description="Hebbian learning rule: swta, hpca or hebb")
    temperature: float = Field(0.1, gt=0, description="softmax temperature of SWTA; low values approach winner-take-all")
    rule_options: Options = Field(default_factory=dict, description="other parameters of the rule, such as rule_options.gain=2")
    transpose: Literal["tsa", "s", "tsa-literal", "off"] = Field("tsa", description="rule for transposed convolutions")
    part: Literal["encoder", "decoder", "all"] = Field("encoder", description="part of the UNet trained in stage 1")
    levels: Text = Field(
        "1-3",
        pattern=r"^(all|\d+|\d+-\d*)$",
        description="levels trained in stage 1: all, 2, 1-3 or 1-; level 0 has full resolution",
    )
    patterns: str = Field(
        "auto",
        description="layers trained in stage 1, by wildcard (conv_0*,down_*); auto: part and levels of the UNet, or all "
        "convolutions of another network except its output layer",
        **_flat("layers"),
    )
    layerwise: bool = Field(True, description="train one layer after another, each on the output of those trained before")
    unit_norm: bool = Field(True, description="normalize filters to unit norm during training")
    center: bool = Field(True, description="subtract the mean from the input of each layer")
    standardize: bool = Field(True, description="standardize activations before the competition")
    whiten: Annotated[float | None, BeforeValidator(_none_as_word)] = Field(
        1.0, gt=0, description="regularization of the whitening of input patches; lower is stronger, none disables it"
    )
    epochs: int = Field(2, ge=0, description="epochs of Hebbian learning, per layer if layerwise", **_flat("pretrain_epochs"))
    batch: BatchSize = Field("auto", description="batch size of stage 1; auto: 8 (volumes: 2)", **_flat("pretrain_batch"))
    rate: float = Field(1.0, gt=0, description="learning rate of Hebbian learning", **_flat("pretrain_rate"))
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="optimizer of Hebbian learning", **_flat("pretrain_optimizer"))
    settle: float = Field(
        0.002,
        ge=0,
        description="early stopping: relative weight change per epoch below which training of a layer ends",
    )

    def relevant(self) -> dict[str, Any]:
        """Return the settings that this initialization reads; all of them if it is not built in."""
        every = self.model_dump(mode="json")
        if self.init not in ("random", "random-rescaled", "vae", "superpix") and not self.init.endswith(".safetensors"):
            return every
        read = {"init", "init_options", "batch"} | (
            {"part", "levels", "transpose"} if self.init == "random-rescaled" else set()
        )
        return {name: value for name, value in every.items() if name in read}

    def layers(self, depth: int) -> tuple[str, ...] | None:
        """Return the modules of a UNet with ``depth`` levels that stage 1 trains; None for all."""
        if self.levels == "all":
            return None if self.part == "all" else (self.part,)
        parts = ("encoder", "decoder") if self.part == "all" else (self.part,)
        return tuple(f"{part}.level{level}" for part in parts for level in self._levels_of(part, depth))

    def _levels_of(self, part: str, depth: int) -> list[int]:
        existing = depth - (part == "decoder")  # the decoder has no level at the bottleneck
        first, dash, last = self.levels.replace("all", "0-").partition("-")
        end = int(last or existing - 1) if dash else int(first)
        return list(range(int(first), min(end + 1, existing)))


class FinetuneSettings(Section):
    """Stage 2: supervised or semi-supervised fine-tuning, and test."""

    method: str = Field(
        "auto",
        description="fine-tuning method: supervised, em, mean-teacher, uamt, cct, cps, urpc, dtc, fixmatch, unimatch or bcp; "
        "auto: UniMatch with dice-gated pseudo-labels (weighted by the Dice on labelled images), or supervised if all "
        "training images are labelled",
    )
    method_options: Options = Field(
        default_factory=dict,
        description="options of the method, such as method_options.weight=5; --help-method lists them",
    )
    updates: int = Field(1000, ge=1, description="optimizer steps of stage 2")
    labelled_batch: BatchSize = Field("auto", description="labelled images per update; auto: 8 (volumes: 2)")
    unlabelled_batch: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="unlabelled images per update, if the method uses them; auto: 8 (volumes: 2)"
    )
    optimizer: Literal["sgd", "adamw"] = Field("adamw", description="optimizer of fine-tuning")
    learning_rate: float = Field(2e-3, gt=0, description="peak learning rate")
    encoder_rate: float = Field(1.0, ge=0, description="learning rate of the encoder, relative to learning_rate")
    weight_decay: float = Field(1e-2, ge=0, description="weight decay of convolution weights")
    schedule: Literal["cosine", "poly", "step", "constant"] = Field("cosine", description="learning rate schedule")
    warm_up: float = Field(0.05, ge=0, lt=1, description="share of the updates with linear learning rate warm-up")
    ema: float = Field(0.99, ge=0, lt=1, description="decay of the exponential moving average of the weights; 0 disables it")
    clip: Annotated[float | None, BeforeValidator(_none_as_word)] = Field(5.0, gt=0, description="maximum gradient norm")
    loss: Literal["dice+ce", "dice"] = Field("dice+ce", description="supervised loss")
    augment: bool = Field(True, description="data augmentation")
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="floating-point precision: 32-true, bf16-mixed or 16-mixed"
    )
    time_budget_s: float | None = Field(
        None,
        gt=0,
        description="time limit of stage 2 in seconds, besides updates; the learning rate schedule ends with the first of them",
    )
    validate_every: int = Field(50, ge=1, description="validation interval in updates, if there is a validation set")
    patience: int = Field(10, ge=1, description="early stopping: number of validations without improvement")
    tta: Literal["none", "flips", "flips+rot"] = Field("none", description="test-time augmentation")

    @field_validator("method_options")
    @classmethod
    def _current_names(cls, value: Options, info: ValidationInfo) -> Options:
        return current_options(info.data.get("method", ""), value)


class HardwareSettings(Section):
    """Devices, logging and checkpoints; results do not depend on them, up to rounding."""

    accelerator: Accelerator = Field("auto", description="device to use")
    devices: int = Field(1, ge=1, description="number of processes (devices) on this machine")
    num_nodes: int = Field(1, ge=1, description="number of machines")
    tensorboard: bool = Field(False, description="write TensorBoard events to RUN/tensorboard")
    checkpoint_every_s: float = Field(30.0, ge=0, description="seconds between checkpoints")
