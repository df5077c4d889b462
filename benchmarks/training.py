"""The training loop against a bare one, and an epoch of stage 1 against a supervised epoch over the same images."""

import copy
from collections.abc import Iterator
from itertools import count

import torch

from benchmarks.timing import Row, row, seconds
from hebbseg import UNet
from hebbseg.config import FinetuneSettings, PretrainSettings
from hebbseg.data.batches import Batch
from hebbseg.methods import make_method
from hebbseg.methods.losses import segmentation_loss
from hebbseg.pretraining.hebbian import pretrain
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
    ]
