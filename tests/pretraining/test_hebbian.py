import copy

import pytest
import torch
from torch import Tensor, nn

from hebbseg import Plasticity, SoftWTA, UNet
from hebbseg.config import PretrainSettings
from hebbseg.pretraining.hebbian import pretrain
from hebbseg.pretraining.initializers import Context, hebbian, random_rescaled
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.session import Session

SMALL = {"features": (4, 6), "seed": 0}


def images(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return nn.functional.avg_pool2d(torch.rand(4, 3, 20, 20, generator=generator), 5, stride=1)


def learn(net: nn.Module, *, layers=None, steps_per_epoch=1, session=None, **settings):
    """Stage 1 with these settings, without early stopping."""
    chosen = PretrainSettings(**({"settle": 0} | settings))
    return pretrain(net, images, chosen, layers=layers, steps_per_epoch=steps_per_epoch, session=session)


def learned(**options) -> tuple[nn.Module, list[dict]]:
    net = UNet(**SMALL)
    return net, learn(net, **options).history


@pytest.mark.parametrize("layerwise", [True, False])
@pytest.mark.parametrize("rule", ["swta", "hpca", "hebb"])
def test_chosen_layers_learn_and_the_others_do_not(rule: str, layerwise: bool) -> None:
    net, history = learned(rule=rule, layers=("encoder",), layerwise=layerwise, epochs=2, steps_per_epoch=3)
    plain = UNet(**SMALL)
    for (name, new), old in zip(net.named_parameters(), plain.parameters()):
        changed = not torch.equal(new, old)
        assert changed == (name.startswith("encoder") and ".conv" in name), name
        assert new.isfinite().all()
    assert len(history) == (4 if layerwise else 1) * 2
    assert all(row["moved"] > 0 for row in history)


def test_the_result_is_a_plain_state_dict_with_plain_norms() -> None:
    net, _ = learned(epochs=1, steps_per_epoch=4)
    plain = UNet(**SMALL)
    plain.load_state_dict(net.state_dict(), strict=True)
    fresh = UNet(**SMALL)
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d) and name != "head":
            norms = module.weight.detach().flatten(1).norm(dim=1)
            expected = fresh.get_submodule(name).weight.detach().flatten(1).norm(dim=1).mean()
            torch.testing.assert_close(norms, expected.expand_as(norms))
    assert not any(module._forward_hooks for module in net.modules())


def test_a_pass_ends_behind_the_last_plastic_layer() -> None:
    net, calls = UNet(**SMALL), []
    net.decoder.register_forward_hook(lambda *_: calls.append(1))
    learn(net, layers=("encoder",), layerwise=False, epochs=1, steps_per_epoch=5)
    assert len(calls) == 1  # the look at which layer is the last


class CalledTwice(nn.Module):
    """Its last plastic layer works twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.again = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.passes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        once = self.again(self.first(x))
        self.passes.append(1)
        return self.again(once)


def test_a_layer_that_is_called_twice_is_not_cut_short() -> None:
    net = CalledTwice()
    learn(net, layerwise=False, epochs=1, steps_per_epoch=5)
    assert len(net.passes) == 6


def test_modes_are_given_back() -> None:
    net = UNet(**SMALL).eval()
    learn(net, epochs=1, steps_per_epoch=1)
    assert not any(module.training for module in net.modules())


def test_layers_that_have_settled_end_early() -> None:
    calls = []
    session = Session(report=lambda done, total, row: calls.append((done, total)))
    _, history = learned(layers=("encoder.level0.conv1",), epochs=30, steps_per_epoch=2, settle=0.5, session=session)
    assert len(history) < 30
    assert history[-1]["moved"] < 0.5 and all(row["moved"] >= 0.5 for row in history[:-1])
    assert calls[-1][1] == 60


@pytest.mark.parametrize("layerwise", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_going_on_from_any_saved_state_ends_in_the_same_weights(layerwise: bool, optimizer: str) -> None:
    rate = 1.0 if optimizer == "sgd" else 0.01
    stage = {"epochs": 2, "steps_per_epoch": 2, "layers": ("encoder",), "layerwise": layerwise}
    stage |= {"optimizer": optimizer, "rate": rate}
    states: list[dict] = []
    whole, history = learned(**stage, session=Session(save=lambda make, now: states.append(copy.deepcopy(make()))))
    assert len(states) == len(history)
    for state in states:
        net = UNet(features=(4, 6), seed=99)
        again = learn(net, **stage, session=Session(state=state))
        assert again.history == history
        for name, value in whole.state_dict().items():
            if "running" not in name and "tracked" not in name:  # recalibrated afterwards in any case
                assert torch.equal(value, net.state_dict()[name]), name


def test_a_request_stops_it() -> None:
    request = Request()
    request.made = True
    with pytest.raises(Interrupted):
        learned(epochs=1, steps_per_epoch=2, session=Session(request=request))


def test_absolute_steps_are_the_rule_times_the_learning_rate() -> None:
    literal = {"unit_norm": False, "center": False, "standardize": False, "whiten": None, "restore_norms": False}
    net = UNet(**SMALL)
    learn(
        net,
        layers=("encoder.level0.conv1",),
        steps_per_epoch=2,
        epochs=2,
        rate=0.5,
        step="absolute",
        schedule="step",
        **literal,
    )
    plain = UNet(**SMALL)
    plain.train()
    weight = plain.get_submodule("encoder.level0.conv1").weight
    for step, rate in enumerate((0.5, 0.05, 0.005, 0.0005)):  # divided by 10 after each quarter
        with torch.no_grad(), Plasticity(plain, SoftWTA(temperature=0.1), layers=("encoder.level0.conv1",)) as plasticity:
            plain(images(step))
            weight += rate * plasticity.updates()["encoder.level0.conv1"]
    torch.testing.assert_close(net.get_submodule("encoder.level0.conv1").weight, weight)


def control_and_learned(**settings) -> tuple[nn.Module, nn.Module, nn.Module]:
    """The control, the network after Hebbian learning, and their common random initialization."""
    chosen = PretrainSettings(part="all", levels="all", layerwise=False, epochs=2, settle=0, **settings)
    context = Context(images=images, calibration=lambda: [images(9)], settings=chosen, steps_per_epoch=2)
    networks = UNet(**SMALL), UNet(**SMALL), UNet(**SMALL)
    random_rescaled(networks[0], context)
    hebbian(networks[1], context)
    return networks


def filters(net: nn.Module) -> dict[str, Tensor]:
    """Unit weights of each plastic layer, (units, size)."""
    plastic = Plasticity(net, SoftWTA()).plastic_layers
    return {name: layer.rows(layer.weight).flatten(0, -2) for name, layer in plastic.items()}


@pytest.mark.parametrize("restore", [True, False])
def test_the_control_has_the_norms_after_learning_and_the_directions_before(restore: bool) -> None:
    literal = {} if restore else {"unit_norm": False, "center": False, "standardize": False, "whiten": None, "step": "absolute"}
    control, learned, initial = map(filters, control_and_learned(restore_norms=restore, rate=0.3, **literal))
    assert control.keys() == learned.keys() == initial.keys()
    for name, rows in control.items():
        torch.testing.assert_close(rows.norm(dim=1), learned[name].norm(dim=1), msg=name)
        torch.testing.assert_close(nn.functional.cosine_similarity(rows, initial[name]), torch.ones(len(rows)), msg=name)
        assert not torch.allclose(rows, learned[name]), name
