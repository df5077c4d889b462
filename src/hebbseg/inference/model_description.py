"""The configuration in a model file, validated before the network is built."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from hebbseg.config import NetworkSettings
from hebbseg.config.fields import Section
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.image_file import Axes
from hebbseg.data.io.limits import VARIABLE, max_pixels
from hebbseg.data.io.orientation import is_orientation
from hebbseg.errors import HebbsegError
from hebbseg.inference.streaming import Blend
from hebbseg.networks.factory import UNET, as_described, check_trusted

Tta = Literal["none", "flips", "flips+rot"]
Side = Annotated[int, Field(ge=1, le=2**20)]
Sides = Annotated[tuple[Side, ...], Field(min_length=2, max_length=3)]
Part = Annotated[int, Field(ge=0, le=255)]
MAX_CLASSES = 256  # class indices are bytes
MAX_CHANNELS = 2**12
MAX_LEVELS = 12


def _orientation(value: str) -> str:
    if not is_orientation(value):
        raise ValueError("three letters, of R or L, A or P, and S or I, are allowed")
    return value


class _Class(Section):
    index: Annotated[int, Field(ge=0, lt=MAX_CLASSES)]
    value: Annotated[int, Field(ge=-(2**31), lt=2**32)] | Annotated[tuple[Part, ...], Field(min_length=3, max_length=3)]
    name: Annotated[str, Field(max_length=1000)] = ""
    colour: tuple[Part, Part, Part] | None = None


class _Preprocessing(Section):
    size: Sides | None
    normalize: Literal["unit", "zscore"]
    spacing: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=2, max_length=3)] | None = None


class _Network(Section):
    name: Annotated[str, Field(max_length=200)]
    spatial_dims: Literal[2, 3]
    in_channels: Annotated[int, Field(ge=1, le=MAX_CHANNELS)]
    out_channels: Annotated[int, Field(ge=2, le=MAX_CLASSES)]
    options: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _unet_options(self) -> Self:
        """Check the options of the UNet as the settings of a run are checked."""
        if self.name != UNET:
            return self
        options: dict[str, Any] = dict(self.options)
        if options.pop("seed", None) is not None:
            raise ValueError("options.seed is set, but a model has no seed")
        rates = options.pop("dropout", None)
        for rate in rates if isinstance(rates, list) else [rates]:
            found = NetworkSettings(dropout=rate, **options)
            if len(found.features) > MAX_LEVELS:
                raise ValueError(f"options.features has {len(found.features)} levels; at most {MAX_LEVELS} are allowed")
        return self


class ModelDescription(Section):
    """The metadata of a model file."""

    version: str = ""
    network: dict[str, Any]
    preprocessing: dict[str, Any]
    classes: Annotated[tuple[_Class, ...], Field(min_length=2, max_length=MAX_CLASSES)]
    window: Sides | None
    tta: Tta
    blend: Blend = "gaussian"
    axes: Axes = "stored"
    borders: bool = False
    orientation: Annotated[str, AfterValidator(_orientation)] | None = None

    @classmethod
    def of(cls, metadata: Mapping[str, Any], *, trust: bool) -> Self:
        """Validate the metadata, also of version 0.1. Unless ``trust``, only our UNet and MONAI's networks are accepted."""
        given = dict(metadata)
        described = as_described(given.get("network", {}))
        if not trust:
            check_trusted(described)
        former = given.pop("preparation", None)
        prepared = given.get("preprocessing") or former
        if isinstance(prepared, dict) and "normalise" in prepared:
            prepared = {"normalize": prepared["normalise"]} | {k: v for k, v in prepared.items() if k != "normalise"}
        try:
            network = _Network.model_validate(described)
            preprocessing = _Preprocessing.model_validate(prepared)
            known = {key: value for key, value in given.items() if key in cls.model_fields}
            found = cls.model_validate(
                known | {"network": network.model_dump(), "preprocessing": preprocessing.model_dump(mode="json")}
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "network"
            raise HebbsegError(
                f"the model's configuration is invalid ({place}: {first['msg']}, found {str(first['input'])[:100]}). "
                "Use an intact copy, or train the model again."
            ) from None
        found._check_sizes(network)
        return found

    @property
    def class_infos(self) -> tuple[ClassInfo, ...]:
        return tuple(ClassInfo(**info.model_dump()) for info in self.classes)

    def _check_sizes(self, network: _Network) -> None:
        if [info.index for info in self.classes] != list(range(network.out_channels - self.borders)):
            raise HebbsegError(
                f"the model has {network.out_channels} outputs, but its classes have the indices "
                f"{[info.index for info in self.classes]}. Use an intact copy, or train the model again."
            )
        values = [info.value for info in self.classes]
        if twice := [value for value in values if values.count(value) > 1]:
            raise HebbsegError(
                f"two of the model's classes have the value {twice[0]}. Use an intact copy, or train the model again."
            )
        spacing = self.preprocessing["spacing"]
        if spacing is not None and (len(spacing) != network.spatial_dims or self.preprocessing["size"] is not None):
            raise HebbsegError(f"the model's spacing {tuple(spacing)} does not fit its size or its number of axes.")
        for name, sides in (("size", self.preprocessing["size"]), ("window", self.window)):
            if sides is None:
                continue
            if len(sides) != network.spatial_dims:
                raise HebbsegError(f"the model's {name} {tuple(sides)} has another number of axes than its network.")
            if math.prod(sides) * network.in_channels > max_pixels():
                raise HebbsegError(
                    f"the model's {name} {tuple(sides)} is larger than {VARIABLE} allows ({max_pixels()}). Set {VARIABLE} to a "
                    "larger number if you trust the model."
                )
