"""Every method on the one loop: phantoms, several classes, volumes, and a restart in the middle."""

import copy

import pytest
import torch
from torch import nn

from hebbseg import UNet, methods
from hebbseg.config import FinetuneSettings
from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources.phantom import phantom
from hebbseg.data.splits.split import TrainingCases
from hebbseg.data.store import CaseStore
from hebbseg.methods import METHODS, make_method
from hebbseg.methods.base import Method
from hebbseg.training.loop import fit
from hebbseg.training.session import Session
from tests.methods.tiny import batch, method, step

STAGE = FinetuneSettings(updates=4)


@pytest.fixture(scope="module")
def glands() -> Batches:
    source = phantom("glands", n=8, size=32)
    names = [case.id for case in source.cases]
    training = TrainingCases(labelled=tuple(names[:2]), unlabelled=tuple(names[2:]), validation=())
    store = CaseStore.for_training(source, training, preprocessing=Preprocessing(size=None, normalize="unit"))
    augment = Augment(spatial_dims=2)
    return Batches(store=store, training=training, steps=99, labelled_batch=2, unlabelled_batch=3, augment=augment, patch=None)


def make(name: str, seed: int = 0) -> Method:
    def plain(seed: int) -> UNet:
        return UNet(features=(4, 6, 8), seed=seed)

    return make_method(name, network=plain(seed), another=lambda: plain(seed + 50), loss="dice+ce")


def weights(network: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in network.state_dict().items()}


@pytest.mark.parametrize("name", METHODS)
def test_stopped_and_resumed_it_ends_in_the_same_weights(name, glands):
    states = []
    method = make(name)
    before = weights(method.network)
    kept, rows = fit(
        method,
        glands,
        STAGE,
        session=Session(save=lambda state, now: states.append(copy.deepcopy(state()))),
        rows=4,
    )
    assert len(rows) == 4 and all(torch.isfinite(torch.tensor(row["loss"])) for row in rows)
    assert not torch.equal(before["encoder.level0.conv1.weight"], kept.state_dict()["encoder.level0.conv1.weight"])
    # Other initial weights: all that counts must be in the state.
    resumed, _ = fit(make(name, seed=9), glands, STAGE, session=Session(state=states[1]), rows=4)
    assert weights(kept).keys() == weights(resumed).keys() == UNet(features=(4, 6, 8)).state_dict().keys()
    for key, value in weights(kept).items():
        assert torch.equal(value, weights(resumed)[key]), key


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dims, classes", [(2, 4), (3, 3)])
def test_several_classes_and_volumes(name, dims, classes):
    m = method(name, dims=dims, classes=classes, norm="batch", dropout=None).train()
    labelled, u = batch(dims=dims, classes=classes, unlabelled=3)
    for number, progress in ((0, 0.0), (1, 0.5), (2, 1.0)):
        terms = m(labelled, u, step(number, progress))
        assert all(term.isfinite() and term.ndim == 0 for term in terms.values())
        sum(terms.values()).backward()
        m.after_step(step(number, progress))
    assert m.predict(u).shape == (3, classes, *u.shape[2:])


@pytest.mark.parametrize("name", METHODS)
def test_sizes_that_the_levels_cannot_halve(name):
    m = method(name).train()
    labelled, u = batch()
    labelled = labelled._replace(images=labelled.images[..., :7, :11], masks=labelled.masks[..., :7, :11])
    assert all(t.isfinite() for t in m(labelled, u[..., :7, :11], step()).values())


@pytest.mark.parametrize("name", ["em", "mean-teacher", "cps", "fixmatch"])
def test_every_draw_is_this_updates_own(name):
    m = method(name, dropout=0.5).train()
    labelled, u = batch()

    def once(seed: int) -> float:
        torch.manual_seed(seed)
        return sum(m(labelled, u, step(seed=seed)).values()).item()

    first = once(1)
    assert once(2) != first and once(1) == first


def test_a_method_is_a_file_and_a_line(monkeypatch, glands):
    """What a newcomer does: one class, one line in the dict; options, loop, restart and help come with it."""

    class Brighter(Method):
        """L = L_sup + weight · mean |p(x) − p(x + 0.1)| on unlabelled images.

        Options:
            weight: of the difference
        """

        def __init__(self, *, weight: float = 1.0, **parts) -> None:
            super().__init__(**parts)
            self.weight = weight

        def loss(self, labelled, unlabelled, step):
            difference = self.network(unlabelled).softmax(1) - self.network(unlabelled + 0.1).softmax(1)
            supervised = self.criterion(self.network(labelled.images), labelled.masks)
            return {"supervised": supervised, "difference": self.weight * difference.abs().mean()}

    monkeypatch.setitem(methods.METHODS, "brighter", Brighter)
    made = make_method("brighter", network=UNet(features=(4, 6, 8)), another=UNet, loss="dice", options={"weight": "0.5"})
    assert made.weight == 0.5
    assert "weight=1  (number) of the difference" in methods.method_help("brighter")
    _, rows = fit(made, glands, FinetuneSettings(updates=2), rows=2)
    assert {"supervised", "difference"} <= rows[0].keys()
