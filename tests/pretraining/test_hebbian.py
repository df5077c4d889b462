import copy

import pytest
import torch
from torch import Tensor, nn

from hebbseg import UNet
from hebbseg.pretraining.hebbian import Stage1, pretrain
from hebbseg.training.interrupt import Interrupted, Request

SMALL = {"features": (4, 6), "seed": 0}


def images(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return nn.functional.avg_pool2d(torch.rand(4, 3, 20, 20, generator=generator), 5, stride=1)


def learned(stage: Stage1, **options) -> tuple[nn.Module, list[dict]]:
    net = UNet(**SMALL)
    return net, pretrain(net, images, stage, **options).history


@pytest.mark.parametrize("layerwise", [True, False])
@pytest.mark.parametrize("rule", ["swta", "hpca", "hebb"])
def test_chosen_layers_learn_and_the_others_do_not(rule: str, layerwise: bool) -> None:
    stage = Stage1(rule=rule, layers=("encoder",), layerwise=layerwise, epochs=2, steps_per_epoch=3)
    net, history = learned(stage)
    plain = UNet(**SMALL)
    for (name, new), old in zip(net.named_parameters(), plain.parameters()):
        changed = not torch.equal(new, old)
        assert changed == (name.startswith("encoder") and ".conv" in name), name
        assert new.isfinite().all()
    assert len(history) == (4 if layerwise else 1) * 2
    assert all(row["moved"] > 0 for row in history)


def test_the_result_is_a_plain_state_dict_with_plain_norms() -> None:
    net, _ = learned(Stage1(epochs=1, steps_per_epoch=4))
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
    pretrain(net, images, Stage1(layers=("encoder",), layerwise=False, epochs=1, steps_per_epoch=5))
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
    pretrain(net, images, Stage1(layerwise=False, epochs=1, steps_per_epoch=5))
    assert len(net.passes) == 6


def test_modes_are_given_back() -> None:
    net = UNet(**SMALL).eval()
    pretrain(net, images, Stage1(epochs=1, steps_per_epoch=1))
    assert not any(module.training for module in net.modules())


def test_layers_that_have_settled_end_early() -> None:
    calls = []
    stage = Stage1(layers=("encoder.level0.conv1",), epochs=30, steps_per_epoch=2, settle=0.5)
    net = UNet(**SMALL)
    history = pretrain(net, images, stage, report=lambda done, total, row: calls.append((done, total))).history
    assert len(history) < 30
    assert history[-1]["moved"] < 0.5 and all(row["moved"] >= 0.5 for row in history[:-1])
    assert calls[-1][1] == 60


@pytest.mark.parametrize("layerwise", [True, False])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_going_on_from_any_saved_state_ends_in_the_same_weights(layerwise: bool, optimiser: str) -> None:
    rate = 1.0 if optimiser == "sgd" else 0.01
    stage = Stage1(
        epochs=2, steps_per_epoch=2, layers=("encoder",), layerwise=layerwise, optimiser=optimiser, rate=rate
    )
    states: list[dict] = []
    whole, history = learned(stage, save=lambda state: states.append(copy.deepcopy(state)))
    assert len(states) == len(history)
    for state in states:
        net = UNet(features=(4, 6), seed=99)
        again = pretrain(net, images, stage, state=state)
        assert again.history == history
        for name, value in whole.state_dict().items():
            if "running" not in name and "tracked" not in name:  # recalibrated afterwards in any case
                assert torch.equal(value, net.state_dict()[name]), name


def test_a_request_stops_it() -> None:
    request = Request()
    request.made = True
    with pytest.raises(Interrupted):
        learned(Stage1(epochs=1, steps_per_epoch=2), request=request)
