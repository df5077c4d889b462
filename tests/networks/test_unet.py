import pytest
import torch
from torch import nn

from hebbseg import UNet
from hebbseg.errors import HebbsegError
from hebbseg.networks.unet import MaxPool, normalization

SMALL = {"features": (4, 6, 8)}


def test_default_size_is_about_1_9_million_parameters() -> None:
    assert sum(p.numel() for p in UNet().parameters()) == pytest.approx(1.9e6, rel=0.03)


@pytest.mark.parametrize("size", [(16, 16), (17, 23), (5, 64), (1, 1)])
def test_any_image_size(size: tuple[int, ...]) -> None:
    net = UNet(out_channels=3, **SMALL).eval()
    assert net(torch.rand(2, 3, *size)).shape == (2, 3, *size)


@pytest.mark.parametrize("size", [(8, 8, 8), (9, 12, 5)])
def test_any_volume_size(size: tuple[int, ...]) -> None:
    net = UNet(spatial_dims=3, in_channels=1, **SMALL).eval()
    assert net(torch.rand(1, 1, *size)).shape == (1, 2, *size)


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (4, 4), (6, 6), (8, 8), (12, 6), (13, 1), (24, 8), (64, 8)])
def test_group_norm_takes_any_number_of_channels(channels: int, groups: int) -> None:
    layer = normalization("group", 2, channels)
    assert isinstance(layer, nn.GroupNorm) and layer.num_groups == groups


@pytest.mark.parametrize("norm", ["batch", "instance", "group", "none"])
def test_norms(norm: str) -> None:
    net = UNet(norm=norm, **SMALL)
    assert net(torch.rand(2, 3, 16, 16)).isfinite().all()
    assert (net.encoder.level0.conv1.bias is None) == (norm != "none")


def test_up_layers_are_transposed_convolutions_in_2d_and_3d() -> None:
    for dims, kind in ((2, nn.ConvTranspose2d), (3, nn.ConvTranspose3d)):
        net = UNet(spatial_dims=dims, features=(2, 3, 4, 5, 6))
        ups = [m for m in net.modules() if isinstance(m, kind)]
        assert [(u.kernel_size[0], u.stride[0]) for u in ups] == [(2, 2)] * 4


def test_dropout_grows_with_depth() -> None:
    rates = [m.p for m in UNet().encoder.modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.05, 0.1, 0.2, 0.3, 0.5]
    assert not any(m.p for m in UNet().decoder.modules() if isinstance(m, nn.Dropout))


def test_features_by_level() -> None:
    net = UNet(**SMALL).eval()
    x = torch.rand(1, 3, 16, 16)
    maps = net.features(x)
    assert {name: tuple(m.shape[1:]) for name, m in maps.items()} == {
        "enc0": (4, 16, 16), "enc1": (6, 8, 8), "enc2": (8, 4, 4), "dec1": (6, 8, 8), "dec0": (4, 16, 16),
    }  # fmt: skip
    torch.testing.assert_close(net.head(maps["dec0"]), net(x))


def test_seed_makes_weights_without_touching_the_global_generator() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = UNet(**SMALL, seed=1), UNet(**SMALL, seed=1), UNet(**SMALL, seed=2)
    weights = [net.encoder.level0.conv1.weight for net in (a, b, c)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_initial_variance_is_kept_through_the_layers() -> None:
    net = UNet(norm="none", dropout=0.0, seed=0)
    with torch.no_grad():
        maps = net.features(torch.randn(1, 3, 64, 64))
    assert all(0.2 < float(m.std()) < 5 for m in maps.values())


@pytest.mark.parametrize(
    "options, word",
    [
        ({"spatial_dims": 4}, "spatial_dims=4"),
        ({"features": (8,)}, "at least two levels"),
        ({"dropout": (0.1, 0.2)}, "2 rates for 5 levels"),
        ({"norm": "bach"}, "Did you mean 'batch'"),
    ],
)
def test_bad_options(options: dict, word: str) -> None:
    with pytest.raises(HebbsegError, match=word):
        UNet(**options)


def test_wrong_input_is_named() -> None:
    with pytest.raises(HebbsegError, match=r"\(1, 1, 16, 16\).*3 channels"):
        UNet(**SMALL)(torch.rand(1, 1, 16, 16))


@pytest.mark.parametrize("shape", [(2, 3, 8, 6), (2, 3, 7, 6), (1, 2, 4, 6, 8), (2, 3, 10)])
def test_pooling_is_the_same_with_and_without_gradients(shape: tuple[int, ...]) -> None:
    pool = MaxPool(len(shape) - 2)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x.view(-1)[5] = torch.nan
    expected = pool(x.clone().requires_grad_()).detach()
    assert torch.equal(expected.isnan(), pool(x).isnan()) and expected.isnan().any()
    assert torch.equal(expected.nan_to_num(), pool(x).nan_to_num())
    volume = x.contiguous(memory_format=torch.channels_last_3d) if x.dim() == 5 else x
    assert torch.equal(pool(volume).nan_to_num(), expected.nan_to_num())


ANISOTROPIC = {"strides": ((2, 2, 1), (2, 2, 2)), "kernels": ((3, 3, 1), (3, 3, 3), (3, 3, 3))}


@pytest.mark.parametrize("size", [(16, 16, 4), (9, 13, 5), (1, 2, 3)])
def test_an_anisotropic_unet_takes_any_size_and_pools_per_axis(size: tuple[int, ...]) -> None:
    net = UNet(spatial_dims=3, in_channels=1, **SMALL, **ANISOTROPIC, seed=0).eval()
    x = torch.rand(2, 1, *size)
    assert net(x).shape == (2, 2, *size) and net.multiples == (4, 4, 2)
    full = [-(-n // m) * m for n, m in zip(size, net.multiples, strict=True)]
    maps = {name: tuple(m.shape[2:]) for name, m in net.features(x).items()}
    a, b, c = full
    assert maps["enc0"] == maps["dec0"] == (a, b, c)
    assert maps["enc1"] == maps["dec1"] == (a // 2, b // 2, c) and maps["enc2"] == (a // 4, b // 4, c // 2)


def test_slices_do_not_mix_at_levels_with_a_kernel_of_1_across_them() -> None:
    options = {"strides": ((2, 2, 1),), "kernels": ((3, 3, 1), (3, 3, 1))}
    net = UNet(spatial_dims=3, in_channels=1, features=(4, 6), norm="none", **options, seed=0).eval()
    x = torch.rand(1, 1, 8, 8, 5)
    alone = torch.cat([net(x[..., k : k + 1]) for k in range(5)], dim=-1)
    torch.testing.assert_close(net(x), alone)


def test_2_and_3_along_every_axis_is_the_default_network() -> None:
    given = {"strides": [[2, 2], [2, 2]], "kernels": [[3, 3]] * 3}
    default, same = UNet(**SMALL, seed=0).eval(), UNet(**SMALL, **given, seed=0).eval()
    assert default.state_dict().keys() == same.state_dict().keys()
    x = torch.rand(1, 3, 16, 16)
    assert torch.equal(default(x), same(x))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"strides": ((2, 2),)}, r"strides=.*needs 2 times 2 numbers, each 1 or 2, such as 2x2,2x2"),
        ({"strides": ((2, 3), (2, 2))}, "each 1 or 2"),
        ({"kernels": ((3, 3, 3),) * 3}, "needs 3 times 2 numbers, each 1 or 3"),
    ],
)
def test_bad_geometry(options: dict, word: str) -> None:
    with pytest.raises(HebbsegError, match=word):
        UNet(**SMALL, **options)


def test_pooling_per_axis_is_that_of_torch() -> None:
    pool = MaxPool(3, (2, 1, 2))
    x = torch.rand(2, 3, 4, 5, 6)
    expected = nn.MaxPool3d((2, 1, 2))(x)
    assert torch.equal(pool(x), expected) and torch.equal(pool(x.clone().requires_grad_()), expected)
