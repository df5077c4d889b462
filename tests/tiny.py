"""Trainings small enough for tests: seconds, not results."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hebbseg.cli import app as cli
from hebbseg.data.cases import ClassInfo
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.networks.unet import UNet
from hebbseg.segmenter import Segmenter
from tests.data.trees import picture, save

GLANDS = "phantom:glands?n=12&size=32"
TINY = (
    "--size",
    "32x32",
    "--features",
    "4,8",
    "--updates",
    "4",
    "--set",
    "labelled_batch=2",
    "--set",
    "pretrain_epochs=1",
)
TWO_CLASSES = (ClassInfo(index=0, value=0, name="background"), ClassInfo(index=1, value=255, name="foreground"))


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Runs the command line in this process; gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["hebbseg", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code or 0)


def tiny_segmenter(
    *,
    dims: int = 2,
    channels: int = 3,
    size: tuple[int, ...] | None = (16, 16),
    normalize: str = "unit",
    **options: Any,
) -> Segmenter:
    """Untrained, but it predicts: a mask that depends on the image."""
    classes = options.pop("classes", TWO_CLASSES)
    seed = options.pop("seed", 0)
    network_options = {
        "spatial_dims": dims, "in_channels": channels, "out_channels": len(classes), "features": [4, 8], "dropout": None,
        "norm": "instance",
    }  # fmt: skip
    return Segmenter(
        network=UNet(**network_options, seed=seed).eval(),
        network_options=network_options,
        preprocessing=Preprocessing(size=size, normalize=normalize),
        classes=classes,
        **options,
    )


def bright_folder(root: Path, names: Sequence[str] = "abcdef", masks: Sequence[str] | None = None) -> Path:
    """Colour pictures 24 × 32 of noise with a bright square, which is the mask (0/255)."""
    for seed, name in enumerate(names):
        image = picture(seed, 24, 32, 3) // 3
        mask = np.zeros((24, 32), np.uint8)
        mask[4 + seed : 16 + seed % 5, 6:20] = 255
        image[mask > 0] += 150
        save(root / "images" / f"{name}.png", image)
        if masks is None or name in masks:
            save(root / "masks" / f"{name}.png", mask)
    return root
