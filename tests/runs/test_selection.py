"""The setting ``select``: nested over label regimes, the same for all arms, and blind to test images and masks."""

import numpy as np
import pytest

from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.runs.dataset import draw_split
from hebbseg.runs.ranking import DESCRIPTORS, describe_images, descriptor_store
from hebbseg.runs.selection import draw_selected_split
from hebbseg.runs.train import run
from tests.data.arrays_source import ArraysSource, listed
from tests.tiny import GLANDS

SELECT = ("coverage", "typical", "facility")


@pytest.fixture
def source() -> ArraysSource:
    """24 images of 4 patients: noise of different contrast around different means."""
    found = listed(24, groups=[f"p{i % 4}" for i in range(24)], unmasked={5, 9})
    random = np.random.default_rng(0)
    for i, case in enumerate(found.cases):
        found.images[case.id] = (128 + random.normal(scale=5 + 4 * (i % 7), size=(1, 20, 24))).clip(0, 255).astype(np.uint8)
    return found


def settings(**options):
    return make_settings("arrays", {"labelled": "20%", "seed": 1, **options})


@pytest.mark.parametrize("select", SELECT)
def test_label_regimes_are_nested_and_spread_over_patients(source: ArraysSource, select: str) -> None:
    order: tuple[str, ...] = ()
    for labelled in ("10%", "20%", "50%", "100%"):
        split = draw_selected_split(settings(select=select, labelled=labelled, folds=4), source, Quiet())
        drawn = draw_split(settings(labelled=labelled, folds=4), source)
        assert split.test == drawn.test and split.training.images == drawn.training.images
        assert len(split.training.labelled) == len(drawn.training.labelled)
        assert split.training.labelled[: len(order)] == order
        assert not {"c005", "c009"} & set(split.training.labelled), "they have no mask"
        assert split.provenance.select == select
        order = split.training.labelled
    group = {case.id: case.group for case in source.cases}
    patients = {group[name] for name in split.training.images}
    assert {group[name] for name in order[: len(patients)]} == patients


@pytest.mark.parametrize("select", SELECT)
def test_neither_test_images_nor_masks_are_read(source: ArraysSource, select: str) -> None:
    split = draw_selected_split(settings(select=select), source, Quiet())
    assert split.test
    assert {what for what, _ in source.reads} == {"image"}
    assert {name for _, name in source.reads} == set(split.training.images)


def test_random_draws_are_those_of_before_and_read_nothing(source: ArraysSource) -> None:
    assert draw_selected_split(settings(), source, Quiet()).hash == draw_split(settings(), source).hash
    assert draw_selected_split(settings(select="typical", labelled="0"), source, Quiet()).provenance.select == "random"
    assert not source.reads


def test_the_choice_depends_on_the_split_seed_and_not_on_the_arm(source: ArraysSource) -> None:
    first = draw_selected_split(settings(select="facility"), source, Quiet())
    for other in ({"init": "random"}, {"features": "4,8"}, {"size": "16x16"}, {"seed": 4, "split_seed": 1}):
        assert draw_selected_split(settings(select="facility", **other), source, Quiet()).hash == first.hash
    again = sum(source.reads.values())
    draw_selected_split(settings(select="coverage", labelled="50%"), source, Quiet())
    assert sum(source.reads.values()) == again, "descriptors are computed once"


@pytest.mark.parametrize("descriptors", DESCRIPTORS)
def test_descriptors_are_repeatable_finite_and_differ_between_images(source: ArraysSource, descriptors: str) -> None:
    names = [case.id for case in source.cases]
    rows = [
        describe_images(descriptor_store(source, names, descriptors), descriptors, seed=2, reporter=Quiet()) for _ in range(2)
    ]
    assert (rows[0] == rows[1]).all() and np.isfinite(rows[0]).all()
    assert len(np.unique(rows[0], axis=0)) == len(names)


def test_a_run_trains_on_the_chosen_images_and_resumes(tmp_path) -> None:
    options = {
        "select": "typical", "labelled": "3", "size": "32x32", "features": "4,8", "updates": 2, "labelled_batch": 2,
        "init": "random", "method": "supervised",
    }  # fmt: skip
    chosen = make_settings(GLANDS, options)
    run(chosen, tmp_path / "run")
    split = Split.load(tmp_path / "run" / "split.json")
    assert split.provenance.select == "typical"
    assert split.training.labelled != draw_split(chosen, listed_glands()).training.labelled
    run(chosen, tmp_path / "run", resume=True)
    with pytest.raises(HebbsegError, match="select: 'typical' then, 'random' now"):
        run(chosen.changed(select="random"), tmp_path / "run", resume=True)


def listed_glands():
    from hebbseg.data.sources import open_source

    return open_source(GLANDS)
