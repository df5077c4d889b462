"""Attaching, gathering, writing, detaching; on our network, MONAI's and plain ones."""

import copy

import monai.networks.nets as monai_nets
import pytest
import torch
from torch import Tensor, nn

from hebbseg import Hebb, HebbianPCA, Plasticity, SoftWTA, UNet
from hebbseg.errors import HebbsegError
from hebbseg.hebbian.fast_softmax import CACHED

RULES = [Hebb(), SoftWTA(temperature=0.1), HebbianPCA()]
SMALL = {"features": (4, 6, 8), "dropout": 0.0}


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def small_net() -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(inplace=True), nn.ConvTranspose2d(5, 4, 3, stride=2))
    for parameter in net.parameters():
        parameter.data = draw(*parameter.shape, seed=parameter.numel(), dtype=torch.float32) * 0.3
    return net.double()


def updates(net: nn.Module, rule, *batches: Tensor, **options) -> dict[str, Tensor]:
    with Plasticity(net, rule, **options) as plasticity, torch.no_grad():
        for batch in batches:
            net(batch)
        return plasticity.updates()


def same(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-12) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- invariances


@pytest.mark.parametrize("transpose", ["s", "tsa", "tsa-literal"])
@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
def test_splitting_and_permuting_the_batch_change_nothing(rule, transpose: str) -> None:
    net, x = small_net(), draw(6, 3, 9, 7)
    whole = updates(net, rule, x, transpose=transpose)
    same(updates(net, rule, x[:1], x[1:4], x[4:], transpose=transpose), whole)
    same(updates(net, rule, x[torch.randperm(6)], transpose=transpose), whole)


def test_forwards_of_different_sizes_count_by_their_samples() -> None:
    net = nn.Conv2d(2, 3, 3).double()
    a, b = draw(1, 2, 5, 5, seed=1), draw(2, 2, 4, 7, seed=2)
    da, db = (updates(net, SoftWTA(temperature=0.3), x)[""] for x in (a, b))
    both = updates(net, SoftWTA(temperature=0.3), a, b)[""]
    torch.testing.assert_close(both, (9 * da + 20 * db) / 29)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
def test_repeating_the_image_keeps_the_update(rule) -> None:
    """Twice the resolution by repetition, with a window that sees no seam, has the same samples twice."""
    net = nn.Conv2d(2, 3, 2, stride=2).double()
    x = draw(2, 2, 8, 8)
    same(updates(net, rule, x.repeat(1, 1, 2, 2)), updates(net, rule, x))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
def test_groups_are_populations_of_their_own(rule) -> None:
    x = draw(2, 4, 6, 6)
    grouped = nn.Conv2d(4, 6, 3, groups=2, bias=False).double()
    whole = updates(grouped, rule, x)[""]
    for g in range(2):
        alone = nn.Conv2d(2, 3, 3, bias=False).double()
        alone.weight.data = grouped.weight.data[3 * g : 3 * g + 3]
        torch.testing.assert_close(updates(alone, rule, x[:, 2 * g : 2 * g + 2])[""], whole[3 * g : 3 * g + 3])


def test_a_layer_called_twice_in_one_forward_sees_both_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(2, 2, 3, padding=1).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.conv(x))

    net, x = Twice(), draw(2, 2, 9)
    with torch.no_grad():
        middle = net.conv(x)
    same(updates(net, SoftWTA(temperature=0.2), x), updates_of_conv(net.conv, x, middle))


def updates_of_conv(conv: nn.Module, *batches: Tensor) -> dict[str, Tensor]:
    return {"conv": updates(conv, SoftWTA(temperature=0.2), *batches)[""]}


def test_the_bias_takes_no_part() -> None:
    net, x = small_net(), draw(2, 3, 8, 8)
    bare = copy.deepcopy(net)
    first = updates(net[0], SoftWTA(temperature=0.1), x)
    nn.init.constant_(bare[0].bias, 7.0)
    same(updates(bare[0], SoftWTA(temperature=0.1), x), first, 1e-10)


# ---------------------------------------------------------------- values, gradients, traces


def test_updates_is_a_value_and_write_gradients_descends_to_it() -> None:
    net, x = small_net(), draw(2, 3, 8, 8)
    before = copy.deepcopy(net.state_dict())
    with Plasticity(net, SoftWTA()) as plasticity:
        net(x)
        first, second = plasticity.updates(), plasticity.updates()
        same(first, second)
        same(dict(net.state_dict()), dict(before))
        assert all(p.grad is None for p in net.parameters())
        plasticity.write_gradients()
        torch.optim.SGD(net.parameters(), lr=0.5).step()
    for name, update in first.items():
        torch.testing.assert_close(net.get_submodule(name).weight.data, before[f"{name}.weight"] + 0.5 * update)
        torch.testing.assert_close(net.get_submodule(name).bias.data, before[f"{name}.bias"])


def test_write_gradients_starts_the_sums_afresh() -> None:
    net, a, b = small_net(), draw(2, 3, 8, 8), draw(2, 3, 8, 8, seed=9)
    with Plasticity(net, SoftWTA()) as plasticity, torch.no_grad():
        net(a)
        plasticity.write_gradients()
        net(b)
        later = plasticity.updates()
    same(later, updates(net, SoftWTA(), b))


def traces(net: nn.Module) -> tuple:
    modules = list(net.named_modules())
    return (
        list(net.state_dict()),
        [name for name, _ in net.named_buffers()],
        [(name, type(m), len(m._forward_hooks), len(m._forward_pre_hooks), sorted(vars(m))) for name, m in modules],
    )


@pytest.mark.parametrize("fails", [False, True])
def test_leaving_the_block_leaves_no_trace(fails: bool) -> None:
    net = UNet(**SMALL).eval()
    x = draw(1, 3, 16, 16, dtype=torch.float32)
    with torch.no_grad():
        before, output = traces(net), net(x)
    try:
        with Plasticity(net, SoftWTA(), whiten=1.0, standardize=True), torch.no_grad():
            inside = net(x)
            if fails:
                raise RuntimeError("something else went wrong")
    except RuntimeError:
        assert fails
    with torch.no_grad():
        assert traces(net) == before
        assert torch.equal(net(x), output)
        assert torch.equal(inside, output)


def test_no_gradient_is_recorded_and_none_is_needed() -> None:
    net, x = small_net(), draw(1, 3, 8, 8)
    with Plasticity(net, HebbianPCA()) as plasticity:
        net(x)
        recorded = plasticity.updates()
        assert not any(u.requires_grad for u in recorded.values())
    with Plasticity(net, HebbianPCA()) as plasticity:
        with torch.inference_mode():
            net(x)
            net(x)
        plasticity.write_gradients()
    assert all(net[i].weight.grad is not None for i in (0, 2))


def test_unit_norm_and_restored_norms() -> None:
    net, x = UNet(**SMALL, seed=0), draw(2, 3, 16, 16, dtype=torch.float32)
    means = {
        name: plastic.rows(plastic.weight).norm(dim=-1).mean()
        for name, plastic in Plasticity(net, SoftWTA()).plastic_layers.items()
    }
    with Plasticity(net, SoftWTA(), unit_norm=True) as plasticity, torch.no_grad():
        net(x)
        plasticity.write_gradients()
        torch.optim.SGD(net.parameters(), lr=0.3).step()
        plasticity.normalize()
        for plastic in plasticity.plastic_layers.values():
            torch.testing.assert_close(
                plastic.rows(plastic.weight).norm(dim=-1), torch.ones(plastic.rows(plastic.weight).shape[:2])
            )
        plasticity.restore_norms()
    with torch.no_grad():
        for name, plastic in plasticity.plastic_layers.items():
            norms = plastic.rows(plastic.weight).norm(dim=-1)
            torch.testing.assert_close(norms, torch.full_like(norms, float(means[name])))


# ---------------------------------------------------------------- number types and layouts


def test_autocast_gathers_in_float32() -> None:
    net, x = small_net().float(), draw(2, 3, 16, 16, dtype=torch.float32)
    exact = updates(net, SoftWTA(temperature=0.2), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = updates(net, SoftWTA(temperature=0.2), x)
    for name in exact:
        assert mixed[name].dtype == torch.float32
        assert (mixed[name] - exact[name]).norm() < 0.03 * exact[name].norm()


def test_half_precision_network_gets_gradients_of_its_own_type() -> None:
    net = nn.Conv2d(3, 4, 3).to(torch.bfloat16)
    with Plasticity(net, SoftWTA()) as plasticity:
        net(draw(2, 3, 8, 8).to(torch.bfloat16))
        assert plasticity.updates()[""].dtype == torch.float32
        plasticity.write_gradients()
    assert net.weight.grad.dtype == torch.bfloat16


def test_channels_last_gives_the_same() -> None:
    net, x = small_net(), draw(2, 3, 8, 8)
    plain = updates(net, SoftWTA(), x)
    same(updates(net.to(memory_format=torch.channels_last), SoftWTA(), x.to(memory_format=torch.channels_last)), plain)


# ---------------------------------------------------------------- networks of others


def classifier() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 49, 10),
    )


NETWORKS = {
    "our 2D": (lambda: UNet(**SMALL), (2, 3, 16, 16)),
    "our 3D": (lambda: UNet(spatial_dims=3, in_channels=1, **SMALL), (1, 1, 9, 8, 12)),
    "BasicUNet": (
        lambda: monai_nets.BasicUNet(spatial_dims=2, in_channels=3, features=(8, 8, 8, 8, 8, 8), upsample="deconv"),
        (1, 3, 32, 32),
    ),
    "UNet": (
        lambda: monai_nets.UNet(
            spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 8), strides=(2, 2), num_res_units=1
        ),
        (1, 1, 16, 16, 16),
    ),
    "DynUNet": (
        lambda: monai_nets.DynUNet(
            spatial_dims=2, in_channels=3, out_channels=2, kernel_size=[3, 3, 3], strides=[1, 2, 2],
            upsample_kernel_size=[2, 2], filters=[4, 8, 8], deep_supervision=True, deep_supr_num=1,
        ),
        (1, 3, 16, 16),
    ),
    "classifier": (classifier, (4, 3, 16, 16)),
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"unit_norm": True, "whiten": 1.0, "standardize": True}], ids=["plain", "conditioned"])
@pytest.mark.parametrize("name", NETWORKS)
def test_any_network_learns_and_keeps_its_keys(name: str, options: dict) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    net = make()
    keys = list(net.state_dict())
    weights = {n: m.weight.detach().clone() for n, m in net.named_modules() if isinstance(m, nn.Conv2d | nn.Conv3d | nn.Linear)}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Plasticity(net, SoftWTA(), **options) as plasticity, torch.no_grad():
        for seed in range(2):
            net(draw(*shape, seed=seed, dtype=torch.float32))
            found = plasticity.updates()
            plasticity.write_gradients()
            optimizer.step()
            plasticity.normalize()
    assert list(net.state_dict()) == keys
    for layer, update in found.items():
        assert update.shape == net.get_submodule(layer).weight.shape
        assert update.isfinite().all() and update.abs().max() > 0, layer
    moved = [n for n, w in weights.items() if n in found and not torch.equal(net.get_submodule(n).weight, w)]
    assert len(moved) == len([n for n in weights if n in found])


# ---------------------------------------------------------------- which layers, and what is refused


def test_layers_and_exclude_choose_by_name_prefix_or_wildcard() -> None:
    net = UNet(**SMALL)
    names = lambda **o: list(Plasticity(net, SoftWTA(), **o).plastic_layers)  # noqa: E731
    assert "head" not in names()
    assert "head" in names(exclude=())
    assert all(n.startswith("encoder.") for n in names(layers=("encoder",))) and len(names(layers=("encoder",))) == 6
    assert names(layers=("*.up",)) == ["decoder.level1.up", "decoder.level0.up"]
    assert not [n for n in names(transpose="off") if n.endswith(".up")]
    assert "encoder.level0.conv1" not in names(exclude=("head", "encoder.level0"))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"layers": ("encodr",)}, ["encodr", "Did you mean 'encoder'"]),
        ({"exclude": ("head", "decoder.level0.upp")}, ["decoder.level0.upp", "Did you mean 'decoder.level0.up'"]),
        ({"layers": ("encoder.level0.norm1",)}, ["encoder.level0.norm1", "BatchNorm2d", "Conv1d/2d/3d"]),
        ({"layers": ("head",)}, ["No layer is selected", "exclude=('head',)"]),
        ({"layers": "encoder"}, ["is a string", "('encoder',)"]),
        ({"transpose": "tas"}, ["transpose='tas'", "Did you mean 'tsa'"]),
        ({"whiten": 0.0}, ["whiten=0.0", "above 0"]),
    ],
)
def test_bad_options_are_named(options: dict, words: list[str]) -> None:
    with pytest.raises(HebbsegError) as caught:
        Plasticity(UNet(**SMALL), SoftWTA(), **options)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), float("inf")])
def test_temperature_must_be_above_zero(temperature: float) -> None:
    with pytest.raises(HebbsegError, match="temperature"):
        SoftWTA(temperature=temperature)


def test_standardize_needs_competition() -> None:
    with pytest.raises(HebbsegError, match="HebbianPCA has no competition"):
        Plasticity(UNet(**SMALL), HebbianPCA(), standardize=True)


def test_layers_that_cannot_be_written_are_refused() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(HebbsegError, match="'0' and '1' share one weight"):
        Plasticity(tied, SoftWTA())
    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    with pytest.raises(HebbsegError, match="parametrized weight"):
        Plasticity(normed, SoftWTA())
    with pytest.raises(HebbsegError, match="No layer is selected"):
        Plasticity(nn.Sequential(nn.LazyConv2d(4, 3)), SoftWTA())
    with pytest.raises(HebbsegError, match="complex64"):
        Plasticity(nn.Conv2d(3, 4, 3, dtype=torch.complex64), SoftWTA())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_activations_that_are_not_finite_stop_before_any_weight_is_touched(bad: float) -> None:
    net, x = UNet(**SMALL, norm="none"), draw(1, 3, 16, 16, dtype=torch.float32)
    x[0, 1, 3, 5] = bad
    before = copy.deepcopy(net.state_dict())
    with Plasticity(net, SoftWTA()) as plasticity, torch.no_grad():
        net(x)
        with pytest.raises(HebbsegError, match=r"'encoder.level0.conv1' has non-finite activations"):
            plasticity.write_gradients()
    assert all(p.grad is None for p in net.parameters())
    same(dict(net.state_dict()), dict(before))


def test_asking_before_any_forward_says_so() -> None:
    with (
        Plasticity(UNet(**SMALL), SoftWTA()) as plasticity,
        pytest.raises(HebbsegError, match="No plastic layer had a forward pass"),
    ):
        plasticity.updates()


def test_a_stopped_stage_goes_on_exactly_as_if_it_had_not() -> None:
    options = {"unit_norm": True, "standardize": True, "whiten": 1.0}

    def steps(net: nn.Module, plasticity: Plasticity, seeds: range) -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for seed in seeds:
            net(draw(2, 3, 16, 16, seed=seed, dtype=torch.float32))
            plasticity.write_gradients()
            optimizer.step()
            plasticity.normalize()

    with torch.no_grad():
        whole = UNet(**SMALL, seed=0)
        with Plasticity(whole, SoftWTA(), **options) as plasticity:
            steps(whole, plasticity, range(20))
        first = UNet(**SMALL, seed=0)
        with Plasticity(first, SoftWTA(), **options) as plasticity:
            steps(first, plasticity, range(9))
            state = copy.deepcopy(plasticity.state_dict())
        second = UNet(**SMALL, seed=1)
        second.load_state_dict(first.state_dict())
        with Plasticity(second, SoftWTA(), **options) as plasticity:
            plasticity.load_state_dict(state)
            second.load_state_dict(first.state_dict())
            steps(second, plasticity, range(9, 20))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("temperature", [0.003, 0.05, 1.0, 50.0])
def test_the_gate_is_the_softmax_across_units(dim: int, temperature: float) -> None:
    y = torch.randn(2, 3, 5, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (y / temperature).softmax(dim)
    torch.testing.assert_close(SoftWTA(temperature=temperature).gate(y, dim), expected, atol=1e-12, rtol=1e-9)
    gate = SoftWTA(temperature=temperature).gate(y.float(), dim)
    torch.testing.assert_close(gate, expected.float(), atol=2e-5, rtol=1e-3)
    assert not ((gate > 0) & (gate < torch.finfo(gate.dtype).tiny)).any(), "denormal numbers are slow"
    y[0, 1, 2, 3, 1] = torch.inf
    assert SoftWTA(temperature=temperature).gate(y, dim).isnan().any(), "must not be hidden from who checks for it"


def test_the_gate_of_a_large_channels_last_map_is_the_softmax() -> None:
    """It is computed in parts, the last of them smaller."""
    y = torch.randn(1, 3, 300, 301).to(memory_format=torch.channels_last)
    assert y.numel() > CACHED
    gate = SoftWTA(temperature=0.5).gate(y, 1)
    torch.testing.assert_close(gate, (y.contiguous() / 0.5).softmax(1))
    assert gate.is_contiguous(memory_format=torch.channels_last)
    SoftWTA().gate(y.clone().requires_grad_(), 1).sum().backward()
