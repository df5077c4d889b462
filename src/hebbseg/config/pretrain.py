"""The settings of stage 1."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from hebbseg.config.fields import Augmentation, BatchSize, Options, Section, Text, flat_name, none_as_word

HEBBIAN_AUTO = {"epochs": 2, "rate": 1.0, "optimizer": "sgd", "schedule": "linear"}
HPCA_EPOCHS = 50  # until |cos(filter, principal component)| ≥ 0.9: studies/results/convergence.csv
PRETEXT = ("vae", "superpix")
AUTO_INIT = "auto"
READ: dict[str, tuple[str, ...]] = {
    "random": (),
    "random-rescaled": ("part", "levels", "transpose"),
    **dict.fromkeys(PRETEXT, ("epochs", "rate", "optimizer", "schedule", "augment", "max_batches")),
}
"""Built-in initialization other than hebbian → settings that it reads, besides init, init_options and batch."""


class PretrainSettings(Section):
    """Stage 1: weight initialization, by default Hebbian learning without masks."""

    init: Text = Field(
        AUTO_INIT,
        description="weight initialization: hebbian, vae or superpix; random or random-rescaled (controls without learning); "
        "for hebbseg train also the pretrained.safetensors of hebbseg pretrain; auto: hebbian, or random if the time budget "
        "is too short for stage 1",
    )
    from_run: str | None = Field(
        None,
        description="continue from an earlier run (a folder), with new masks or images: its weights including the output "
        "layer, network settings and split; its test cases stay test cases",
    )
    init_options: Options = Field(
        default_factory=dict,
        description="options of the initialization, such as init_options.latent=16; see docs/reference/methods",
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
        **flat_name("layers"),
    )
    layerwise: bool = Field(True, description="train one layer after another, each on the output of those trained before")
    unit_norm: bool = Field(True, description="normalize filters to unit norm during training")
    center: bool = Field(True, description="subtract the mean from the input of each layer")
    standardize: bool = Field(True, description="standardize activations before the competition")
    whiten: Annotated[float | None, BeforeValidator(none_as_word)] = Field(
        1.0, gt=0, description="regularization of the whitening of input patches; lower is stronger, none disables it"
    )
    epochs: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="epochs of stage 1, per layer if layerwise; auto: 2 for hebbian (50 with rule=hpca), until the "
        "validation loss of the pretext task converges for vae and superpix",
        **flat_name("pretrain_epochs"),
    )
    batch: BatchSize = Field(
        "auto", description="batch size of stage 1; auto: that of labelled_batch=auto", **flat_name("pretrain_batch")
    )
    rate: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="learning rate of stage 1; auto: 1 for hebbian, 0.002 for vae and superpix",
        **flat_name("pretrain_rate"),
    )
    step: Literal["relative", "absolute"] = Field(
        "relative",
        description="size of a Hebbian step; relative: learning rate times the natural rate of each layer, so that one rate "
        "suits all layers; absolute: learning rate times the mean update",
        **flat_name("pretrain_step"),
    )
    optimizer: Literal["auto", "sgd", "adam", "adamw"] = Field(
        "auto",
        description="optimizer of stage 1; auto: sgd without momentum for hebbian, adamw for vae and superpix",
        **flat_name("pretrain_optimizer"),
    )
    schedule: Literal["auto", "linear", "cosine", "step", "constant"] = Field(
        "auto",
        description="learning rate schedule of stage 1; linear falls to a tenth; step: divided by 10 after each quarter; auto: "
        "linear for hebbian, cosine for vae and superpix",
        **flat_name("pretrain_schedule"),
    )
    augment: Augmentation = Field(
        "none", description="data augmentation in stage 1, as in augment", **flat_name("pretrain_augment")
    )
    max_batches: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(none_as_word)] = Field(
        250,
        description="maximum number of batches in an epoch of stage 1; none: an epoch always shows every image",
        **flat_name("pretrain_max_batches"),
    )
    restore_norms: bool = Field(
        True, description="after Hebbian learning, rescale filters to the norms of the random initialization"
    )
    settle: float = Field(
        0.002,
        ge=0,
        description="early stopping: relative weight change per epoch below which training of a layer ends; 0 disables it",
    )

    def of_hebbian(self) -> Self:
        """Return the settings with the values of ``auto`` for Hebbian learning."""
        auto = HEBBIAN_AUTO | ({"epochs": HPCA_EPOCHS} if self.rule == "hpca" else {})
        chosen = {name: value for name, value in auto.items() if getattr(self, name) == "auto"}
        return self.model_copy(update=chosen)

    def relevant(self) -> dict[str, Any]:
        """Return the settings that this initialization reads; all of them if it is not built in."""
        every = self.of_hebbian().model_dump(mode="json", exclude=None if self.from_run else {"from_run"})
        if self.init not in READ and not self.init.endswith(".safetensors"):
            return every
        kept = self.model_dump(mode="json") if self.init in PRETEXT else every
        read = {"init", "init_options", "from_run", "batch", *READ.get(self.init, ())}
        if self.init == "random-rescaled" and not self.restore_norms:
            return every  # its norms are those after Hebbian learning
        return {name: value for name, value in kept.items() if name in read}

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
