"""The commands of docs/how-to/large-images.md run as they are written."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from hebbseg.data.io import tiles
from tests.data.pyramids import write_ome_tiff, write_ome_zarr
from tests.data.test_large import slide
from tests.tiny import command

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "large-images.md"
SHORT = ("--patch", "16x16", "--features", "4,8", "--updates", "2", "--set", "labelled_batch=2", "--set", "pretrain_epochs=1")


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tiles, "LARGE_PIXELS", 1000)
    for seed, name in enumerate("abc"):
        image, mask = slide(seed)
        write_ome_tiff(Path("slides", "images", f"{name}.ome.tif"), image)
        write_ome_tiff(Path("slides", "masks", f"{name}.ome.tif"), mask)
    image = slide(5)[0]
    write_ome_tiff(Path("slide.ome.tif"), image)
    write_ome_zarr(Path("slide.ome.zarr"), np.moveaxis(image, -1, 0))
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("hebbseg ")]
    assert len(lines) == 9
    for line in lines:
        arguments = shlex.split(line)[1:]
        assert command(monkeypatch, *arguments, *(SHORT if arguments[0] == "train" else ())) == 0, line
    assert tifffile.imread("masks_half/slide.ome.tif").shape == tifffile.imread("masks_um/slide.ome.tif").shape == (48, 64)
    whole = tifffile.imread("masks/slide.ome.tif")
    assert whole.shape == (96, 128)
    labels = tifffile.imread("objects/objects/slide.ome.tif")
    assert labels.dtype == np.uint16 and labels.shape == whole.shape
    assert Path("slide_metrics/object_metrics.csv").read_text(encoding="utf-8").count("\n") == 4  # header and three slides
    assert Path("objects/objects.csv").is_file() and Path("objects/geojson/slide.geojson").is_file()
    group = zarr.open_group("masks_zarr/slide.ome.zarr", mode="r")
    assert np.array_equal(group["0"][...], whole)
