"""Metrics against MONAI's, prediction against MONAI's sliding window, a folder of files, memory of a streamed prediction.

python -m benchmarks.evaluation ROWS     prints the extra peak memory in MiB of streaming an image of so many rows
"""

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.inferers import sliding_window_inference
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import nn

from benchmarks.loading import source_of
from benchmarks.timing import Row, peak_mib, report_extra_peak, row, seconds
from hebbseg import UNet
from hebbseg.data.labels.masks import two_classes
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.evaluation.metrics import all_metrics, asd, hd95
from hebbseg.inference.files import find_inputs, plan, predict_files
from hebbseg.inference.predictor import Predictor
from hebbseg.inference.sliding_window import predict_probabilities, predict_streaming

FILES = 60
Pair = tuple[np.ndarray, np.ndarray]


def blobs(size: tuple[int, ...], smooth: float) -> Pair:
    """A mask of rounded blobs over half of the image and a prediction that follows it closely."""
    rng = np.random.default_rng(0)
    field = gaussian_filter(rng.standard_normal(size), smooth)
    wobble = gaussian_filter(rng.standard_normal(size), smooth / 2)
    return field / field.std() + 0.3 * wobble / wobble.std() > 0, field > 0


def organ(size: tuple[int, ...]) -> Pair:
    """One ellipsoid with a wavy surface, a third of the volume wide, and a prediction with another surface."""
    rng = np.random.default_rng(0)
    place = np.meshgrid(*(np.linspace(-3, 3, n) for n in size), indexing="ij")
    radius = np.sqrt(sum(x**2 for x in place))
    waves = [gaussian_filter(rng.standard_normal(size), 5) for _ in range(2)]
    first, second = (radius + 0.1 * wave / wave.std() < 1 for wave in waves)
    return first, second


def everything(size: tuple[int, ...]) -> Pair:
    return np.ones(size, dtype=bool), organ(size)[1]


MASKS: dict[str, Callable[[], Pair]] = {
    "128²": lambda: blobs((128, 128), 8),
    "512²": lambda: blobs((512, 512), 20),
    "organ 160×160×88": lambda: organ((160, 160, 88)),
    "all foreground 160×160×88": lambda: everything((160, 160, 88)),
}


def monai(metric: Callable[..., torch.Tensor], pair: Pair, **options: Any) -> Callable[[], torch.Tensor]:
    prediction, target = (torch.from_numpy(mask)[None, None] for mask in pair)
    return lambda: metric(prediction, target, include_background=True, **options)


def metric_rows() -> list[Row]:
    rows = []
    for name, make in MASKS.items():
        pair = make()
        times = seconds(
            {
                "hd95": lambda pair=pair: hd95(*pair, definition="max"),
                "asd": lambda pair=pair: asd(*pair),
                "all": lambda pair=pair: all_metrics(*pair),
                "monai hd95": monai(compute_hausdorff_distance, pair, percentile=95),
                "monai asd": monai(compute_average_surface_distance, pair, symmetric=True),
            },
            rounds=5,
        )
        both = times["monai hd95"] + times["monai asd"]
        rows += [
            row(f"hd95 / MONAI's, {name}", times["hd95"], times["monai hd95"], at_most=1.0),
            row(f"asd / MONAI's, {name}", times["asd"], times["monai asd"], at_most=1.0),
            row(f"all five metrics / MONAI's hd95 + asd, {name}", times["all"], both, at_most=0.5),
        ]
    return rows


def prediction_rows() -> list[Row]:
    rows = []
    for name, size, window, batch in (
        ("2D 512², window 128²", (512, 512), (128, 128), 4),
        ("3D 72×72×60, window 48×48×40", (72, 72, 60), (48, 48, 40), 1),
    ):
        network = UNet(spatial_dims=len(size), in_channels=1, seed=0).eval()
        image = torch.randn(1, *size)
        classes = np.zeros(size, dtype=np.uint8)
        times = seconds(
            {
                "ours": lambda n=network, i=image, w=window, b=batch: predict_probabilities(n, i, window=w, batch=b),
                "streamed": lambda n=network, i=image, w=window, b=batch, c=classes: predict_streaming(
                    n, i.numpy(), c, window=w, batch=b
                ),
                "monai": lambda n=network, i=image, w=window, b=batch: sliding_window(n, i, w, b),
            },
            rounds=5 if len(size) == 2 else 3,
        )
        rows += [
            row(
                f"prediction / MONAI's sliding window, {name}",
                times["ours"],
                times["monai"],
                at_most=1.0 if len(size) == 2 else 1.05,
            ),
            row(f"streamed prediction / MONAI's, {name}", times["streamed"], times["monai"], at_most=1.1),
        ]
    return rows


def folder_rows() -> list[Row]:
    """Prediction of a folder against prediction of one file after the other, each read, predicted and written in turn."""
    source = source_of("dsb2018", "dsb2018", "phantom:glands?size=256")
    options = {"spatial_dims": 2, "in_channels": source.channels, "out_channels": 2}
    model = Predictor(
        network=UNet(**options, seed=0).eval(),
        network_options=options,
        preprocessing=Preprocessing(size=(128, 128), normalize="zscore"),
        classes=two_classes(255),
    )
    with tempfile.TemporaryDirectory() as folder:
        for case in source.cases[:FILES]:
            picture = np.moveaxis(source.image(case), 0, -1)
            Image.fromarray(picture).save(Path(folder) / f"{case.id.replace('/', '-')}.png")
        inputs, _ = find_inputs([folder])
        targets = plan([model], inputs, Path(folder) / "out")
        contenders: dict[str, Callable[[], Any]] = {
            "folder": lambda: predict_files([model], inputs, targets),
            "files": lambda: [predict_files([model], [i], [t]) for i, t in zip(inputs, targets, strict=True)],
        }
        times = seconds(contenders, rounds=3)
    return [row(f"prediction of a folder / of its {FILES} files in turn", times["folder"], times["files"], at_most=1.02)]


@torch.inference_mode()
def sliding_window(network: nn.Module, image: torch.Tensor, window: tuple[int, ...], batch: int) -> torch.Tensor:
    return sliding_window_inference(image[None], window, batch, network, overlap=0.5, mode="gaussian").softmax(dim=1)


def run() -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # MONAI's about itself
        rows = metric_rows() + prediction_rows() + folder_rows()
    short, long = (peak_mib("benchmarks.evaluation", n_rows) for n_rows in ("1000", "8000"))
    return [*rows, row("extra peak MiB of streaming 8000 rows / 1000 rows", long, short, at_most=1.1)]


def main(n_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        size = (n_rows, 4000)
        image = np.memmap(Path(folder) / "image", dtype=np.uint8, mode="w+", shape=(1, *size))
        classes = np.memmap(Path(folder) / "classes", dtype=np.uint8, mode="w+", shape=size)
        network = nn.Conv2d(1, 2, 1)
        report_extra_peak(lambda: predict_streaming(network, image, classes, window=256, batch=4))


if __name__ == "__main__":
    main(int(sys.argv[1]))
