"""Loading models for prediction and evaluation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from hebbseg.config import Accelerator
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.inference.objects import ObjectOptions
from hebbseg.inference.predictor import Predictor, Tta


def object_options(method: str | None, min_size: int | None, fill_holes: bool | None) -> ObjectOptions | None:
    """Return how objects are found, or None without ``--objects``."""
    if method is None:
        for option, value in (("--min-size", min_size), ("--fill-holes", fill_holes)):
            if value is not None:
                raise HebbsegError(f"{option} applies to objects. Add --objects components or --objects watershed.")
        return None
    return ObjectOptions(method=method, min_size=min_size or 0, fill_holes=fill_holes is not False)


def load_models(
    paths: Sequence[Path], *, tta: str | None = None, accelerator: str | None = None, trust: bool = False
) -> list[Predictor]:
    """Load models onto the device; with ``tta`` None each keeps the test-time augmentation it was trained with."""
    for option, value, allowed in (("--tta", tta, get_args(Tta)), ("--accelerator", accelerator, get_args(Accelerator))):
        if value is not None and value not in allowed:
            raise HebbsegError(f"{option} {value!r} is unknown. {did_you_mean(value, allowed)}")
    segmenters = [Predictor.load(path, trust=trust) for path in paths]
    if tta is not None:
        segmenters = [replace(segmenter, tta=cast(Tta, tta)) for segmenter in segmenters]
    from hebbseg.training.distributed import available_fabric

    device = available_fabric(accelerator=accelerator or "auto", devices=1).device
    for segmenter in segmenters:
        segmenter.network.to(device)
    return segmenters
