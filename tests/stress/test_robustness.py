"""The defaults on what they were not chosen on: grey, 16 bits, five images, one mask, volumes. No NaN, no collapse."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch

from hebbseg import Segmenter
from tests.data.trees import save

SMALL = {"features": (4, 8, 16, 32), "updates": 3, "labelled_batch": 2, "unlabelled_batch": 2}


def spots(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """An image in 0 … 1, noise with bright boxes, and where these are."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(shape, bool)
    for _ in range(3):
        corner = [int(rng.integers(0, n - 8)) for n in shape]
        mask[tuple(slice(c, c + 8) for c in corner)] = True
    return np.clip(0.3 * rng.random(shape) + 0.5 * mask, 0, 1), mask


def grey(root: Path, count: int, masks: int) -> str:
    for n in range(count):
        image, mask = spots(n, 48, 40)
        save(root / "images" / f"{n}.png", (image * 255).astype(np.uint8))
        if n < masks:
            save(root / "masks" / f"{n}.png", mask.astype(np.uint8) * 255)
    return str(root)


def sixteen_bits(root: Path) -> str:
    """As cameras leave them: 12 bits used, a few hot pixels at the very top."""
    for n in range(8):
        image, mask = spots(n, 48, 40)
        counts = (image * 4095).astype(np.uint16)
        counts[n, n] = 65535
        for kind, array in (("images", counts), ("masks", mask.astype(np.uint8))):
            (root / kind).mkdir(parents=True, exist_ok=True)
            tifffile.imwrite(root / kind / f"{n}.tif", array)
    return str(root)


def data(kind: str, root: Path) -> tuple[str, dict]:
    if kind == "grey":
        return grey(root, 10, 10), {"labelled": "3"}
    if kind == "16 bits":
        return sixteen_bits(root), {"labelled": "3"}
    if kind == "five images":
        return grey(root, 5, 5), {"labelled": "2"}
    if kind == "five images, one mask":
        return grey(root, 5, 1), {"test": "0"}
    return "phantom:atrium?n=6&size=32", {"labelled": "1", "patch": (24, 24, 16), "size": "native", "pretrain_batch": 2}


def layers(out: Path) -> dict[str, dict]:
    return json.loads((out / "pretrain.json").read_text(encoding="utf-8"))


def collapsed(layer: dict) -> bool:
    """Few units win everything, or filters are copies of each other."""
    return layer["effective_units"] < 0.7 * layer["units"] or layer["cosine"] > 0.25


@pytest.mark.parametrize("kind", ["grey", "16 bits", "five images", "five images, one mask", "volumes, one mask"])
def test_the_default_survives(kind: str, tmp_path: Path) -> None:
    source, options = data(kind, tmp_path / "data")
    out = tmp_path / "run"
    segmenter = Segmenter.train(source, out, quiet=True, **({"size": (48, 48)} | SMALL | options))
    for name, value in segmenter.network.state_dict().items():
        assert torch.isfinite(value).all(), name
    assert layers(out), "the default has a first stage"
    for name, layer in layers(out).items():
        assert layer["moved"] > 0.1, f"{name} learned nothing"
        assert not collapsed(layer), f"{name}: {layer}"


def test_naive_competition_would_not(tmp_path: Path) -> None:
    """So the test above can fail: without what conditions the signals, every layer collapses on the same images."""
    source, options = data("grey", tmp_path / "data")
    naive = {"standardize": False, "whiten": None, "center": False}
    Segmenter.train(source, tmp_path / "run", quiet=True, **({"size": (48, 48)} | SMALL | options | naive))
    assert all(collapsed(layer) for layer in layers(tmp_path / "run").values())
