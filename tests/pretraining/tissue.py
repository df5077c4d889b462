"""Small images for pretext tasks."""

import torch

from hebbseg.data.batches import Batches
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources.phantom import phantom
from hebbseg.data.splits.split import TrainingCases
from hebbseg.data.store import CaseStore
from hebbseg.pretraining.pretext_images import PretextImages

UNIT = Preprocessing(size=None, normalize="unit")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tissue(n: int = 4, size: int = 32) -> torch.Tensor:
    source = phantom("glands", n=n, size=size)
    return torch.stack([torch.from_numpy(source.image(case)).float() / 255 for case in source.cases])


def pretext_images(n: int = 4, size: int = 32, kind: str = "glands", preprocessing=UNIT, **options) -> PretextImages:
    """All images of a phantom; ``options`` are those of `Batches`."""
    source = phantom(kind, n=n, **({} if kind == "atrium" else {"size": size}))
    training = TrainingCases(labelled=(), unlabelled=tuple(sorted(case.id for case in source.cases)))
    store = CaseStore.for_training(source, training, preprocessing=preprocessing)
    batches = Batches(**{"store": store, "training": training, "steps": 0, "image_batch": 4, **options})
    return PretextImages(ids=training.images, batches=batches)
