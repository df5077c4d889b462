"""Pixels that are not annotated on their way from files to batches, and what check says about them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.cases import IGNORE, Case
from hebbseg.data.inspect import examine
from hebbseg.data.inspect_report import report
from hebbseg.data.patches import annotated_points, cut, foreground_points
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import TrainingCases
from hebbseg.data.store import CaseStore
from tests.data.arrays_source import ArraysSource
from tests.data.trees import disc, plain_folder, save


def scribbled(root: Path, names: str = "abc", full: str = "c") -> Path:
    """Masks 0/1; those not in ``full`` are 255 except in two rows."""
    plain_folder(root, names, masks="")
    for name in names:
        mask = disc(24, 32)
        if name not in full:
            mask[np.r_[:4, 6:14, 16:24]] = 255
        save(root / "masks" / f"{name}.png", mask)
    return root


def stored(masks: dict[str, np.ndarray], **options) -> Batches:
    cases = [Case(id=name, mask=() if name in masks else None) for name in "abcd"]
    shape = next(iter(masks.values())).shape
    images = {case.id: np.random.default_rng(0).random((1, *shape), np.float32) for case in cases}
    source = ArraysSource(cases, images=images, masks=masks)
    training = TrainingCases(labelled=tuple(masks), unlabelled=tuple(set("abcd") - set(masks)))
    store = CaseStore.for_training(source, training, preprocessing=Preprocessing(size=None, normalize="unit"))
    return Batches(store=store, training=training, steps=40, labelled_batch=4, unlabelled_batch=1, **options)


def test_points_are_of_annotated_pixels():
    mask = torch.full((20, 20), IGNORE)
    mask[3, 4], mask[5, 6:9] = 0, 2
    (points,) = foreground_points(mask)
    assert points.tolist() == [[5, 6], [5, 7], [5, 8]]
    found = annotated_points(mask)
    assert found is not None and found.tolist() == [[3, 4], [5, 6], [5, 7], [5, 8]]
    assert annotated_points(torch.zeros(3, 3)) is None
    nothing = annotated_points(torch.full((3, 3), IGNORE))
    assert nothing is not None and len(nothing) == 0


def test_patches_of_partial_masks_hold_an_annotated_pixel_and_are_not_annotated_beyond_the_image():
    partial = np.full((24, 24), IGNORE, np.uint8)
    partial[20, 2:5], partial[2, 3] = 1, 0
    batches = stored({"a": partial}, patch=(8, 8))
    assert all((masks != IGNORE).any(dim=(1, 2)).all() for masks in (batch.masks for batch in batches))
    batch = stored({"a": partial}, patch=(40, 40)).batch(0)
    assert (batch.masks != IGNORE).sum() == 4 * 4 and batch.images[:, :, 0].abs().max() == 0
    whole = stored({"a": np.where(partial == 1, 1, 0).astype(np.uint8)}, patch=(40, 40)).batch(0)
    assert set(torch.unique(whole.masks).tolist()) == {0, 1}
    assert torch.equal(cut(torch.ones(2, 2), (-1, 0), (2, 2), 7), torch.tensor([[7.0, 7.0], [1.0, 1.0]]))


def test_unlabelled_images_include_those_that_are_partly_annotated():
    partial, whole = np.full((8, 8), IGNORE, np.uint8), np.zeros((8, 8), np.uint8)
    partial[2, 2:5] = 1
    masks = {"a": partial, "b": whole, "c": partial}
    for pool, expected in (("unlabelled", {"a", "c", "d"}), ("all", {"a", "b", "c", "d"})):
        batches = stored(masks, patch=None, pool=pool)
        assert {name for batch in batches for name in batch.unlabelled_ids} == expected


@pytest.mark.parametrize("shape", [(24, 32), (10, 12, 14)])
def test_augmentation_moves_ignored_pixels_with_the_image(shape):
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(3, (6, *shape), generator=generator)
    masks[torch.rand(masks.shape, generator=generator) < 0.5] = IGNORE
    augment = Augment(spatial_dims=len(shape))
    images = torch.rand(6, 1, *shape, generator=generator)
    views = [augment.weak(images, m, torch.Generator().manual_seed(1))[1] for m in (masks, (masks == IGNORE).long())]
    assert torch.equal(views[0] == IGNORE, views[1] == 1)
    assert set(torch.unique(views[0]).tolist()) == {0, 1, 2, IGNORE}


def test_resizing_keeps_ignored_pixels():
    mask = np.zeros((60, 80), np.uint8)
    mask[:, 40:], mask[:30] = 1, IGNORE
    small = Preprocessing(size=(30, 40), normalize="unit").mask(mask)
    assert set(torch.unique(small).tolist()) == {0, 1, IGNORE} and (small[:15] == IGNORE).all()


def test_check_counts_what_is_annotated(tmp_path: Path):
    found = report(examine(open_source(scribbled(tmp_path), ignore=255)))
    assert [c["name"] for c in found["classes"]] == ["background", "foreground"] and found["problems"] == []
    assert found["partly_annotated"] == 2 and found["annotated"] == pytest.approx((24 + 2 * 4) / (3 * 24))
    assert sum(c["share"] for c in found["classes"]) == pytest.approx(1)
    asked = report(examine(open_source(tmp_path)))
    assert any(problem["fatal"] and "--ignore 255" in problem["remedy"] for problem in asked["problems"])


def test_a_mask_without_annotated_pixels_is_named_and_not_used(tmp_path: Path):
    root = scribbled(tmp_path)
    save(root / "masks" / "b.png", np.full((24, 32), 255, np.uint8))
    found = examine(open_source(root, ignore=255))
    (problem,) = found.problems
    assert problem.file.endswith("b.png") and "nothing is annotated" in problem.finding and not problem.fatal
    assert [case.has_mask for case in found.usable] == [True, False, True]
    for name in "ac":
        save(root / "masks" / f"{name}.png", np.full((24, 32), 255, np.uint8))
    given = examine(open_source(root, label_map="background=0;gland=1", ignore=255))
    assert any("nothing is annotated in all 3 masks" in problem.finding for problem in given.fatal)
    (detected,) = examine(open_source(root, ignore=255)).fatal
    assert detected.file.endswith("masks") and "nothing is annotated in all 3 masks" in detected.finding
