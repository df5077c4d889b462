"""Descriptors of images: of a network after stage 1, of a random network, or of colors and textures."""

from collections.abc import Callable, Sequence

import numpy as np
from lightning_fabric import Fabric

from hebbseg.config import make_settings
from hebbseg.data.cases import Source
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import TrainingCases
from hebbseg.data.store import CaseStore
from hebbseg.networks.factory import build_network
from hebbseg.planning.descriptors import feature_descriptors, texture_descriptors
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset
from hebbseg.training.session import Session

DESCRIPTORS = ("hebbian", "random", "color")
SIZES = {2: (64, 64), 3: (48, 48, 48)}  # by spatial dimensions
SETTINGS = {"features": (8, 16, 32, 64), "patch": "none", "pretrain_max_batches": 25, "accelerator": "cpu"}


def descriptor_store(source: Source, images: Sequence[str], descriptors: str) -> CaseStore:
    """Return the store that `describe_images` needs: these images at `SIZES`, and no mask."""
    normalize = "unit" if descriptors == "color" else "zscore"  # z-scores have no color
    preprocessing = Preprocessing(size=SIZES[source.spatial_dims], normalize=normalize)
    return CaseStore(source=source, preprocessing=preprocessing, images=images)


def describe_images(store: CaseStore, descriptors: str, *, seed: int, reporter: Reporter) -> np.ndarray:
    """Return a descriptor of each image of the store, (n, d), standardized.

    Neither size nor network nor device are those of a run, so that all arms of an experiment get the same descriptors: the
    network has the default settings of stage 1 and `SETTINGS`.

    Args:
        store: of `descriptor_store`.
        descriptors: a name in `DESCRIPTORS`: features after stage 1, features of a random network, or color and texture.
        seed: random seed of the network and of stage 1.
    """
    images = (store.images([name])[0] for name in store.ids)
    done = progress_of(reporter, "describing", len(store.ids))
    if descriptors == "color":
        return texture_descriptors(images, done=done)
    settings = make_settings(store.source.name, SETTINGS | {"seed": seed})
    training = TrainingCases(labelled=(), unlabelled=tuple(sorted(store.ids)))
    fabric = Fabric(accelerator="cpu", devices=1)
    context = RunContext(settings, Dataset(source=store.source, store=store), training, fabric)
    if descriptors == "random":
        network = build_network(**context.network_options(2), seed=seed)
    else:
        session = Session(report=lambda done, total, row: reporter.step("features", done, total, row))
        network, _ = context.initialize(2, seed, session)
    layers = settings.pretrain.layers(len(settings.network.features))
    assert layers is not None
    return feature_descriptors(network, images, layers=layers, done=done)


def progress_of(reporter: Reporter, stage: str, total: int) -> Callable[[], None]:
    """Return a function that reports one more step of the stage."""
    count = iter(range(1, total + 1))
    return lambda: reporter.step(stage, next(count), total, {})
