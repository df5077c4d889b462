"""What a run is made of, once its settings and its data are known."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from lightning_fabric import Fabric
from torch import Tensor, nn

from hebbseg.config import Settings
from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.cases import Source
from hebbseg.data.store import CaseStore
from hebbseg.data.preprocessing import Preparation
from hebbseg.data.splits.split import TrainingCases
from hebbseg.networks.unet import UNet
from hebbseg.inference.predictor import Predictor
from hebbseg.training.loop import Stage2
from hebbseg.pretraining.initializers import (
    Context,
    Initialised,
    check_init,
    check_weights,
    initialise_network,
    is_initializer,
)
from hebbseg.pretraining.hebbian import Stage1

EPOCH_AT_MOST = 250  # batches of a stage-1 epoch: filters settle long before a very large set has been seen
AUTO_BATCH = {2: 8, 3: 2}  # by spatial dimensions
CALIBRATION_AT_MOST = 60  # batches for norm statistics


class Run:
    """One run: what is known once its settings and its data are."""

    def __init__(self, settings: Settings, source: Source, training: TrainingCases, fabric: Fabric) -> None:
        self.settings = settings
        self.source = source
        self.training = training
        self.fabric = fabric
        dims = source.spatial_dims
        size = None if settings.size == "native" else _for_all_axes(settings.size, dims)
        self.preparation = Preparation.for_source(source, size=size, normalise=settings.normalise)
        self.store = CaseStore.for_training(source, self.training, preparation=self.preparation)
        self.patch = None if settings.patch == "none" else _for_all_axes(settings.patch, dims)
        self.augment = Augment(spatial_dims=dims) if settings.augment else None

    def batches(self, *, unlabelled: bool, augmented: bool, seed: int) -> Batches:
        return Batches(
            store=self.store,
            training=self.training,
            steps=self.settings.updates,
            seed=seed,
            labelled_batch=self._batch(self.settings.labelled_batch),
            unlabelled_batch=self._batch(self.settings.unlabelled_batch) if unlabelled else 0,
            image_batch=self._batch(self.settings.pretrain_batch),
            augment=self.augment if augmented else None,
            patch=self.patch,
        )

    def _batch(self, size: int | Literal["auto"]) -> int:
        return AUTO_BATCH[self.source.spatial_dims] if size == "auto" else size

    def network_options(self, classes: int) -> dict[str, Any]:
        return network_options(self.settings, self.source, classes)

    def stage1(self) -> Stage1:
        s = self.settings
        batches = math.ceil(len(self.training.images) / self._batch(s.pretrain_batch))
        return Stage1(
            **_shared(s, Stage1),
            layers=s.layers_of_stage1(),
            epochs=s.pretrain_epochs,
            steps_per_epoch=min(batches, EPOCH_AT_MOST),
            rate=s.pretrain_rate,
            optimiser=s.pretrain_optimiser,
        )

    def stage2(self) -> Stage2:
        return Stage2(**_shared(self.settings, Stage2), optimiser=self.settings.optimiser)

    def calibration(self) -> list[Tensor]:
        """All training images once (at most `CALIBRATION_AT_MOST` batches), as they are, on the device."""
        plain = self.batches(unlabelled=False, augmented=False, seed=self.settings.seed)
        count = min(math.ceil(len(self.training.images) / plain.image_batch), CALIBRATION_AT_MOST)
        if plain.patch is not None:
            count = min(4 * count, CALIBRATION_AT_MOST)  # a patch is only a part of an image
        return [self.fabric.to_device(plain.images_only(step)) for step in range(count)]

    def initialise(self, classes: int, seed: int, **handlers: Any) -> tuple[UNet, Initialised]:
        """A network with its first weights, by the initialisation that the settings name."""
        if not is_initializer(self.settings.init):
            check_weights(Path(self.settings.init), self.network_options(classes))
        network = UNet(**self.network_options(classes), seed=seed).to(self.fabric.device)
        batches = self.batches(unlabelled=False, augmented=False, seed=seed)
        part = slice(self.fabric.global_rank, None, self.fabric.world_size)

        def images(step: int) -> Tensor:
            return self.fabric.to_device(batches.images_only(step)[part])

        options = check_init(self.settings.init, self.settings.init_options)
        context = Context(images=images, calibration=self.calibration, stage=self.stage1(), options=options, **handlers)
        return network, initialise_network(self.settings.init, network, context)

    def window(self) -> tuple[int, ...] | None:
        """Of prediction: as large as the patches of training; whole images where there were none."""
        return self.batches(unlabelled=False, augmented=False, seed=0).patch

    def segmenter(self, network: nn.Module) -> Predictor:
        assert isinstance(network, UNet)
        return Predictor(
            network=network,
            network_options=self.network_options(len(self.source.classes)),
            preparation=self.preparation,
            classes=self.source.classes,
            window=self.window(),
            tta=self.settings.tta,
            axes=getattr(self.source, "axes", "stored"),  # generated images have no files
        )


def network_options(settings: Settings, source: Source, classes: int) -> dict[str, Any]:
    """What a run's network is built with; no mask is opened for it."""
    return {
        "spatial_dims": source.spatial_dims,
        "in_channels": source.channels,
        "out_channels": classes,
        "features": list(settings.features),
        "dropout": settings.dropout,
        "norm": settings.norm,
    }


def _for_all_axes(size: tuple[int, ...] | str, dims: int) -> tuple[int, ...] | str:
    """One number stands for all axes."""
    return size * dims if isinstance(size, tuple) and len(size) == 1 else size


def _shared(settings: Settings, stage: type[Stage1] | type[Stage2]) -> dict[str, Any]:
    """The settings that a stage has under the same name; ``optimiser`` means another thing to each stage."""
    names = {field.name for field in fields(stage)} & set(Settings.model_fields) - {"optimiser"}
    return {name: getattr(settings, name) for name in names}
