"""Peak memory and time of `hebbseg predict` for images larger than memory should be, each in a process of its own.

    python -m benchmarks.large_images tiff 4000          # a tiled, JPEG-compressed image of 4,000 × 4,000 pixels
    python -m benchmarks.large_images tiff 20000
    python -m benchmarks.large_images tiff 20000 --point # without the time of a UNet
    python -m benchmarks.large_images nii.gz 512         # a volume of 512³ voxels, int16; also mha

The image is generated in a temporary folder; the model is an untrained UNet with few features. Not part of ``make bench``,
as the large sizes take minutes. Linux only.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import SimpleITK as sitk
import tifffile
from rich.console import Console

from hebbseg.data.cases import ClassInfo
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.unet import UNet

TILE = 512
LIMIT_GB = 1.5
CLASSES = (ClassInfo(index=0, value=0, name="background"), ClassInfo(index=1, value=255, name="foreground"))
POINT = """
import sys, torch
from dataclasses import replace
from pathlib import Path
from hebbseg.inference.large_images import predict_large
from hebbseg.inference.predictor import Predictor
model, image, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
predictor = Predictor.load(model)
kind = torch.nn.Conv2d if predictor.spatial_dims == 2 else torch.nn.Conv3d
network = kind(predictor.in_channels, 2, 1)
network.spatial_dims, network.in_channels = predictor.spatial_dims, predictor.in_channels
predict_large([replace(predictor, network=network)], image, out / image.name, uncertainty=out / "uncertainty" / image.name)
"""


def tissue(row: int, column: int, size: int) -> np.ndarray:
    """Return a tile (TILE, TILE, 3) of a generated slide: blobs on a bright background."""
    rows, columns = np.ogrid[row : row + TILE, column : column + TILE]
    waves = np.sin(rows / 37) + np.sin(columns / 41) + np.sin((rows + columns) / 23)
    noise = np.random.default_rng((row, column)).normal(0, 12, (TILE, TILE))
    inside = (rows - size / 2) ** 2 + (columns - size / 2) ** 2 < (0.45 * size) ** 2
    gray = np.where(inside, 150 + 25 * waves + noise, 240 + noise / 6).clip(0, 255)
    return np.stack([gray, gray * 0.8, gray * 0.9], -1).astype(np.uint8)


def write_slide(path: Path, size: int) -> None:
    """Write a tiled, JPEG-compressed RGB TIFF."""

    def tiles() -> Iterator[np.ndarray]:
        for row in range(0, size, TILE):
            for column in range(0, size, TILE):
                yield tissue(row, column, size)

    tifffile.imwrite(
        path, tiles(), shape=(size, size, 3), dtype=np.uint8, tile=(TILE, TILE), compression="jpeg", photometric="rgb"
    )


def write_volume(path: Path, size: int) -> None:
    """Write a compressed volume of int16 with a bright ball in noise."""
    axis = (np.arange(size) - size / 2) ** 2
    volume = np.empty((size, size, size), np.int16)
    generator = np.random.default_rng(0)
    for z in range(size):
        ball = axis[z] + axis[:, None] + axis[None] < (size / 3) ** 2
        volume[z] = 300 * ball + generator.integers(0, 100, (size, size))
    if path.suffix == ".mha":
        sitk.WriteImage(sitk.GetImageFromArray(volume), str(path), useCompression=True)
    else:
        nibabel.save(nibabel.Nifti1Image(volume, np.diag([0.5, 0.5, 0.8, 1])), path)


def write_model(path: Path, *, dims: int, window: int) -> None:
    options = {"spatial_dims": dims, "in_channels": 3 if dims == 2 else 1, "out_channels": 2, "features": [2, 4]}
    options |= {"dropout": None, "norm": "group"}
    Predictor(
        network=UNet(**options, seed=0).eval(),
        network_options=options,
        preprocessing=Preprocessing(size=None, normalize="zscore"),
        classes=CLASSES,
        window=(window,) * dims,
    ).save(path)


def measured(arguments: list[str]) -> tuple[float, float, float]:
    """Run a command; return its peak resident memory in GB, its seconds and its seconds of processor time."""
    started = time.monotonic()
    process = subprocess.Popen(arguments, env=os.environ)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return usage.ru_maxrss * 1024 / 1e9, time.monotonic() - started, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("format", choices=("tiff", "nii.gz", "nii", "mha"))
    parser.add_argument("size", type=int)
    parser.add_argument("--folder", type=Path, help="keep the files here")
    parser.add_argument(
        "--point", action="store_true", help="one 1×1 convolution as network: the cost of reading, blending and writing alone"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        image, model, dims = folder / f"image-{chosen.size}.{chosen.format}", folder / "model.safetensors", 3
        if chosen.format == "tiff":
            dims = 2
        if not image.exists():
            (write_slide if dims == 2 else write_volume)(image, chosen.size)
        write_model(model, dims=dims, window=512 if dims == 2 else 96)
        command = [sys.executable, "-m", "hebbseg", "predict", str(model), str(image), "-o", str(folder / "masks")]
        if chosen.point:
            command = [sys.executable, "-c", POINT, str(model), str(image), str(folder / "masks")]
        peak, seconds, busy = measured(command if chosen.point else [*command, "--overwrite"])
    console = Console()
    console.print(f"{image.name}: peak {peak:.2f} GB, {seconds:.0f} s, {busy:.0f} s of them computing; at most {LIMIT_GB} GB")
    if peak > LIMIT_GB:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
