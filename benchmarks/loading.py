"""The training loader against MONAI's transforms in a DataLoader doing the same work, and against the network's step.

Real images from the folder that HEBBSEG_DATA names, else phantoms. Samples per second; image and mask each.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import monai.transforms as mt
import torch
from monai.data import CacheDataset
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.timing import Row, row, seconds
from hebbseg import UNet
from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.cases import Source
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import Split, make_split
from hebbseg.data.store import CaseStore

PATCH = (96, 96, 80)
BOTH = ("image", "mask")


def source_of(name: str, folder: str, otherwise: str) -> Source:
    root = os.environ.get("HEBBSEG_DATA")
    return open_source(f"{name}:{Path(root, folder)}" if root and Path(root, folder).is_dir() else otherwise)


class CaseFiles(Dataset):
    """What everybody writes first: reads a case, then transforms it."""

    def __init__(self, source: Source, ids: tuple[str, ...], transform: Callable[[dict[str, Any]], Any]) -> None:
        self.source = source
        self.cases = [case for case in source.cases if case.id in set(ids)]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.cases)

    def read(self, index: int) -> dict[str, Any]:
        case = self.cases[index]
        return {"image": self.source.image(case), "mask": self.source.mask(case)[None]}

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        sample = self.transform(self.read(index))
        # A crop gives a list of one.
        return sample[0] if isinstance(sample, list) else sample


def preparing(dims: int) -> list[mt.Transform]:
    if dims == 2:
        resize = mt.Resized(BOTH, (128, 128), mode=("bilinear", "nearest"), anti_aliasing=(True, False))
        return [mt.EnsureTyped(BOTH), resize, mt.ScaleIntensityRanged("image", 0, 255, 0, 1)]
    return [mt.EnsureTyped(BOTH), mt.NormalizeIntensityd("image")]


def augmenting(dims: int) -> list[mt.Transform]:
    """The weak view of ours: the same kinds of change with the same chances."""
    turn, scale = [0.44] * (1 if dims == 2 else 3), [(-0.2, 0.25)] * dims
    modes = {"mode": ("bilinear", "nearest"), "padding_mode": "reflection"}
    if dims == 2:
        free = mt.Rand2DElasticd(BOTH, (24, 24), (1, 3), prob=0.5, rotate_range=turn, scale_range=scale, **modes)
        crop = []
    else:
        # Without MONAI's elastic deformation, whose smoothing of a whole field would slow it several times more.
        free = mt.RandAffined(BOTH, prob=0.5, rotate_range=turn, scale_range=scale, **modes)
        crop = [mt.SpatialPadd(BOTH, PATCH), mt.RandCropByPosNegLabeld(BOTH, "mask", PATCH, num_samples=1)]
    return [
        *crop,
        *[mt.RandFlipd(BOTH, prob=0.5, spatial_axis=axis) for axis in range(dims)],
        mt.RandRotate90d(BOTH, prob=0.75, spatial_axes=(0, 1)),
        free,
        mt.RandScaleIntensityd("image", factors=0.15, prob=0.3),
        mt.RandShiftIntensityd("image", offsets=0.05, prob=0.3),
        mt.RandAdjustContrastd("image", prob=0.3, gamma=(0.8, 1.2)),
        mt.RandGaussianSmoothd("image", (0.1, 0.6), (0.1, 0.6), (0.1, 0.6), prob=0.3),
        mt.RandGaussianNoised("image", prob=0.3, std=0.02),
        mt.EnsureTyped(BOTH, track_meta=False),
    ]


def endless(dataset: Any, batch: int, workers: int) -> Callable[[], dict[str, Tensor]]:
    loader = DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=len(dataset) >= batch,
    )

    def batches() -> Iterator[dict[str, Tensor]]:
        while True:
            yield from loader

    iterator = batches()
    return lambda: next(iterator)


def ours(store: CaseStore, split: Split, dims: int, labelled: int, unlabelled: int) -> Callable[[], None]:
    batches = Batches(
        store=store,
        training=split.training,
        steps=10**6,
        labelled_batch=labelled,
        unlabelled_batch=unlabelled,
        augment=Augment(spatial_dims=dims),
        patch=None if dims == 2 else PATCH,
    )
    iterator = iter(batches)
    return lambda: next(iterator)


def training_step(source: Source, count: int, size: tuple[int, ...]) -> Callable[[], None]:
    net = UNet(spatial_dims=source.spatial_dims, in_channels=source.channels, seed=0).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(count, source.channels, *size)
    target = torch.randint(2, (count, *size))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), target).backward()
        optimizer.step()

    return step


def compare(name: str, source: Source, *, batch: int, at_least: float, rounds: int) -> list[Row]:
    dims = source.spatial_dims
    split = make_split(source, labelled="100%")
    ids = split.training.labelled
    store = CaseStore.for_training(source, split.training)
    store.load()
    store.masks(ids) if dims == 2 else [store.foreground(case) for case in ids]
    plain = CaseFiles(source, ids, mt.Compose(preparing(dims) + augmenting(dims)))
    cached = CacheDataset(
        [plain.read(index) for index in range(len(plain))],
        mt.Compose(preparing(dims) + augmenting(dims)),
        progress=False,
    )
    flat = cached if dims == 2 else _First(cached)
    # Whole rounds of several batches: a loader with workers gives them in bursts.
    burst = 4
    contenders = {
        "ours": ours(store, split, dims, batch, 0),
        "plain": endless(plain, batch, 0),
        "plain, workers": endless(plain, batch, os.cpu_count() or 1),
        "cached": endless(flat, batch, 0),
    }
    times = seconds({key: _repeated(work, burst) for key, work in contenders.items()}, rounds=rounds, of=median)
    rate = {key: batch * burst / value for key, value in times.items()}
    best = max(rate["plain"], rate["plain, workers"])
    half = batch // 2
    size = (128, 128) if dims == 2 else PATCH
    against = seconds(
        {"load": ours(store, split, dims, half, half), "step": training_step(source, 2 * half, size)}, rounds=rounds
    )
    return [
        row(f"samples/s, ours / plain DataLoader with MONAI, {name}", rate["ours"], best, at_least=at_least),
        row(f"samples/s, ours / MONAI with decoded images cached, {name}", rate["ours"], rate["cached"], at_least=1.0),
        row(f"seconds, loading a batch / UNet step, {name}", against["load"], against["step"], at_most=0.05),
    ]


class _First(Dataset):
    def __init__(self, lists: Any) -> None:
        self.lists = lists

    def __len__(self) -> int:
        return len(self.lists)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.lists[index][0]


def _repeated(work: Callable[[], Any], times: int) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(times):
            work()

    return repeat


def run() -> list[Row]:
    glands = source_of("glas", "glas", "phantom:glands?size=256")
    atrium = source_of("la", "la", "phantom:atrium?n=8&size=160x140x88")
    return [
        *compare("GlaS 128²", glands, batch=16, at_least=3.0, rounds=5),
        *compare("LA 96×96×80", atrium, batch=2, at_least=2.0, rounds=3),
    ]


if __name__ == "__main__":
    for line in run():
        print(line)
