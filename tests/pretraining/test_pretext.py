"""The peers of Hebbian learning in stage 1."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from hebbseg import UNet
from hebbseg.config import PretrainSettings, make_settings
from hebbseg.data.batches import Batches
from hebbseg.errors import HebbsegError
from hebbseg.methods.ops import seed_of
from hebbseg.pretraining.initializers import INITIALIZERS, Context, check_init, initialize_network
from hebbseg.pretraining.pretext import Plan, check_pretext, make_optimizer, train_pretext, validation_loss
from hebbseg.pretraining.superpixels import SuperpixelEpisodes
from hebbseg.pretraining.vae import VariationalAutoEncoder, divergence, standardized
from hebbseg.runs.preflight import check_settings
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.session import Session
from tests.literal import methods as literal
from tests.methods.tiny import network
from tests.pretraining.tissue import generator, pretext_images, tissue

PRETEXTS = {"vae": VariationalAutoEncoder, "superpix": SuperpixelEpisodes}


def quick(name: str, *, seed: int = 0, features=(4, 6, 8)):
    return PRETEXTS[name](network=UNet(features=features, seed=seed))


def fixed(epochs: int, **options) -> PretrainSettings:
    return PretrainSettings(epochs=epochs, **options)


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


# Both


@pytest.mark.parametrize("name", PRETEXTS)
def test_the_loss_falls(name):
    images = pretext_images(8, image_batch=8)
    task = quick(name, features=(8, 12, 16, 24))
    before = validation_loss(task, images, 0)
    train_pretext(task, images, fixed(60))
    assert validation_loss(task, images, 0) < before - 0.1


@pytest.fixture
def short(monkeypatch):
    """Training until convergence, on a small scale."""
    for constant, value in {"RISE_STEPS": 4, "MAX_STEPS": 40, "EPOCHS": 2, "INTERVAL": (2, 2)}.items():
        monkeypatch.setattr(f"hebbseg.pretraining.pretext.{constant}", value)
    monkeypatch.setattr("hebbseg.pretraining.pretext_images.VIEWS", 4)


def recorded() -> tuple[Session, list]:
    states = []
    return Session(save=lambda make, now: states.append(copy.deepcopy(make()))), states


@pytest.mark.parametrize("epochs, at", [(3, 2), ("auto", 3), ("auto", 12), ("auto", -1)])
@pytest.mark.parametrize("name", PRETEXTS)
def test_stopped_and_resumed_it_ends_in_the_same_weights(name, epochs, at, short):
    images, settings = pretext_images(12), PretrainSettings(epochs=epochs)
    session, states = recorded()
    task = quick(name)
    global_state = torch.get_rng_state()
    history = train_pretext(task, images, settings, session=session)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert [row["step"] for row in history] == ([*range(1, 10)] if epochs == 3 else [*range(2, history[-1]["step"] + 1, 2)])
    other = quick(name, seed=1)
    again = train_pretext(other, pretext_images(12), settings, session=Session(state=states[at]))
    assert again == history
    for (key, a), b in zip(task.network.state_dict().items(), other.network.state_dict().values()):
        if not key.startswith("head"):
            assert torch.equal(a, b), key
    assert all(p.grad is None for p in task.parameters())


@pytest.mark.parametrize("name", PRETEXTS)
def test_until_convergence_the_weights_with_the_lowest_validation_loss_are_kept(name, short):
    images = pretext_images(12)
    session, states = recorded()
    task = quick(name)
    seed = seed_of(task.network)
    history = train_pretext(task, images, PretrainSettings(), session=session)
    losses = [row["validation"] for row in history if "validation" in row]
    assert next(row["step"] for row in history if "validation" in row) == 2 and len(losses) > 3
    assert validation_loss(task, images.held_out()[1], seed) == min(losses)
    # Held-out images are never trained on, and validation changes neither weights nor norm statistics.
    assert states[-1]["convergence"]["lowest"] == min(losses)


def test_training_stops_at_the_second_plateau_and_divides_the_rate_at_the_first(short, monkeypatch):
    """A loss that falls, rises, falls again after the first plateau, and rises: the step of the second fall is kept."""
    values = iter([9.0, 5.0, *[6.0] * 5, 4.0, *[7.0] * 5, *[0.0] * 9])
    monkeypatch.setattr("hebbseg.pretraining.pretext.validation_loss", lambda *_: next(values))
    session, states = recorded()
    totals = []
    session = replace(session, report=lambda done, total, row: totals.append((done, total)))
    task = quick("vae")
    history = train_pretext(task, pretext_images(12), PretrainSettings(rate=1e-3), session=session)
    assert [row["validation"] for row in history] == [5.0, *[6.0] * 5, 4.0, *[7.0] * 5]
    assert totals[-2:] == [(24, 40), (24, 24)]
    rates = [state["optimizer"]["param_groups"][0]["lr"] for state in states]
    assert rates[:11] == [1e-3] * 11 and rates[12:] == [pytest.approx(1e-4)] * 11 + [1e-3]  # a new optimizer at each plateau
    lowest, after_plateau = states[1]["pretext"], states[11]["pretext"]  # the first phase returns to its lowest loss
    assert all(torch.equal(value, lowest[key]) for key, value in after_plateau.items())
    assert any(not torch.equal(value, lowest[key]) for key, value in states[10]["pretext"].items())
    best = states[history[6]["step"] - 1]["pretext"]
    assert history[6]["validation"] == 4.0
    assert all(torch.equal(value, best[key]) for key, value in task.state_dict().items())


def test_a_constant_rate_stops_at_the_first_plateau(short, monkeypatch):
    values = iter([9.0, 5.0, *[6.0] * 20])
    monkeypatch.setattr("hebbseg.pretraining.pretext.validation_loss", lambda *_: next(values))
    history = train_pretext(quick("vae"), pretext_images(12), PretrainSettings(schedule="constant"))
    assert history[-1]["step"] == 12


def test_few_images_are_all_used_for_a_fixed_number_of_epochs(monkeypatch):
    monkeypatch.setattr("hebbseg.pretraining.pretext.EPOCHS", 5)
    seen = []
    images = pretext_images(9)
    original = Batches.images_only
    monkeypatch.setattr(Batches, "images_only", lambda self, step: (seen.extend(self.image_ids(step)), original(self, step))[1])
    history = train_pretext(quick("vae"), images, PretrainSettings())
    assert history[-1]["step"] == 15 and set(seen) == set(images.ids)
    assert not any("validation" in row for row in history)


def test_a_tenth_of_the_images_is_held_out_by_the_seed():
    images = pretext_images(24, image_batch=8)
    kept, held = images.held_out()
    assert len(held.ids) == 2 and sorted((*kept.ids, *held.ids)) == list(images.ids)
    drawn = {name for step in range(6) for name in kept.batches.image_ids(step)}
    assert drawn == set(kept.ids) and kept.steps_per_epoch == 3
    assert {name for step in range(3) for name in held.batches.image_ids(step)} == set(held.ids)
    assert images.held_out()[1].ids == held.ids != pretext_images(24, seed=1).held_out()[1].ids
    shown = list(held.validation(None))
    assert sum(len(batch) for batch, _ in shown) == 32
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(shown, held.validation(None)))


def test_the_form_of_the_paper(monkeypatch):
    """200 epochs over all images at 1e-3, divided by 10 after each quarter; the last weights."""
    rates = []
    session = Session(save=lambda make, now: rates.append(make()["optimizer"]["param_groups"][0]))
    settings = PretrainSettings(init="vae", epochs=200, rate=1e-3, optimizer="sgd", schedule="step")
    images = pretext_images(12, image_batch=12)
    task = quick("vae", features=(2, 2))
    states = []
    session = replace(session, report=lambda done, total, row: states.append((done, total)))
    history = train_pretext(task, images, settings, session=session)
    assert states[-1] == (200, 200) and len(history) == 20
    assert [round(group["lr"], 9) for group in rates] == [1e-3] * 50 + [1e-4] * 50 + [1e-5] * 50 + [1e-6] * 50
    assert {group["momentum"] for group in rates} == {0.9}


@pytest.mark.parametrize(
    "schedule, first, middle, last", [("auto", 0.5, 0.5, 0.0), ("linear", 1.0, 0.55, 0.1), ("constant", 1.0, 1.0, 1.0)]
)
def test_schedules(schedule, first, middle, last):
    plan = Plan.of(fixed(1000, rate=1.0, schedule=schedule), pretext_images(4))
    rates = [plan.rate_at(step, None) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01 if schedule == "auto" else first, abs=1e-3)
    assert max(rates) == pytest.approx(1.0, abs=1e-3) and rates[-1] == pytest.approx(last, abs=1e-3)
    assert min(rates) > 0


@pytest.mark.parametrize("name, cls", [("auto", "AdamW"), ("adamw", "AdamW"), ("adam", "Adam"), ("sgd", "SGD")])
def test_optimizers(name, cls):
    assert type(make_optimizer(name, [torch.nn.Parameter(torch.zeros(1))], 0.1)).__name__ == cls


def test_no_epoch_changes_nothing():
    task = quick("vae")
    before = copy.deepcopy(task.state_dict())
    assert train_pretext(task, pretext_images(), fixed(0)) == []
    assert all(torch.equal(value, before[key]) for key, value in task.state_dict().items())


def test_a_schedule_without_an_end_is_refused():
    with pytest.raises(HebbsegError, match=r"pretrain_schedule=cosine, pretrain_epochs=auto: init vae .*pretrain_epochs=200"):
        check_pretext(PretrainSettings(init="vae", schedule="cosine"))
    with pytest.raises(HebbsegError, match="pretrain_schedule=cosine"):
        check_settings(make_settings("d", {"init": "vae", "pretrain_schedule": "cosine"}))
    check_settings(make_settings("d", {"init": "vae", "pretrain_schedule": "cosine", "pretrain_epochs": 3}))


def test_divergence_is_reported():
    with pytest.raises(HebbsegError, match=r"loss of stage 1 \(reconstruction\) became nan at step \d+.*pretrain_rate"):
        train_pretext(quick("vae"), pretext_images(), fixed(30, rate=1e30, optimizer="sgd", schedule="constant"))


@pytest.mark.parametrize("name", PRETEXTS)
def test_as_an_initialisation(name):
    images = tissue()
    asked = Request()
    context = Context(
        images=lambda step: images,
        calibration=lambda: [images],
        settings=fixed(2),
        session=Session(request=asked),
        pretext_images=pretext_images(),
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
    assert check_init("vae", {"beta": "0.5", "latent": 7}) == {"latent": 7, "beta": 0.5}
    assert check_init("random") == check_init("hebbian", {}) == {}


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("vae", {"betta": 1}, "Init vae has no option 'betta'. Did you mean 'beta'"),
        ("superpix", {"segments": "grid"}, "Init superpix, option segments='grid'.*'auto', 'felzenszwalb' or 'slic'"),
        ("superpix", {"prototypes": 0}, "option prototypes=0 .*greater than or equal to 1"),
        ("vae", {"steps": 300}, "Init vae has no option 'steps'. .*pretrain_epochs"),
        ("superpix", {"rate": 0.1}, "Init superpix has no option 'rate'. .*pretrain_rate"),
        ("hebbian", {"beta": 1}, "init hebbian has no options"),
    ],
)
def test_bad_options_are_named(name, options, words):
    with pytest.raises(HebbsegError, match=words):
        check_init(name, options)
