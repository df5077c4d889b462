"""The settings of data, network, stage 2 and hardware, with their defaults and descriptions; stage 1: `pretrain`."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, ValidationInfo, field_validator

from hebbseg.config.fields import (
    Accelerator,
    Augmentation,
    BatchSize,
    Kernels,
    Options,
    Section,
    Sizes,
    Spacings,
    Strides,
    Text,
    as_decimals,
    as_levels,
    as_numbers,
    as_text,
    flat_name,
    none_as_word,
)
from hebbseg.errors import HebbsegError

UNLIMITED_UPDATES = 10**6
"""Updates of a run with a time budget and no number of updates: the budget ends it."""

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


class DataSettings(Section):
    """Data source, split and preprocessing."""

    source: str = Field(description="folder, zip archive, or NAME:PATH such as glas:GlaS/", **flat_name("data"))
    labelled: Text = Field(
        "100%",
        description="labelled training images whose masks are used: a share (10%, rounded up) or a number (8); the others "
        "count as unlabelled",
    )
    select: Literal["random", "coverage", "typical", "facility"] = Field(
        "random",
        description="how the labelled training images are chosen; other than random: by descriptors of the training images, "
        "spread over patients (see docs/how-to/next.md)",
    )
    protocol: Literal["few-label", "paper", "selection"] = Field(
        "few-label",
        description="evaluation protocol; few-label: one test set, no validation set, final weights; paper: cross-validation, "
        "weights with the best validation Dice; selection: cross-validation within a published training set, for tuning",
    )
    folds: int | None = Field(
        None, description="number of cross-validation folds; default: 10 (volumes: 5) for paper, 5 for selection"
    )
    folds_by: Literal["grouped", "images"] = Field(
        "grouped",
        description="unit of cross-validation folds; grouped: all images of a patient are in the same fold; images: each image "
        "on its own, so a patient may be in training and test set (folds=images is short for this)",
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
    mask_threshold: float | None = Field(
        None, description="smallest mask value that counts as foreground, for masks with soft edges"
    )
    label_map: str | None = Field(None, description="classes and their mask values ('background=0;gland=255'), or a JSON file")
    ignore: Annotated[str | None, BeforeValidator(as_text)] = Field(
        None,
        description="mask value (255) or color ('#808080') of pixels that are not annotated; losses and metrics leave them out",
    )
    instances: bool | None = Field(None, description="mask values are object ids: all values above 0 form one foreground class")
    borders: bool = Field(
        False,
        description="learn the borders of objects as a class of their own, so that --objects separates touching ones; objects "
        "are the object ids of the masks (--instances), otherwise connected areas",
    )
    images: str | None = Field(None, description="folder of the images in DATA, by name or path, if it is not recognized")
    masks: str | None = Field(
        None,
        description="folder of the masks in DATA, by name or path, or the ending of their names, if they are not recognized or "
        "not unique; none: no masks",
    )
    size: Annotated[Sizes | Literal["auto", "native"], BeforeValidator(as_numbers)] = Field(
        "auto",
        description="size of images in training (predicted masks and metrics have the original size); auto: in 2D, the "
        "smallest that keeps the labelled masks (see hebbseg plan); native (no resizing) in 3D and for fine detail",
    )
    spacing: Annotated[Spacings | Literal["auto", "native"], BeforeValidator(as_decimals)] = Field(
        "auto",
        description="spacing in mm to which images are resampled in training and prediction, one number or one per axis "
        "(predicted masks and metrics have the original grid); auto: the median, where spacings differ by more than 10 %; "
        "native: no resampling",
    )
    normalize: Literal["auto", "unit", "zscore"] = Field(
        "auto", description="intensity normalization; auto: zscore, per image and channel"
    )
    patch: Annotated[Sizes | Literal["auto", "none"], BeforeValidator(as_numbers)] = Field(
        "auto",
        description="size of training patches and of the sliding window; auto: up to 96x96x80 for volumes; up to 256x256 for "
        "images that are not resized, else none",
    )
    patch_foreground: float = Field(
        0.5,
        ge=0,
        le=1,
        description="fraction of labelled patches around a random foreground pixel; the others are uniform",
    )
    patch_background: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of the patches kept that show nothing but bright or dark background, in images of more than "
        "4096x4096 pixels; the others are drawn again",
    )
    level: int = Field(0, ge=0, description="level of OME-TIFF and OME-Zarr pyramids to train on; 0 is the largest")
    window_blend: Literal["gaussian", "constant"] = Field(
        "gaussian", description="weight of the pixels of a sliding window where windows overlap (by half)"
    )


class NetworkSettings(Section):
    """Network architecture."""

    name: str = Field(
        "unet",
        description="network: unet, or the import path of a class or function such as monai.networks.nets.DynUNet; "
        "network_options.NAME=VALUE sets its arguments",
        **flat_name("network"),
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="keyword arguments of the network factory, such as network_options.init_filters=16",
        **flat_name("network_options"),
    )
    features: Annotated[Sizes, BeforeValidator(as_numbers)] = Field(
        (16, 32, 64, 128, 256),
        min_length=2,
        description="channels of each level of the UNet; if not given, small images have fewer levels",
    )
    strides: Annotated[Strides | Literal["auto", "none"], BeforeValidator(as_levels)] = Field(
        "auto",
        description="pooling of the UNet from each level to the next, per axis, such as 2x2x1,2x2x2; auto: 1 along axes more "
        "than twice as coarse as the finest; none: 2 along every axis",
    )
    kernels: Annotated[Kernels | Literal["auto", "none"], BeforeValidator(as_levels)] = Field(
        "auto",
        description="kernel size of each level of the UNet, per axis, such as 3x3x1,3x3x3,3x3x3; auto: 1 along axes more than "
        "twice as coarse as the finest; none: 3 along every axis",
    )
    norm: Literal["batch", "instance", "group", "none"] = Field("group", description="normalization layer")
    dropout: Annotated[float | None, BeforeValidator(none_as_word)] = Field(
        None,
        ge=0,
        lt=1,
        description="dropout rate of all encoder levels; default: 0.05 to 0.5 from the first to the last level",
    )


class FinetuneSettings(Section):
    """Stage 2: supervised or semi-supervised fine-tuning, and test."""

    method: str = Field(
        "auto",
        description="fine-tuning method: supervised, em, mean-teacher, uamt, cct, cps, urpc, dtc, fixmatch, unimatch or bcp; "
        "auto: supervised for half of the training, at least 500 updates, then FixMatch with a teacher; supervised only if all "
        "training images are labelled and their masks annotated everywhere",
    )
    method_options: Options = Field(
        default_factory=dict,
        description="options of the method, such as method_options.weight=5; --help-method lists them",
    )
    updates: int = Field(
        2000,
        ge=1,
        description="optimizer steps of stage 2; with a time budget, by default as many as fit into it",
    )
    epochs: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(none_as_word)] = Field(
        None, description="length of stage 2 in passes over the labelled images, instead of updates"
    )
    labelled_batch: BatchSize = Field(
        "auto", description="labelled images per update; auto: 4 (volumes: 2), fewer for larger images"
    )
    unlabelled_batch: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="unlabelled images per update, if the method uses them; auto: that of labelled_batch=auto"
    )
    unlabelled_pool: Literal["all", "unlabelled"] = Field(
        "all",
        description="images drawn without their masks: all training images, or only the unlabelled and partly annotated ones",
    )
    optimizer: Literal["sgd", "adamw"] = Field("adamw", description="optimizer of fine-tuning")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd")
    learning_rate: float = Field(2e-3, gt=0, description="peak learning rate")
    encoder_rate: float = Field(1.0, ge=0, description="learning rate of the encoder, relative to learning_rate")
    weight_decay: float = Field(1e-2, ge=0, description="weight decay of convolution weights")
    schedule: Literal["cosine", "poly", "step", "constant"] = Field("cosine", description="learning rate schedule")
    warm_up: float = Field(0.05, ge=0, lt=1, description="share of the updates with linear learning rate warm-up")
    ema: float = Field(0.99, ge=0, lt=1, description="decay of the exponential moving average of the weights; 0 disables it")
    clip: Annotated[float | None, BeforeValidator(none_as_word)] = Field(5.0, gt=0, description="maximum gradient norm")
    loss: Literal["dice+ce", "dice"] = Field("dice+ce", description="supervised loss")
    augment: Augmentation = Field(
        "full",
        description="data augmentation; flips-rotations: flips and rotations by 90 degrees; full: also free rotation, scaling, "
        "elastic deformation and intensity",
    )
    cutmix: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        "auto",
        description="probability that a box of a labelled image is replaced by that of another labelled image, with its mask; "
        "auto: 0.5 for images with augment=full, else 0",
    )
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = Field(
        "auto",
        description="floating-point precision of stage 2: 32-true, bf16-mixed or 16-mixed; auto: bf16-mixed if the device "
        "computes in bfloat16, else 32-true",
    )
    time_budget_s: float | None = Field(
        None,
        gt=0,
        description="time limit in seconds for the whole command, test included; stage 1 gets at most 15 % of it, and stage 2 "
        "the rest; if updates is given too, whichever ends first",
    )
    validate_every: int = Field(
        50, ge=1, description="validation interval in updates (in epochs if epochs is set), if there is a validation set"
    )
    patience: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(none_as_word)] = Field(
        10, description="early stopping: number of validations without improvement; none disables it"
    )
    tta: Literal["auto", "none", "flips", "flips+rot"] = Field(
        "auto",
        description="test-time augmentation; flips: mean over all flips; flips+rot: also over 90-degree rotations; auto: flips "
        "for images, none for volumes, whose prediction takes eight times as long with it",
    )
    metrics_grid: Literal["original", "training"] = Field(
        "original",
        description="pixels of metrics; original: those of the files, in mm where the spacing is known; training: those of the "
        "size used in training",
    )

    def in_updates(self, *, labelled: int, batch: int) -> Self:
        """Return the settings with epochs converted to updates, for this number of labelled images and batch size."""
        if self.epochs is None:
            return self
        per_epoch = max(1, math.ceil(labelled / batch))
        lengths = {"updates": self.epochs * per_epoch, "validate_every": self.validate_every * per_epoch, "epochs": None}
        return self.model_copy(update=lengths)

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
