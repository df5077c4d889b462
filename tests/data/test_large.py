"""Training on patches that are read from the files of large images."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch

from hebbseg.config import make_settings
from hebbseg.data.batches import Batches
from hebbseg.data.cases import IGNORE
from hebbseg.data.inspect import examine
from hebbseg.data.io import tiles
from hebbseg.data.large import LargeCases
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources import open_source
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import TrainingCases
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import case_metrics
from hebbseg.runs.dataset import list_cases
from hebbseg.runs.large_cases import measure_large
from hebbseg.segmenter import Segmenter
from tests.data.pyramids import write_ome_tiff, write_ome_zarr
from tests.data.trees import picture
from tests.tiny import command, tiny_segmenter

NATIVE: dict[str, Any] = {"size": "native", "patch": "16x16", "features": "4,8", "updates": 2, "pretrain_epochs": 1}


def slide(seed: int, height: int = 96, width: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Bright background with tissue on the left quarter, in which a dark square is the mask (0/255)."""
    image = np.full((height, width, 3), 240, np.uint8) + picture(seed, height, width, 3) // 64
    image[:, : width // 4] = 100 + picture(seed, height, width // 4, 3) // 3
    mask = np.zeros((height, width), np.uint8)
    mask[10 + seed : 60, 4:24] = 255
    image[mask > 0] //= 2
    return image, mask


def slides(root: Path, names: str = "abcd", **mask_options: Any) -> Path:
    for seed, name in enumerate(names):
        image, mask = slide(seed)
        write_ome_tiff(root / "images" / f"{name}.ome.tif", image)
        (root / "masks").mkdir(exist_ok=True)
        tifffile.imwrite(root / "masks" / f"{name}.tif", mask, tile=(32, 32), compression="zlib", **mask_options)
    return root


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "LARGE_PIXELS", 1000)
    monkeypatch.setattr(tiles, "BAND_PIXELS", 128 * 10)


def opened(root: Path, **options: Any) -> FileSource:
    source = open_source(root, **options)
    assert isinstance(source, FileSource)
    return source


def stores(root: Path, monkeypatch: pytest.MonkeyPatch, normalize: str = "zscore") -> list[CaseStore]:
    """The same cases, read whole and in parts."""
    found = []
    for limit in (10**9, 1000):
        monkeypatch.setattr(tiles, "LARGE_PIXELS", limit)
        source = opened(root)
        names = [case.id for case in source.cases]
        preprocessing = Preprocessing(size=None, normalize=normalize)
        store = CaseStore(source=source, preprocessing=preprocessing, images=names, masks=names, in_parts=True)
        assert store.is_large(names[0]) == (limit == 1000)
        found.append(store)
    return found


@pytest.mark.parametrize("normalize", ["zscore", "unit"])
def test_patches_are_those_of_the_whole_image(normalize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, parts = stores(slides(tmp_path, "ab"), monkeypatch, normalize)
    generator = np.random.default_rng(0)
    for _ in range(20):
        start = [int(generator.integers(-20, side)) for side in (96, 128)]
        a, b = whole.patch("a", start, (24, 40)), parts.patch("a", start, (24, 40))
        assert a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a.float(), b.float(), atol=2e-3)
        assert torch.equal(whole.mask_patch("b", start, (24, 40), IGNORE), parts.mask_patch("b", start, (24, 40), IGNORE))
    assert whole.shape("a") == parts.shape("a") == (96, 128)
    assert whole.fitting((200, 50), ["a", "b"]) == parts.fitting((200, 50), ["a", "b"])
    assert all(torch.equal(x, y) for x, y in zip(whole.foreground("a"), parts.foreground("a"), strict=True))
    assert parts.annotated("a") is None


def test_positions_of_annotated_pixels(tmp_path: Path, small_is_large: None):
    root = slides(tmp_path, "a")
    mask = tifffile.imread(root / "masks" / "a.tif")
    mask[:40] = 128
    tifffile.imwrite(root / "masks" / "a.tif", mask, tile=(32, 32), compression="zlib")
    source = opened(root, ignore=128)
    found, annotated = LargeCases(source, Preprocessing(size=None, normalize="unit"), source.cases).points("a")
    assert annotated is not None
    assert len(found) == 1 and all(mask[y, x] == 255 for y, x in found[0].tolist()) and len(found[0]) == (mask == 255).sum()
    assert all(mask[y, x] != 128 for y, x in annotated.tolist())
    # Evenly spaced: not more than twice as many in one half as in the other.
    assert 4096 < len(annotated) <= 8192 or len(annotated) == (mask != 128).sum()


def test_background_is_drawn_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, parts = stores(slides(tmp_path, "ab"), monkeypatch)
    assert parts.is_background("a", (10, 60), (16, 16)) and not parts.is_background("a", (10, 10), (16, 16))
    training = TrainingCases(labelled=("a", "b"), unlabelled=())
    shares = {}
    for background in (1.0, 0.1):
        options = {"steps": 5, "labelled_batch": 2, "unlabelled_batch": 0, "image_batch": 100, "patch": (16, 16)}
        batches = Batches(store=parts, training=training, background=background, **options)
        images = batches.images_only(0)
        assert torch.equal(images, batches.images_only(0))  # a function of the number of the batch
        shares[background] = float((images.std(dim=(1, 2, 3)) < 0.1).float().mean())
        batch = batches.batch(3)
        assert batch.images.shape == (2, 3, 16, 16) and batch.masks.shape == (2, 16, 16)
    assert shares[1.0] > 0.5 and shares[0.1] < 0.5 * shares[1.0]


def test_inspection_in_parts_finds_what_that_of_the_whole_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = slides(tmp_path, "abc")
    tifffile.imwrite(root / "masks" / "c.tif", np.zeros((40, 40), np.uint8), tile=(32, 32))
    found = []
    for limit in (10**9, 1000):
        monkeypatch.setattr(tiles, "LARGE_PIXELS", limit)
        found.append(examine(opened(root)))
    whole, parts = found
    assert [str(each) for each in whole.problems] == [str(each) for each in parts.problems]
    assert any("mask has size 40×40, but image c.ome.tif has size 96×128" in str(each) for each in parts.problems)
    for a, b in zip(whole.facts, parts.facts, strict=True):
        assert (a.shape, a.pixels, a.ignored, a.dtype) == (b.shape, b.pixels, b.ignored, b.dtype)
        assert (a.area is None and b.area is None) or np.array_equal(a.area, b.area)
    assert [case.has_mask for case in parts.usable] == [True, True, False]


def test_metrics_in_parts_are_those_of_the_whole(tmp_path: Path, small_is_large: None):
    root = slides(tmp_path, "ab")
    source = opened(root)
    segmenter = tiny_segmenter(size=None, window=(32, 32), normalize="zscore")
    for case in source.cases:
        found = measure_large(segmenter, source, case, (0.5, 0.5))
        assert found is not None
        prediction, target = segmenter.predict(np.asarray(source.image(case))) > 0, source.mask(case)
        expected = case_metrics(prediction.astype(np.uint8), target, 2, (0.5, 0.5), case=case.id)
        assert found.rows == expected and 0 < found.rows[0]["n_prediction"] < target.size


def test_training_predicts_and_tests_in_parts(tmp_path: Path, small_is_large: None, monkeypatch: pytest.MonkeyPatch):
    root = slides(tmp_path / "data", "abcd")

    def refuse(self: FileSource, case: object) -> np.ndarray:
        raise AssertionError("a large image or mask was read whole")

    monkeypatch.setattr(FileSource, "image", refuse)
    monkeypatch.setattr(FileSource, "mask", refuse)
    Segmenter.train(root, tmp_path / "run", quiet=True, labelled_batch=2, **NATIVE)
    with (tmp_path / "run" / "metrics.csv").open(encoding="utf-8") as file:
        assert 0 <= float(next(csv.DictReader(file))["dice"]) <= 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["unit"] == "mm"
    assert (tmp_path / "run" / "figures" / "test.png").is_file()
    monkeypatch.chdir(tmp_path)  # check writes a contact sheet
    assert command(monkeypatch, "check", root) == 0
    evaluation = ("evaluate", tmp_path / "run", root, "-o", tmp_path / "evaluation")
    assert command(monkeypatch, *evaluation) == 0
    with pytest.raises(HebbsegError, match=r"96×128 pixels is read in patches only"):
        Segmenter.train(root, tmp_path / "run2", quiet=True, labelled_batch=2, init="superpix", **NATIVE)


@pytest.mark.parametrize("zarr", [True, False])
def test_training_on_a_level(zarr: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiles, "LARGE_PIXELS", 1000)
    for seed, name in enumerate("abc"):
        image, mask = slide(seed)
        if zarr:
            write_ome_zarr(tmp_path / "data" / "images" / f"{name}.ome.zarr", np.moveaxis(image, -1, 0))
            write_ome_zarr(tmp_path / "data" / "masks" / f"{name}.ome.zarr", mask)
        else:
            write_ome_tiff(tmp_path / "data" / "images" / f"{name}.ome.tif", image)
            (tmp_path / "data" / "masks").mkdir(exist_ok=True)
            tifffile.imwrite(tmp_path / "data" / "masks" / f"{name}.tif", mask[::2, ::2])  # of the level
    source = list_cases(make_settings(tmp_path / "data", {"level": 1}).data)
    assert isinstance(source, FileSource)
    assert {header.shape for header in source.headers.values()} == {(48, 64)}  # type: ignore[union-attr]
    assert all(np.allclose(case.spacing_mm or (), 0.001) for case in source.cases)
    assert source.mask(source.cases[0]).shape == (48, 64)
    Segmenter.train(tmp_path / "data", tmp_path / "run", quiet=True, labelled_batch=2, level=1, **NATIVE)
    with pytest.raises(HebbsegError, match="has no pyramid level 7; its levels are 0"):
        Segmenter.train(tmp_path / "data", tmp_path / "run7", quiet=True, labelled_batch=2, level=7, **NATIVE)


def test_a_level_of_generated_images():
    with pytest.raises(HebbsegError, match="options for reading files do not apply to generated data"):
        list_cases(make_settings("phantom:glands", {"level": 1}).data)
