import torch
from torch import nn

from hebbseg import UNet
from hebbseg.training.ema import WeightAverage, recalibrate_norms


def test_average_follows_its_equation() -> None:
    net = nn.Linear(2, 1, bias=False)
    average = WeightAverage(net, decay=0.6)
    expected = net.weight.detach().clone()
    for n in range(20):
        with torch.no_grad():
            net.weight.add_(1.0)
        average.include(net)
        d = min(0.6, (1 + n) / (10 + n))
        expected = d * expected + (1 - d) * net.weight.detach()
        torch.testing.assert_close(average.network.weight.detach(), expected)
    assert not average.network.weight.requires_grad


def test_average_goes_on_from_its_state() -> None:
    net = nn.Linear(2, 1)
    one, two = WeightAverage(net, 0.9), WeightAverage(nn.Linear(2, 1), 0.9)
    for _ in range(3):
        nn.init.normal_(net.weight)
        one.include(net)
    two.load_state_dict(one.state_dict())
    nn.init.normal_(net.weight)
    one.include(net)
    two.include(net)
    assert torch.equal(one.network.weight, two.network.weight)


def test_recalibrated_statistics_are_those_of_the_images() -> None:
    net = UNet(features=(4, 6), seed=0).train()
    images = [torch.randn(4, 3, 8, 8) * 3 + 1 for _ in range(3)]
    before = [m.training for m in net.modules()]
    recalibrate_norms(net, images)
    norm = net.encoder.level0.norm1
    with torch.no_grad():
        seen = torch.stack([net.encoder.level0.conv1(x).mean((0, 2, 3)) for x in images]).mean(0)
    torch.testing.assert_close(norm.running_mean, seen, rtol=1e-4, atol=1e-5)
    assert [m.training for m in net.modules()] == before
    assert norm.momentum == 0.1


def test_a_network_without_batch_norm_is_left_alone() -> None:
    net = UNet(features=(4, 6), norm="instance")

    def never() -> list[torch.Tensor]:
        raise AssertionError("asked for images in vain")
        yield

    recalibrate_norms(net, never())
