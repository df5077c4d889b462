"""Runs of a grid share decoded data where their plans agree, and plan from their own labelled masks only."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hebbseg.config import make_settings
from hebbseg.errors import HebbsegError
from hebbseg.experiments import tasks
from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import Recipe
from hebbseg.experiments.tasks import dataset_of
from tests.data.trees import picture, save
from tests.experiments.tinygrid import ROOT, tiny
from tests.planning.masks import blobs, lines
from tests.runs.test_decode_once import decoded as decoded


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Case a has thin lines, all others blobs."""
    tasks._dataset.cache_clear()
    tasks._listed.cache_clear()
    for seed, name in enumerate("abcdefgh"):
        mask = lines((260, 260), width=3.5) if name == "a" else blobs((260, 260), radius=50, seed=seed)
        save(tmp_path / "data" / "images" / f"{name}.png", picture(seed, 260, 260, 3))
        save(tmp_path / "data" / "masks" / f"{name}.png", mask.numpy() * np.uint8(255))
    return tmp_path / "data"


def test_arms_share_one_data_set_and_every_file_is_decoded_once(data: Path, decoded: list[Path]) -> None:
    arms = [{}, {"init": "random"}, {"method": "supervised", "updates": 7}, {"patch": "none", "features": (4, 8)}]
    stores = [dataset_of(make_settings(data, {"labelled": "4", **arm})).store for arm in arms]
    assert all(store is stores[0] for store in stores)
    counts = Counter(path for path in decoded if path.parent.name == "images")
    assert set(counts.values()) == {1} and len(counts) == 8


def test_runs_with_other_labelled_masks_may_have_another_size(data: Path) -> None:
    found = {}
    for seed in range(12):
        dataset = dataset_of(make_settings(data, {"labelled": "1", "seed": seed}))
        assert dataset.plan is not None
        size = dataset.plan.choices["size"].value
        assert dataset.store.preprocessing.size == (size if isinstance(size, tuple) else None)
        found[seed] = size
    assert set(found.values()) >= {(128, 128)} and len(set(found.values())) == 2, "with the lines and without"


def test_stage_1_can_be_planned_for_any_regime(data: Path) -> None:
    settings = make_settings(data, {"labelled": "60"})
    with pytest.raises(HebbsegError, match="60"):
        dataset_of(settings)
    assert dataset_of(settings, any_regime=True).store.preprocessing.size == (128, 128)


def test_with_a_time_budget_stage_1_is_part_of_its_run() -> None:
    for budget, fits in (({}, 1), ({"time_budget_s": 60.0}, 0)):
        recipe = tiny(axes={"seed": [0]})
        recipe["settings"] = recipe["settings"] | {"labelled": "2", "method": "supervised"} | budget
        runs = plan(Recipe(**recipe), ROOT)
        assert sum(len(run.stage1) for run in runs) == fits
