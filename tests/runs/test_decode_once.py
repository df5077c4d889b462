"""A run decodes every file once, and training never sees a test case."""

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightning_fabric import Fabric
from PIL import Image as Pillow

from hebbseg import Segmenter
from hebbseg.config import make_settings
from hebbseg.data.labels import classes
from hebbseg.data.progress import Quiet
from hebbseg.data.sources import files
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import draw_split, open_dataset
from tests.tiny import bright_folder

OPTIONS = {
    "labelled": "3", "test": "0.25", "size": (16, 16), "features": (4, 8), "updates": 2, "labelled_batch": 2,
    "pretrain_epochs": 1,
}  # fmt: skip


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file that is decoded, in order. Several threads decode, so it is a list: appending is atomic."""
    paths: list[Path] = []

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def read_and_count(path: Path, *level: Any) -> Any:
            paths.append(Path(path))
            return read(path, *level)

        return read_and_count

    for module, name in ((files, "read_image"), (files, "read_labels"), (classes, "read_labels")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    return paths


def test_a_run_decodes_every_image_and_every_mask_once(tmp_path: Path, decoded: list[Path]) -> None:
    data = bright_folder(tmp_path / "data", "abcdefgh", masks="abcdefg")
    Segmenter.train(data, tmp_path / "run", quiet=True, **OPTIONS)
    split = Split.load(tmp_path / "run" / "split.json")
    assert split.test and split.training.unlabelled, "the run fine-tunes on unlabelled images and evaluates"
    with (tmp_path / "run" / "metrics.csv").open() as file:
        areas = {row["case"]: int(row["n_target"]) for row in csv.DictReader(file)}
    again = Counter(decoded) - Counter(data.glob("*/*.png"))
    pictures = Counter({data / "images" / f"{case}.png": 2 for case in split.test})
    assert again == pictures, "only for figures/test.png and the examples on the page of the run"
    masks = {case: np.asarray(Pillow.open(data / "masks" / f"{case}.png")) for case in split.test}
    assert areas == {case: np.count_nonzero(mask) for case, mask in masks.items()}, "in the pixels of the files"


def test_the_training_store_refuses_test_cases(tmp_path: Path) -> None:
    settings = make_settings(bright_folder(tmp_path / "data", "abcdefgh"), OPTIONS)
    dataset = open_dataset(settings.data, Quiet())
    split = draw_split(settings, dataset.source)
    store = RunContext(settings, dataset, split.training, Fabric(accelerator="cpu", devices=1)).store
    assert split.test
    for case in split.test:
        for request in (store.image, store.mask, store.foreground, lambda name: store.images([name])):
            with pytest.raises(HebbsegError, match=f"{case!r}"):
                request(case)
    hidden = split.training.unlabelled[0]
    store.image(hidden)
    with pytest.raises(HebbsegError, match=f"{hidden!r}"):
        store.mask(hidden)
