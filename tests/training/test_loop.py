import copy
import itertools

import pytest
import torch
from lightning_fabric import Fabric

from hebbseg import UNet
from hebbseg.config import FinetuneSettings
from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import make_split
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.methods.supervised import Supervised
from hebbseg.networks.modes import without_dropout
from hebbseg.training import loop
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.loop import fit
from hebbseg.training.session import Session


@pytest.fixture(scope="module")
def batches() -> Batches:
    source = open_source("phantom:glands?n=12&size=32")
    training = make_split(source, labelled="4").training
    store = CaseStore.for_training(source, training, preprocessing=Preprocessing(size=(32, 32), normalize="unit"))
    return Batches(
        store=store, training=training, steps=99, labelled_batch=4, unlabelled_batch=0, augment=Augment(spatial_dims=2)
    )


def method(**options) -> Supervised:
    network = UNet(features=(4, 8), seed=0)
    return Supervised(network=network, another=lambda: UNet(features=(4, 8)), loss=options.pop("loss", "dice+ce"), **options)


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("optimizer, rate", [("adamw", 1e-2), ("sgd", 0.2)])
@pytest.mark.parametrize("loss", ["dice", "dice+ce"])
def test_loss_goes_down(batches: Batches, optimizer: str, rate: float, loss: str) -> None:
    settings = FinetuneSettings(updates=40, optimizer=optimizer, learning_rate=rate)
    _, rows = fit(method(loss=loss), batches, settings, rows=8)
    assert [row["step"] for row in rows] == list(range(5, 41, 5))
    assert rows[-1]["loss"] < 0.9 * rows[0]["loss"]


def test_mixed_precision_sees_the_images_as_they_are(batches: Batches) -> None:
    seen = []

    class Looking(Supervised):
        def loss(self, labelled, unlabelled, step):
            seen.append((labelled.images.dtype, self.network(labelled.images).dtype))
            return super().loss(labelled, unlabelled, step)

    network = UNet(features=(4, 8), seed=0)
    looking = Looking(network=network, another=lambda: network, loss="dice+ce")
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    kept, rows = fit(looking, batches, FinetuneSettings(updates=40, learning_rate=1e-2), fabric=fabric, rows=8)
    assert set(seen) == {(torch.float32, torch.bfloat16)}
    assert rows[-1]["loss"] < 0.9 * rows[0]["loss"] and weights(kept).dtype == torch.float32


def test_same_seed_same_weights_other_seed_other_weights(batches: Batches) -> None:
    a, b, c = (weights(fit(method(), batches, FinetuneSettings(updates=3), seed=seed)[0]) for seed in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_going_on_from_any_update_ends_in_the_same_weights_and_history(batches: Batches) -> None:
    settings = FinetuneSettings(updates=8, validate_every=3)
    scores = lambda network: float(weights(network).sum())  # noqa: E731
    states: list[dict] = []

    def save(make, now: bool) -> None:
        states.append(copy.deepcopy(make()))

    whole, rows = fit(method(), batches, settings, session=Session(save=save), validate=scores, rows=4)
    for state in states[:-1]:
        again, same_rows = fit(
            method(), batches, settings, session=Session(state=copy.deepcopy(state)), validate=scores, rows=4
        )
        assert torch.equal(weights(again), weights(whole))
        assert same_rows == rows


def test_averaged_weights_are_kept_unless_switched_off(batches: Batches) -> None:
    m = method()
    kept, _ = fit(m, batches, FinetuneSettings(updates=5, ema=0.9))
    assert kept is not m.network and not torch.equal(weights(kept), weights(m.network))
    m = method()
    kept, _ = fit(m, batches, FinetuneSettings(updates=5, ema=0.0))
    assert kept is m.network


def test_best_on_validation_is_kept_and_patience_ends_it(batches: Batches) -> None:
    seen: list[torch.Tensor] = []
    scores = iter([0.5, 0.7, 0.6, 0.6, 0.6, 0.9])

    def validate(network: torch.nn.Module) -> float:
        seen.append(weights(network).clone())
        return next(scores)

    kept, rows = fit(method(), batches, FinetuneSettings(updates=60, validate_every=2, patience=3), validate=validate, rows=60)
    assert len(seen) == 5  # the sixth look, at 0.9, is never taken
    assert torch.equal(weights(kept), seen[1])
    assert [row["dice"] for row in rows if "dice" in row] == [0.5, 0.7, 0.6, 0.6, 0.6]


def test_without_patience_training_never_stops_early(batches: Batches) -> None:
    scores = iter([0.9] + [0.1] * 29)
    seen: list[torch.Tensor] = []

    def validate(network: torch.nn.Module) -> float:
        seen.append(weights(network).clone())
        return next(scores)

    kept, _ = fit(method(), batches, FinetuneSettings(updates=60, validate_every=2, patience=None), validate=validate)
    assert len(seen) == 30
    assert torch.equal(weights(kept), seen[0])


def test_a_time_limit_before_the_first_validation_still_validates_the_network(batches: Batches) -> None:
    seen: list[torch.Tensor] = []

    def validate(network: torch.nn.Module) -> float:
        seen.append(weights(network).clone())
        return 0.5

    kept, _ = fit(method(), batches, FinetuneSettings(updates=100, time_budget_s=1e-9), validate=validate)
    assert len(seen) == 1 and torch.equal(weights(kept), seen[0])


def gradient_at(start: torch.Tensor, batches: Batches, number: int) -> torch.Tensor:
    """The gradient of update ``number`` at these weights; the networks here have no dropout."""
    current, batch = method(), batches.batch(number)
    torch.nn.utils.vector_to_parameters(start, current.network.parameters())
    with without_dropout(current.train()):
        current.criterion(current.network(batch.images), batch.masks).backward()
    return torch.cat([p.grad.flatten() for p in current.network.parameters()])


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_sgd_is_plain_sgd_with_momentum(batches: Batches, momentum: float) -> None:
    fixed = {"optimizer": "sgd", "schedule": "constant", "warm_up": 0.0, "ema": 0.0, "clip": None, "weight_decay": 0.0}
    settings = [FinetuneSettings(updates=n, momentum=momentum, learning_rate=0.1, **fixed) for n in (1, 2)]
    one, two = (weights(fit(without_drop(method()), batches, each)[0]) for each in settings)
    start = weights(method().network)
    v = gradient_at(start, batches, 0)
    torch.testing.assert_close(one, start - 0.1 * v)
    v = momentum * v + gradient_at(one, batches, 1)
    torch.testing.assert_close(two, one - 0.1 * v)


def without_drop(made: Supervised) -> Supervised:
    for module in made.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return made


def test_time_budget_ends_the_training_with_the_schedule(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock) / 100)  # each look at the clock takes 10 ms
    _, rows = fit(method(), batches, FinetuneSettings(updates=100_000, time_budget_s=1.0), rows=100_000)
    assert 2 <= len(rows) < 10_000
    assert rows[-1]["learning_rate"] < 0.3 * max(row["learning_rate"] for row in rows)


def test_with_a_time_budget_the_number_of_updates_is_estimated(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = itertools.count(), []
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock) / 100)
    session = Session(report=lambda done, total, row: seen.append((done, total)))
    fit(method(), batches, FinetuneSettings(updates=100_000, time_budget_s=1.0), session=session)
    done, total = seen[-1]
    assert total - 1 <= done <= total
    assert all(done <= expected for done, expected in seen) and abs(seen[len(seen) // 2][1] - total) <= 0.2 * total


def test_a_diverging_loss_stops_and_says_where(batches: Batches) -> None:
    m = method()
    with torch.no_grad():
        m.network.head.bias.fill_(float("nan"))
    before = weights(m.network).nan_to_num()
    with pytest.raises(HebbsegError, match=r"became nan at update 0.*Lower the learning rate"):
        fit(m, batches, FinetuneSettings(updates=3))
    assert torch.equal(weights(m.network).nan_to_num(), before)


def test_a_request_saves_and_stops(batches: Batches) -> None:
    request, states = Request(), []
    request.made = True
    with pytest.raises(Interrupted, match="after update 1 of 5"):
        session = Session(request=request, save=lambda make, now: states.append((make(), now)))
        fit(method(), batches, FinetuneSettings(updates=5), session=session)
    assert states[0][1] and states[0][0]["step"] == 1


def test_encoder_can_learn_slower_than_the_rest_or_not_at_all(batches: Batches) -> None:
    start = method().network
    moved = {}
    for rate in (0.0, 0.1, 1.0):
        network, _ = fit(method(), batches, FinetuneSettings(updates=3, encoder_rate=rate, ema=0))
        moved[rate] = {
            part: float((weights(getattr(network, part)) - weights(getattr(start, part))).norm())
            for part in ("encoder", "decoder", "head")
        }
    assert moved[0.0]["encoder"] == 0 < moved[0.1]["encoder"] < 0.3 * moved[1.0]["encoder"]
    assert min(moved[0.0]["decoder"], moved[0.0]["head"]) > 0


def test_prefetched_batches_give_the_same_weights(batches: Batches) -> None:
    ahead = copy.copy(batches)
    ahead.prefetch = True
    settings = FinetuneSettings(updates=4)
    a, b = (weights(fit(method(), each, settings)[0]) for each in (batches, ahead))
    assert torch.equal(a, b)
