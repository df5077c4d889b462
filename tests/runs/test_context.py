"""What a run derives from its settings: augmentation, and test-time augmentation of the model."""

from typing import Any

import pytest
import torch
from lightning_fabric import Fabric

from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.runs.context import RunContext, make_augment
from hebbseg.runs.dataset import draw_split, list_cases, open_dataset


@pytest.mark.parametrize(
    "name, dims, cutmix, expected",
    [
        ("full", 2, "auto", 0.5),
        ("full", 3, "auto", 0.0),
        ("full", 3, 0.3, 0.3),
        ("flips-rotations", 2, "auto", 0.0),
        ("flips-rotations", 2, 0.7, 0.7),
        ("none", 2, 0.7, 0.7),
    ],
)
def test_probability_of_cutmix(name: Any, dims: int, cutmix: Any, expected: float) -> None:
    augment = make_augment(name, dims, cutmix=cutmix)
    assert augment is not None and augment.cutmix == expected


def test_cutmix_alone_moves_nothing_else() -> None:
    assert make_augment("none", 2, cutmix="auto") is None
    augment = make_augment("none", 2, cutmix=1.0)
    assert augment is not None
    images = torch.rand(1, 3, 16, 16)
    seen, _ = augment.weak(images, None, torch.Generator())
    assert torch.equal(seen, images)


@pytest.mark.parametrize("options, expected", [({}, "flips"), ({"tta": "none"}, "none"), ({"tta": "flips+rot"}, "flips+rot")])
def test_images_are_tested_with_flips_by_default(options: dict[str, Any], expected: str) -> None:
    assert context("phantom:glands?n=8&size=32", **options).tta == expected


def test_volumes_are_tested_without_flips_by_default() -> None:
    assert context("phantom:atrium?n=8&size=32").tta == "none"


def context(data: str, **options: Any) -> RunContext:
    settings = make_settings(data, {"labelled": "2", "size": "native", "features": (4, 8)} | options)
    listed = list_cases(settings.data)
    dataset = open_dataset(settings.data, Quiet())
    split = draw_split(settings, listed)
    return RunContext(settings, dataset, split.training, Fabric(accelerator="cpu", devices=1))
