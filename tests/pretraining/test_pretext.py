"""The peers of Hebbian learning in stage 1."""

import copy
import math

import numpy as np
import pytest
import torch

from hebbseg import UNet
from hebbseg.config import PretrainSettings
from hebbseg.data.sources.phantom import phantom
from hebbseg.errors import HebbsegError
from hebbseg.pretraining.initializers import INITIALIZERS, Context, check_init, initialize_network
from hebbseg.pretraining.pretext import train_pretext
from hebbseg.pretraining.superpixels import SuperpixelEpisodes, episode_logits, pseudo_masks, superpixels
from hebbseg.pretraining.vae import VariationalAutoEncoder, divergence, standardized
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.session import Session
from tests.literal import methods as literal
from tests.methods.tiny import network

PRETEXTS = {"vae": VariationalAutoEncoder, "superpix": SuperpixelEpisodes}


def tissue(n: int = 4, size: int = 32) -> torch.Tensor:
    source = phantom("glands", n=n, size=size)
    return torch.stack([torch.from_numpy(source.image(case)).float() / 255 for case in source.cases])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quick(name: str, net: UNet, steps: int):
    return PRETEXTS[name](network=net, steps=steps)


# Variational auto-encoder


@pytest.mark.parametrize("dims", [2, 3])
def test_the_bound_by_hand(dims):
    vae = VariationalAutoEncoder(network=network(dims=dims), latent=3, beta=0.7).double()
    images = torch.rand(2, 2, *(8, 12, 4)[:dims], dtype=torch.float64, generator=generator())
    with torch.no_grad():
        for parameter in vae.new.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator(1)))
        terms = vae.loss(images, 0.25, generator(2))
        μ, v = vae.encode(images)
        z = μ + torch.exp(v / 2) * torch.randn(μ.shape, generator=generator(2))
        wanted, got = standardized(images).numpy(), vae.decode(z).numpy()
    D = images[0].numel()
    kl = literal.mean(literal.gaussian_divergence(μ.numpy(), v.numpy())) / D
    errors = [literal.mean(((a - b) ** 2).ravel().tolist()) for a, b in zip(wanted, got)]
    expected = literal.mean(0.5 * math.log(e + 1e-6) for e in errors)
    assert terms["divergence"].item() == pytest.approx(0.7 * 0.5 * kl)  # half of the ramp
    assert terms["reconstruction"].item() == pytest.approx(expected)


def test_divergence_from_itself_is_0():
    zero = torch.zeros(2, 3, 4, 4)
    assert divergence(zero, zero).tolist() == [0, 0]


@pytest.mark.parametrize("dims", [2, 3])
def test_no_skip_bypasses_the_latent(dims):
    """Two images of one latent have one reconstruction; and all of the decoder's input beside the latent is zero."""
    vae = VariationalAutoEncoder(network=network(dims=dims)).double().eval()
    skips = []
    for level in vae.network.decoder.children():
        level.register_forward_hook(lambda module, args, out: skips.append(args[1]))
    with torch.no_grad():
        for images in torch.rand(2, 1, 2, *(8, 12, 4)[:dims], dtype=torch.float64):
            vae.encode(images)
            got = vae.decode(torch.ones(1, 32, *(2, 3, 1)[:dims], dtype=torch.float64))
    assert got.shape == (1, 2, *(8, 12, 4)[:dims])
    assert len(skips) == 4 and all((skip == 0).all() for skip in skips)


def test_encoder_and_decoder_learn_from_the_reconstruction_and_the_head_does_not():
    vae = VariationalAutoEncoder(network=network()).double()
    vae.loss(torch.rand(2, 2, 8, 8, dtype=torch.float64), 0.5, generator())["reconstruction"].backward()
    named = dict(vae.network.named_parameters())
    assert all((p.grad is None) == name.startswith("head") for name, p in named.items())
    up = named["decoder.level0.block.conv1.weight"].grad
    assert (up[:, :4] == 0).all() and (up[:, 4:] != 0).any()  # the skip's half sees zeros


# Superpixels


def test_superpixels_are_segments_not_single_pixels():
    for image in tissue(size=64).numpy():
        sizes = np.bincount(superpixels(image, "auto").ravel())
        assert 3 < len(sizes) < 100 and sizes.min() >= 0.006 * 64 * 64 - 1


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


def test_chosen_segments_are_neither_tiny_nor_huge_and_one_grey_has_one_too():
    images = torch.cat([tissue(size=64), torch.full((1, 3, 64, 64), 0.5)])
    masks = pseudo_masks(images, "auto", generator())
    shares = masks.flatten(1).float().mean(1)
    assert masks.shape == (5, 64, 64) and set(masks.unique().tolist()) == {0, 1}
    assert ((shares[:4] >= 0.006) & (shares[:4] <= 0.3)).all() and shares[4] == 1
    assert not torch.equal(masks, pseudo_masks(images, "auto", generator(1)))


def test_episode_by_hand():
    support, query = torch.randn(2, 2, 5, 8, 8, generator=generator(), dtype=torch.float64)
    masks = torch.zeros(2, 8, 8, dtype=torch.int64)
    masks[0, 1:4, 1:7], masks[1, 5:, 6:] = 1, 1
    logits = episode_logits(support, masks, query, 4).numpy()
    for b in range(2):
        expected = literal.episode(support[b].numpy(), masks[b].numpy(), query[b].numpy(), 4)
        np.testing.assert_allclose(logits[b], expected, rtol=1e-9)


def test_the_segment_is_found_where_its_features_are():
    masks = torch.zeros(1, 8, 8, dtype=torch.int64)
    masks[0, 2:5, 2:5] = 1
    features = torch.stack([masks[0], 1 - masks[0]]).double().unsqueeze(0)
    moved = features.roll((2, 1), dims=(2, 3))
    assert torch.equal(episode_logits(features, masks, moved, 4).argmax(1), masks.roll((2, 1), dims=(1, 2)))
    everything = episode_logits(features, torch.ones_like(masks), moved, 4)
    assert everything.isfinite().all()


@pytest.mark.parametrize("dims", [2, 3])
def test_episodes_teach_encoder_and_decoder(dims):
    pretext = SuperpixelEpisodes(network=network(dims=dims)).double()
    assert pretext.cells == {2: 4, 3: 2}[dims]
    images = torch.rand(2, 2, *(16, 12, 8)[:dims], dtype=torch.float64)
    term = pretext.loss(images, 0.5, generator())["episode"]
    term.backward()
    assert term.isfinite()
    assert all((p.grad is None) == name.startswith("head") for name, p in pretext.network.named_parameters())


# Both


@pytest.mark.parametrize("name", PRETEXTS)
def test_the_loss_falls(name):
    images = tissue(8)
    pretext = quick(name, UNet(features=(8, 12, 16, 24), seed=0), 60)
    history = train_pretext(pretext, lambda step: images)
    term = {"vae": "reconstruction", "superpix": "episode"}[name]
    first, last = (literal.mean(row[term] for row in rows) for rows in (history[:3], history[-5:]))
    assert last < first - 0.05


@pytest.mark.parametrize("name", PRETEXTS)
def test_stopped_and_resumed_it_ends_in_the_same_weights(name):
    images = tissue()
    states = []
    net = UNet(features=(4, 6, 8), seed=0)
    global_state = torch.get_rng_state()
    history = train_pretext(
        quick(name, net, 6),
        lambda step: images,
        session=Session(save=lambda make, now: states.append(copy.deepcopy(make()))),
    )
    assert torch.equal(torch.get_rng_state(), global_state)
    assert [row["step"] for row in history] == [1, 2, 3, 4, 5, 6]
    other = UNet(features=(4, 6, 8), seed=1)
    again = train_pretext(quick(name, other, 6), lambda step: images, session=Session(state=states[2]))
    assert again == history
    for a, b in zip(net.parameters(), other.parameters()):
        if a is not net.head.weight and a is not net.head.bias:
            assert torch.equal(a, b)
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("name", PRETEXTS)
def test_as_an_initialisation(name):
    images = tissue()
    asked = Request()
    context = Context(
        images=lambda step: images,
        calibration=lambda: [images],
        settings=PretrainSettings(),
        options={"steps": 2},
        session=Session(request=asked),
    )
    net = UNet(features=(4, 6, 8), seed=0)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    result = initialize_network(name, net, context)
    after = net.state_dict()
    assert name in INITIALIZERS and len(result.history) == 2
    changed = {key for key in after if not torch.equal(after[key], before[key])}
    learned = {key for key in after if key.endswith(("conv1.weight", "conv2.weight", "up.weight"))}
    assert learned <= changed and not any(key.startswith("head") for key in changed)
    assert after.keys() == before.keys()
    assert all(layer.training for layer in net.modules())
    # Norm statistics are those of the images as the plain UNet sees them, skips and all.
    norm = net.decoder.level0.block.norm1
    seen = []
    net.decoder.level0.block.conv1.register_forward_hook(lambda module, args, out: seen.append(out))
    for layer in net.modules():
        layer.training = not isinstance(layer, torch.nn.Dropout)
    momentum = norm.running_mean.clone()
    net(images)
    torch.testing.assert_close(momentum, seen[0].mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    asked.made = True
    with pytest.raises(Interrupted):
        initialize_network(name, net, context)


def test_options_are_checked_and_get_their_types():
    assert {name for name, each in INITIALIZERS.items() if each.options} == set(PRETEXTS)
    assert check_init("vae", {"beta": "0.5", "steps": 7}) == {"latent": 32, "beta": 0.5, "steps": 7, "rate": 0.002}
    assert check_init("random") == check_init("hebbian", {}) == {}


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("vae", {"betta": 1}, "Init vae has no option 'betta'. Did you mean 'beta'"),
        ("superpix", {"segments": "grid"}, "Init superpix, option segments='grid'.*'auto', 'felzenszwalb' or 'slic'"),
        ("superpix", {"rate": 0}, "option rate=0 .*greater than 0"),
        ("hebbian", {"beta": 1}, "init hebbian has no options"),
    ],
)
def test_bad_options_are_named(name, options, words):
    with pytest.raises(HebbsegError, match=words):
        check_init(name, options)


def test_felzenszwalb_is_for_pictures():
    with pytest.raises(HebbsegError, match="segments='felzenszwalb': for 2D only"):
        SuperpixelEpisodes(network=network(dims=3), segments="felzenszwalb")
