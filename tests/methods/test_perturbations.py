"""Feature perturbations against their literal versions, and what each of them must and must not do."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.methods.adversarial import virtual_adversarial
from hebbseg.methods.perturbations import (
    channel_dropout,
    context_mask,
    feature_drop,
    feature_noise,
    guided_cutout,
    masked_out,
    object_mask,
)
from hebbseg.networks.heads import AuxiliaryDecoder
from tests.literal import perturbations as literal
from tests.methods.tiny import network

SIZES = [(6, 9), (4, 6, 5)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(size, channels: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(2, channels, *size, generator=seeded(seed), dtype=torch.float64) + 0.1


def blobs(size, count: int = 3, seed: int = 0) -> Tensor:
    """Class indices 0, 1, 2: boxes at random positions."""
    label = torch.zeros(count, *size, dtype=torch.long)
    generator = seeded(seed)
    for image in label:
        for index in (1, 2, 1):
            corner = [int(torch.randint(n - 2, (), generator=generator)) for n in size]
            sides = [int(torch.randint(2, 1 + n // 2, (), generator=generator)) for n in size]
            image[tuple(slice(c, c + n) for c, n in zip(corner, sides))] = index
    return label


@pytest.mark.parametrize("size", SIZES)
def test_random_perturbations_are_the_literal_ones(size):
    x = features(size)
    drawn = torch.rand(x.shape, generator=seeded(1)).double().numpy()
    np.testing.assert_allclose(feature_noise(x, seeded(1)), literal.noise(x.numpy(), drawn, 0.3), rtol=1e-6)
    drawn = torch.rand(x.shape[:2], generator=seeded(1)).numpy()
    np.testing.assert_allclose(channel_dropout(x, seeded(1)), literal.dropout(x.numpy(), drawn, 0.5))
    drawn = torch.rand(len(x), generator=seeded(1)).numpy()
    np.testing.assert_allclose(feature_drop(x, seeded(1)), literal.drop(x.numpy(), drawn, 0.6, 0.9))


@pytest.mark.parametrize("size, coarse", [((8, 12), (8, 12)), ((8, 12), (2, 3)), ((8, 4, 8), (4, 2, 4))])
def test_masks_are_the_literal_ones(size, coarse):
    label, x = blobs(size, count=2), features(coarse)
    np.testing.assert_array_equal(object_mask(x, label > 0), literal.object_mask(x.numpy(), label.numpy()))
    np.testing.assert_array_equal(context_mask(x, label > 0), literal.context_mask(x.numpy(), label.numpy()))


@pytest.mark.parametrize("size", SIZES)
def test_masks_select_objects_of_every_class_and_the_rest(size):
    label, x = blobs(size, count=2), features(size)
    inside = (label > 0).unsqueeze(1).expand_as(x)
    assert {1, 2} <= set(label.unique().tolist()) and not inside.all()
    objects, context = object_mask(x, label > 0), context_mask(x, label > 0)
    assert (objects[inside] == 0).all() and torch.equal(objects[~inside], x[~inside])
    assert (context[~inside] == 0).all() and torch.equal(context[inside], x[inside])


def test_masks_of_an_image_without_objects():
    x, nothing = features((4, 4)), torch.zeros(2, 8, 8, dtype=torch.bool)
    assert torch.equal(object_mask(x, nothing), x)
    assert (context_mask(x, nothing) == 0).all()
    assert not guided_cutout(nothing, seeded()).any()
    assert torch.equal(masked_out(x, guided_cutout(nothing, seeded())), x)


@pytest.mark.parametrize("size", [(20, 30), (10, 12, 14)])
def test_guided_cutout_is_the_literal_one(size):
    foreground = blobs(size, count=4) > 0
    generator = seeded(3)
    expected = literal.guided_cutout(
        foreground.numpy(), lambda n: int(torch.randint(n, (), generator=generator)), share=0.4, smallest=12
    )
    assert expected.any()
    np.testing.assert_array_equal(guided_cutout(foreground, seeded(3), smallest=12), expected)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [(40, 30), (16, 20, 14)])
def test_a_cut_out_box_lies_in_the_bounding_box_of_its_object(size, seed):
    foreground = torch.zeros(2, *size, dtype=torch.bool)
    ranges = [(3, 3 + n // 2) for n in size]
    foreground[(0, *(slice(a, b) for a, b in ranges))] = True
    foreground[(0, *(-1 for _ in size))] = True  # an object of one position has no box
    (cut, none) = guided_cutout(foreground, seeded(seed))
    assert not none.any() and cut.any()
    for axis, (a, b) in zip(cut.nonzero().T, ranges):
        assert a <= axis.min() and axis.max() < b
        assert axis.max() - axis.min() + 1 == int(0.4 * (b - a))
    assert int(cut.sum()) == np.prod([int(0.4 * (b - a)) for a, b in ranges])


def test_every_object_has_a_box():
    foreground = torch.zeros(1, 20, 60, dtype=torch.bool)
    foreground[0, 2:18, 3:15] = foreground[0, 5:15, 30:50] = True
    cut = guided_cutout(foreground, seeded())[0]
    assert int(cut[2:18, 3:15].sum()) == 6 * 4 and int(cut[5:15, 30:50].sum()) == 4 * 8 and int(cut.sum()) == 24 + 32
    assert torch.equal(cut, guided_cutout(foreground, seeded())[0])
    assert not torch.equal(cut, guided_cutout(foreground, seeded(1))[0])


def decoder_and_maps(dims: int = 2, scale: int = 1, **options) -> tuple[AuxiliaryDecoder, list[Tensor]]:
    net = network(dims=dims, **options)
    size = [scale * n for n in ((8, 12) if dims == 2 else (8, 4, 8))]
    images = torch.rand(2, 2, *size, generator=seeded(), dtype=torch.float64)
    return AuxiliaryDecoder(network=net, seed=5), [z.detach() for z in net.encoder(images)]


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_the_adversarial_perturbation_is_the_literal_one(dims, norm):
    decoder, maps = decoder_and_maps(dims, norm=norm)
    size = maps[0].shape[2:]
    drawn = torch.rand(maps[-1].shape, generator=seeded(2)).double().numpy()

    @torch.no_grad()
    def logits(z: np.ndarray) -> np.ndarray:
        return decoder([*maps[:-1], torch.from_numpy(z)], size).numpy()

    expected = literal.adversarial(maps[-1].numpy(), drawn, logits, ξ=0.01, ε=2.0)
    r = virtual_adversarial(maps, lambda m: decoder(m, size), seeded(2))
    np.testing.assert_allclose(r, expected, rtol=1e-4, atol=1e-6)


def divergences(decode, maps: list[Tensor], r: Tensor) -> Tensor:
    """KL of each image between the predictions without and with r."""
    with torch.no_grad():
        p, q = (F.log_softmax(decode([*maps[:-1], maps[-1] + s]), dim=1) for s in (torch.zeros_like(r), r))
    return (p.exp() * (p - q)).flatten(1).sum(1)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_adversarial_perturbation_has_its_norm_and_matters_more_than_a_random_one(dims, dtype):
    decoder, maps = decoder_and_maps(dims, scale=3)
    decoder, maps = decoder.to(dtype), [z.to(dtype) for z in maps]

    def decode(m):
        return decoder(m, maps[0].shape[2:])

    r = virtual_adversarial(maps, decode, seeded())
    assert r.dtype == dtype and not r.requires_grad
    assert r.flatten(1).norm(dim=1).tolist() == pytest.approx([2.0, 2.0], rel=1e-5)
    assert virtual_adversarial(maps, decode, seeded(), ε=0.1).flatten(1).norm(dim=1).tolist() == pytest.approx([0.1, 0.1])
    found = divergences(decode, maps, r)
    for seed in range(10):
        other = torch.randn(r.shape, generator=seeded(seed)).to(r)
        other *= 2 / other.flatten(1).norm(dim=1).reshape(-1, *(1,) * (r.ndim - 1))
        assert (found > divergences(decode, maps, other)).all()


def test_single_precision_finds_the_direction_of_double_precision():
    """With the original's ξ = 10⁻⁶ it does not."""
    net = network(features=(8, 16, 32))
    decoder = AuxiliaryDecoder(network=net, seed=5)
    with torch.no_grad():
        maps = net.encoder(torch.rand(2, 2, 32, 32, generator=seeded(), dtype=torch.float64))
    exact = virtual_adversarial(maps, lambda m: decoder(m, (32, 32)), seeded(), ξ=1e-6)
    decoder, maps = decoder.float(), [z.float() for z in maps]

    def cosines(ξ: float) -> Tensor:
        r = virtual_adversarial(maps, lambda m: decoder(m, (32, 32)), seeded(), ξ=ξ)
        return F.cosine_similarity(r.double().flatten(1), exact.flatten(1))

    assert (cosines(0.01) > 0.99).all()
    assert (cosines(1e-6) < 0.9).all()


def test_a_decoder_that_ignores_the_deepest_map_has_no_adversarial_perturbation():
    _, maps = decoder_and_maps()
    r = virtual_adversarial(maps, lambda m: m[0] + 0 * m[-1].sum(), seeded())
    assert r.shape == maps[-1].shape and (r == 0).all()
