"""The parts of a run: data, batches, network and predictor."""

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lightning_fabric import Fabric
from torch import Tensor, nn

from hebbseg.config import AUTO_BATCH, PRETRAIN_BATCH, AugmentName, Settings
from hebbseg.data.augment.geometry import Geometry
from hebbseg.data.augment.views import MILD, Augment
from hebbseg.data.batches import Batches
from hebbseg.data.cases import Source
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError
from hebbseg.inference.predictor import Predictor, Tta
from hebbseg.networks.factory import UNET, build_network, default_options
from hebbseg.pretraining.hebbian import choose_layers
from hebbseg.pretraining.initializers import (
    Context,
    Initialized,
    check_init,
    check_weights,
    initialize_network,
    is_initializer,
)
from hebbseg.pretraining.pretext_images import PretextImages
from hebbseg.runs.dataset import Dataset, for_all_axes
from hebbseg.training.session import Session

VIEW_PIXELS = 1024 * 1024  # of a large image
MAX_CALIBRATION_BATCHES = 60  # for norm statistics
AUTO_CUTMIX = {2: 0.5, 3: 0.0}
AUTO_TTA: dict[int, Tta] = {2: "flips", 3: "none"}


class RunContext:
    """Everything a run needs once its settings and data are known."""

    def __init__(self, settings: Settings, dataset: Dataset, training: TrainingCases, fabric: Fabric) -> None:
        self.source = source = dataset.source
        batch = self._batch(settings.finetune.labelled_batch)
        finetune = settings.finetune.in_updates(labelled=len(training.labelled), batch=batch)
        self.settings = settings.model_copy(update={"finetune": finetune})
        self.training = training
        self.fabric = fabric
        if not training.images:
            raise HebbsegError(f"{source.name}: the split has no training image. Add images, or lower test.")
        self.store = dataset.store.restricted_to(
            source,
            images=(*training.images, *training.validation),
            masks=(*training.labelled, *training.validation),
        )
        dims = source.spatial_dims
        self.patch = None if settings.data.patch == "none" else for_all_axes(settings.data.patch, dims)
        self.augment = make_augment(settings.finetune.augment, dims, cutmix=settings.finetune.cutmix)
        self.segments: dict[str, Tensor] = {}  # of each training image, shared by the networks of a method

    def batches(self, *, unlabelled: bool = False, augment: AugmentName | None = None, seed: int) -> Batches:
        """Return the batches of a run; ``augment`` other than that of stage 2 is for stage 1 and norm statistics."""
        finetune = self.settings.finetune
        return Batches(
            store=self.store,
            training=self.training,
            steps=finetune.updates,
            seed=seed,
            labelled_batch=self._batch(finetune.labelled_batch),
            unlabelled_batch=self._batch(finetune.unlabelled_batch) if unlabelled else 0,
            image_batch=self._batch(self.settings.pretrain.batch, PRETRAIN_BATCH),
            pool=finetune.unlabelled_pool,
            augment=self.augment if augment is None else make_augment(augment, self.source.spatial_dims),
            patch=self.patch,
            foreground=self.settings.data.patch_foreground,
            background=self.settings.data.patch_background,
            prefetch=self.fabric.device.type != "cpu",
        )

    def _batch(self, size: int | Literal["auto"], auto: Mapping[int, int] = AUTO_BATCH) -> int:
        return auto[self.source.spatial_dims] if size == "auto" else size

    def network_options(self, classes: int) -> dict[str, Any]:
        return network_options(self.settings, self.source, classes)

    def _views(self, name: str) -> int:
        """Return how often an image counts in an epoch of stage 1: once, a large one once per 1024 × 1024 pixels."""
        return math.ceil(math.prod(self.store.shape(name)) / VIEW_PIXELS) if self.store.is_large(name) else 1

    def calibration(self) -> list[Tensor]:
        """Return every training image once, unaugmented, on the device; at most `MAX_CALIBRATION_BATCHES` batches."""
        plain = self.batches(augment="none", seed=self.settings.run_seed)
        count = min(math.ceil(len(self.training.images) / plain.image_batch), MAX_CALIBRATION_BATCHES)
        if plain.patch is not None:
            count = min(4 * count, MAX_CALIBRATION_BATCHES)  # a patch shows only a part of an image
        return [self.fabric.to_device(plain.images_only(step)) for step in range(count)]

    def initialize(self, classes: int, seed: int, session: Session | None = None) -> tuple[nn.Module, Initialized]:
        """Run stage 1: build a network and initialize its weights."""
        settings = self.settings.pretrain
        if not is_initializer(settings.init):
            check_weights(Path(settings.init), self.network_options(classes))
        network = build_network(**self.network_options(classes), seed=seed).to(self.fabric.device)
        batches = self.batches(augment=settings.augment, seed=seed)
        part = slice(self.fabric.global_rank, None, self.fabric.world_size)

        def images(step: int) -> Tensor:
            return self.fabric.to_device(batches.images_only(step)[part])

        name, patterns = self.settings.network.name, settings.patterns
        layers, output = settings.layers(len(self.settings.network.features)), "head"
        if (name, patterns) != (UNET, "auto"):
            chosen = None if patterns == "auto" else tuple(pattern.strip() for pattern in patterns.split(","))
            layers, output = choose_layers(network, images(0)[:2], chosen, name=name, out_channels=classes)
        context = Context(
            images=images,
            calibration=self.calibration,
            settings=settings,
            layers=layers,
            output=output,
            steps_per_epoch=min(
                math.ceil(sum(map(self._views, self.training.images)) / batches.image_batch),
                settings.max_batches or sys.maxsize,
            ),
            options=check_init(settings.init, settings.init_options),
            session=session or Session(),
            pretext_images=PretextImages(
                ids=self.training.images,
                batches=batches,
                move=self.fabric.to_device,
                rank=self.fabric.global_rank,
                processes=self.fabric.world_size,
                segments=self.segments,
            ),
        )
        return network, initialize_network(settings.init, network, context)

    @property
    def outputs(self) -> int:
        """Number of outputs of the network: the classes, and the border of objects."""
        return len(self.source.classes) + self.settings.data.borders

    @property
    def tta(self) -> Tta:
        """Test-time augmentation of the model."""
        chosen = self.settings.finetune.tta
        return AUTO_TTA[self.source.spatial_dims] if chosen == "auto" else chosen

    def predictor(self, network: nn.Module) -> Predictor:
        return Predictor(
            network=network,
            network_options=self.network_options(self.outputs),
            preprocessing=self.store.preprocessing,
            classes=self.source.classes,
            # As large as the training patches; None predicts whole images.
            window=self.batches(seed=0).patch,
            tta=self.tta,
            blend=self.settings.data.window_blend,
            axes=getattr(self.source, "axes", "stored"),  # generated images have no files
            orientation=getattr(self.source, "orientation", None),
            borders=self.settings.data.borders,
        )


def make_augment(name: AugmentName, spatial_dims: int, *, cutmix: float | Literal["auto"] = 0.0) -> Augment | None:
    """Return the augmentation of this name; None for ``none`` without CutMix."""
    if cutmix == "auto":
        cutmix = AUTO_CUTMIX[spatial_dims] if name == "full" else 0.0
    if name == "full":
        return Augment(spatial_dims=spatial_dims, cutmix=cutmix)
    without = Augment(
        spatial_dims=spatial_dims, geometry=Geometry(free=0.0), weak_light=replace(MILD, chance=0.0), cutmix=cutmix
    )
    if name == "flips-rotations":
        return without
    return replace(without, geometry=Geometry(flip=0.0, quarter_turns=False, free=0.0)) if cutmix else None


def network_options(settings: Settings, source: Source, classes: int) -> dict[str, Any]:
    """Return the keywords of `build_network` for a run. Opens no mask."""
    chosen = settings.network
    options = default_options(chosen.name, chosen.features)
    if chosen.name == UNET:
        options = {"features": list(chosen.features), "dropout": chosen.dropout, "norm": chosen.norm}
        geometry = {"strides": chosen.strides, "kernels": chosen.kernels}
        options |= {name: [list(axes) for axes in value] for name, value in geometry.items() if isinstance(value, tuple)}
    return {
        "name": chosen.name,
        "spatial_dims": source.spatial_dims,
        "in_channels": source.channels,
        "out_channels": classes,
        "options": options | chosen.options,
    }
