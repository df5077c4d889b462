"""The training loop against a bare one, and stage 1 against supervised training on as many images."""

import copy
from collections.abc import Callable, Iterator
from itertools import count

import torch

from benchmarks.timing import Row, row, seconds
from hebbseg import UNet
from hebbseg.config import FinetuneSettings, PretrainSettings
from hebbseg.data.batches import Batch
from hebbseg.data.sources.phantom import phantom
from hebbseg.methods import make_method
from hebbseg.methods.losses import segmentation_loss
from hebbseg.pretraining.hebbian import pretrain
from hebbseg.pretraining.superpixels import SuperpixelEpisodes
from hebbseg.training.loop import fit

UPDATES = 11  # an epoch over the 85 training images of GlaS
SIZE = 8, 3, 128, 128


class Constant:
    """The same batch at every step: what is measured is the loop, not the loading."""

    def __init__(self) -> None:
        self.images = torch.rand(SIZE)
        self.masks = torch.randint(2, (SIZE[0], *SIZE[2:]))

    def from_step(self, first: int) -> Iterator[Batch]:
        for step in count(first):
            yield Batch(
                step=step, images=self.images, masks=self.masks, unlabelled=None, ids=(), unlabelled_ids=(),
                generator=torch.Generator(),
            )  # fmt: skip


def ours(network: UNet, batches: Constant) -> None:
    method = make_method("supervised", network=copy.deepcopy(network), another=UNet, loss="dice+ce")
    fit(method, batches, FinetuneSettings(updates=UPDATES))


def bare(network: UNet, batches: Constant) -> None:
    network = copy.deepcopy(network).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    criterion = segmentation_loss("dice+ce")
    for _ in range(UPDATES):
        optimizer.zero_grad()
        criterion(network(batches.images), batches.masks).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()


def stage1(network: UNet, batches: Constant, layers: tuple[str, ...] | None = None, **options) -> None:
    settings = PretrainSettings(epochs=1, settle=0, **options)
    pretrain(copy.deepcopy(network), lambda step: batches.images, settings, layers=layers, steps_per_epoch=UPDATES)


def superpixel_step(batch: int) -> Callable[[], None]:
    """One update on superpixel episodes, with segments computed before: each image is segmented once in a training."""
    source = phantom("glands", n=batch, size=SIZE[2:])
    images = torch.stack([torch.from_numpy(source.image(case)).float() / 255 for case in source.cases])
    task = SuperpixelEpisodes(network=UNet(seed=0)).train()
    segments = torch.stack([task.segment(image, image[0].numel()) for image in images])
    optimizer, generator = torch.optim.AdamW(task.parameters(), lr=2e-3), torch.Generator().manual_seed(0)

    def work() -> None:
        optimizer.zero_grad()
        torch.stack(list(task.loss(images, 0.5, generator, segments).values())).sum().backward()
        optimizer.step()

    return work


def supervised_step(batch: int) -> Callable[[], None]:
    network, criterion = UNet(seed=0).train(), segmentation_loss("dice+ce")
    images, masks = torch.rand(batch, *SIZE[1:]), torch.randint(2, (batch, *SIZE[2:]))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)

    def work() -> None:
        optimizer.zero_grad()
        criterion(network(images), masks).backward()
        optimizer.step()

    return work


def superpixel_rows() -> list[Row]:
    """An episode has an image and its copy, so a ratio of about 2 is expected."""
    rows = []
    for batch in (2, 8):
        times = seconds({"episodes": superpixel_step(batch), "supervised": supervised_step(batch)}, rounds=10)
        name = f"superpix step / supervised step, batch {batch} at 128²"
        rows.append(row(name, times["episodes"], times["supervised"], at_most=2.5))
    return rows


def run() -> list[Row]:
    network, batches = UNet(seed=0), Constant()
    times = seconds(
        {
            "ours": lambda: ours(network, batches),
            "bare": lambda: bare(network, batches),
            "letter": lambda: stage1(
                network, batches, layerwise=False, whiten=None, center=False, standardize=False, unit_norm=False, rate=1e-3
            ),
            "recipe": lambda: stage1(network, batches, layerwise=False, layers=("encoder",)),
        },
        rounds=3,
    )
    return [
        row(f"fit / bare loop, {UPDATES} updates of batch 8 at 128²", times["ours"], times["bare"], at_most=1.05),
        row("stage-1 epoch, all layers, SWTA-TSA / supervised epoch", times["letter"], times["bare"], at_most=0.8),
        row(
            "stage-1 epoch, default recipe, all layers at once / supervised epoch",
            times["recipe"],
            times["bare"],
            at_most=0.8,
        ),
        *superpixel_rows(),
    ]
