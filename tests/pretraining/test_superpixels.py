"""Superpixel episodes: segments, their cache, prototypes and both episodes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hebbseg import UNet
from hebbseg.config import PretrainSettings
from hebbseg.data.augment.geometry import Geometry
from hebbseg.data.augment.intensity import Photometry
from hebbseg.data.augment.views import Augment
from hebbseg.errors import HebbsegError
from hebbseg.pretraining.pretext import train_pretext
from hebbseg.pretraining.superpixels import SuperpixelEpisodes, coarse, episode_logits, pseudo_masks, superpixels
from tests.literal import methods as literal
from tests.methods.tiny import network
from tests.pretraining.tissue import generator, pretext_images, tissue

STILL = Photometry(chance=0.0, brightness=0, contrast=0, gamma=0, noise=0, blur=0)


def segmented(images: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.from_numpy(superpixels(image, "auto")) for image in images.numpy()])


# Segments


def test_superpixels_are_segments_not_single_pixels():
    for image in tissue(size=64).numpy():
        numbers = superpixels(image, "auto")
        sizes = np.bincount(numbers.ravel())[1:]
        assert numbers.min() == 1 and 3 < len(sizes) < 100 and sizes.min() >= 0.006 * 64 * 64 - 1


def test_a_bright_square_is_a_superpixel_in_2d_and_3d():
    for size in ((40, 40), (16, 21, 24)):
        image = np.random.default_rng(0).normal(0, 0.02, (2, *size))
        square = np.zeros(size, dtype=bool)
        square[tuple(slice(4, 14) for _ in size)] = True
        image[:, square] += 1
        segments = superpixels(image, "auto")
        assert segments.shape == size
        inside = np.bincount(segments[square])
        covered = np.isin(segments, np.flatnonzero(inside > 0.5 * np.bincount(segments.ravel())[: len(inside)]))
        assert (covered == square).mean() > 0.97


def test_segments_of_a_large_volume_have_the_size_that_fits_a_patch():
    volume = np.random.default_rng(0).normal(0, 1, (1, 32, 32, 32))
    small, large = (len(np.unique(superpixels(volume, "auto", window))) for window in (16**3, 32**3))
    assert small > 4 * large
    wide = np.random.default_rng(0).random((1, 64, 64))
    sizes = np.bincount(superpixels(wide, "auto", window=32 * 32).ravel())[1:]
    assert sizes.min() >= int(0.006 * 32 * 32) and sizes.min() < 0.006 * 64 * 64 - 1


def test_chosen_segments_are_neither_tiny_nor_huge_and_one_grey_has_one_too():
    segments = segmented(torch.cat([tissue(size=64), torch.full((1, 3, 64, 64), 0.5)]))
    masks = pseudo_masks(segments, generator())
    shares = masks.flatten(1).float().mean(1)
    assert masks.shape == (5, 64, 64) and set(masks.unique().tolist()) == {0, 1}
    assert ((shares[:4] >= 0.006) & (shares[:4] <= 0.3)).all() and shares[4] == 1
    assert not torch.equal(masks, pseudo_masks(segments, generator(1)))


def test_padding_and_segments_outside_the_patch_are_never_chosen():
    segments = torch.zeros(1, 8, 8, dtype=torch.int16)
    segments[0, :7] = 9  # 0 is padding; 1 … 8 do not occur, and 9 is larger than suitable
    for seed in range(5):
        assert torch.equal(pseudo_masks(segments, generator(seed)), (segments == 9).long())


# Cached segments


@pytest.mark.parametrize("patch", [None, (24, 20)])
@pytest.mark.parametrize("augmented", [False, True])
def test_cached_segments_are_those_of_the_whole_image_moved_with_it(patch, augmented):
    """Flips and quarter turns move the segments as they move the image, so an image of segment numbers equals its map."""
    turns = Augment(spatial_dims=2, geometry=Geometry(free=0.0), weak_light=STILL) if augmented else None
    images = pretext_images(6, patch=patch, augment=turns)
    task = SuperpixelEpisodes(network=network())
    fresh = {
        name: superpixels(images.batches.store.images([name])[0].numpy(), "auto", 480 if patch else 1024) for name in images.ids
    }
    places = torch.arange(1024, dtype=torch.int32).reshape(32, 32)
    for step in (0, 1, 5):
        batch, segments = images.batch(step, task.segment)
        assert torch.equal(batch, images.batch(step, None)[0])  # the segments change nothing in the images
        assert segments.dtype == torch.int16 and segments.shape == (4, *batch.shape[2:])
        _, moved = images.batches.images_with_maps(step, lambda name: places)  # where each pixel comes from
        for name, ours, where in zip(images.batches.image_ids(step), segments, moved):
            np.testing.assert_array_equal(ours.numpy(), fresh[name].ravel()[where.numpy()])
            image = images.batches.store.images([name])[0].flatten(1)[:, where.flatten()]
            assert any(torch.equal(image, b.flatten(1)) for b in batch)


def test_a_patch_beyond_the_image_has_no_segment_there():
    images = pretext_images(2, patch=(40, 32))
    batch, segments = images.batch(0, SuperpixelEpisodes(network=network()).segment)
    assert batch.shape == (4, 3, 40, 32)
    assert (segments[:, :4] == 0).all() and (segments[:, 36:] == 0).all() and (segments[:, 4:36] > 0).all()


def test_free_transformations_move_segments_by_nearest_neighbor():
    images = pretext_images(4, augment=Augment(spatial_dims=2, geometry=Geometry(free=1.0)))
    task = SuperpixelEpisodes(network=network())
    batch, segments = images.batch(0, task.segment)
    store = images.batches.store
    whole = torch.stack([images.segments[name] for name in images.batches.image_ids(0)])
    # Again by hand, with the generator of this batch.
    from hebbseg.data.batches import _generator

    expected, moved = images.batches.augment.weak(store.images(images.batches.image_ids(0)), whole, _generator(0, "images", 0))
    assert torch.equal(batch, expected) and torch.equal(segments, moved)


@pytest.mark.parametrize("epochs", [3, "auto"])
def test_each_image_is_segmented_once(epochs, monkeypatch):
    monkeypatch.setattr("hebbseg.pretraining.pretext.RISE_STEPS", 2)
    monkeypatch.setattr("hebbseg.pretraining.pretext.MAX_STEPS", 12)
    monkeypatch.setattr("hebbseg.pretraining.pretext.EPOCHS", 4)
    monkeypatch.setattr("hebbseg.pretraining.pretext.INTERVAL", (3, 3))
    calls = []

    def counted(image, kind, window=None):
        calls.append(image.tobytes())
        return superpixels(image, kind, window)

    monkeypatch.setattr("hebbseg.pretraining.superpixels.superpixels", counted)
    images = pretext_images(12)
    for seed in (0, 1):  # the second network uses the segments of the first
        task = SuperpixelEpisodes(network=UNet(features=(4, 6), seed=seed))
        train_pretext(task, replace(images), PretrainSettings(init="superpix", epochs=epochs))
    assert len(calls) == len(set(calls)) == 12


def test_volumes_are_segmented_whole():
    images = pretext_images(2, kind="atrium", patch=(24, 24, 16), image_batch=2)
    task = SuperpixelEpisodes(network=UNet(spatial_dims=3, in_channels=1, features=(4, 6), seed=0))
    batch, segments = images.batch(0, task.segment)
    assert segments.shape == batch.shape[:1] + batch.shape[2:] == (2, 24, 24, 16)
    assert {tuple(each.shape) for each in images.segments.values()} == {images.batches.store.image(images.ids[0]).shape[1:]}
    terms = task.loss(batch, 0.5, generator(), segments)
    assert all(term.isfinite() for term in terms.values())


# Episodes


def test_prototypes_and_logits_by_hand():
    support, query = torch.randn(2, 4, 5, 8, 8, generator=generator(), dtype=torch.float64)
    masks = torch.zeros(4, 8, 8, dtype=torch.float64)
    masks[0, 1:5, 1:7], masks[1, 5:, 6:], masks[2, :, :] = 1, 1, 1  # some covered cells; none; all of them
    masks[3] = torch.rand(8, 8, generator=generator(1))  # partial coverage: neither segment nor background cells
    for cells in (2, 4):
        logits = episode_logits(support, masks, query, cells).numpy()
        for b in range(4):
            expected = literal.episode(support[b].numpy(), masks[b].numpy(), query[b].numpy(), cells)
            np.testing.assert_allclose(logits[b], expected, rtol=1e-9, atol=1e-12)


def test_both_episodes_by_hand():
    task = SuperpixelEpisodes(network=network(), prototypes=4).double()
    images = torch.rand(1, 2, 16, 16, dtype=torch.float64, generator=generator())
    segments = segmented(images)
    terms = task.loss(images, 0.5, generator(2), segments)
    again = generator(2)
    masks = pseudo_masks(segments, again)
    copies, moved = task.augment.weak(images, masks, again)
    copies = task.augment.strong(copies, again)
    with torch.no_grad():
        support, query = (coarse(task.network.decoder(task.network.encoder(x))[-1])[0].numpy() for x in (images, copies))
    cover = coarse(masks.unsqueeze(1).double())[0, 0].numpy()
    found = literal.episode(support, cover, query, 2)
    back = literal.episode(query, found.argmax(0).astype(float), support, 2)
    for name, logits, mask, weights in (("episode", found, moved, (0.05, 1.0)), ("reversed", back, masks, (1.0, 1.0))):
        large = torch.nn.functional.interpolate(torch.from_numpy(logits)[None], size=(16, 16), mode="bilinear")[0]
        expected = literal.weighted_cross_entropy(large.numpy(), mask[0].numpy(), weights)
        assert terms[name].item() == pytest.approx(expected)


def test_the_segment_is_found_where_its_features_are():
    masks = torch.zeros(1, 8, 8, dtype=torch.int64)
    masks[0, 2:5, 2:5] = 1
    features = torch.stack([masks[0], 1 - masks[0]]).double().unsqueeze(0)
    moved = features.roll((2, 1), dims=(2, 3))
    assert torch.equal(episode_logits(features, masks, moved, 4).argmax(1), masks.roll((2, 1), dims=(1, 2)))
    for extreme in (torch.ones_like(masks), torch.zeros_like(masks)):
        assert episode_logits(features, extreme, moved, 4).isfinite().all()


@pytest.mark.parametrize("dims", [2, 3])
def test_episodes_teach_encoder_and_decoder(dims):
    task = SuperpixelEpisodes(network=network(dims=dims)).double()
    assert task.cells == {2: 8, 3: 4}[dims]
    images = torch.rand(2, 2, *(16, 12, 8)[:dims], dtype=torch.float64)
    for name in ("episode", "reversed"):
        task.zero_grad()
        term = task.loss(images, 0.5, generator(), segmented(images))[name]
        term.backward()
        assert term.isfinite()
        assert all((p.grad is None) == name.startswith("head") for name, p in task.network.named_parameters())


def test_felzenszwalb_is_for_pictures():
    with pytest.raises(HebbsegError, match="segments='felzenszwalb': for 2D only"):
        SuperpixelEpisodes(network=network(dims=3), segments="felzenszwalb")
