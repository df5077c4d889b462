"""Networks by name: what is built, what is refused, and what stage 1 and the methods do with them."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hebbseg import errors
from hebbseg.config import PretrainSettings
from hebbseg.errors import HebbsegError
from hebbseg.methods import METHODS, auto_method, check_method, make_method
from hebbseg.methods.base import Labelled, Step
from hebbseg.networks.factory import build_network, called_layers, check_trusted, default_options
from hebbseg.networks.unet import UNet
from hebbseg.pretraining.hebbian import choose_layers, pretrain
from hebbseg.pretraining.initializers import check_init

MONAI = "monai.networks.nets"
FEATURES = (8, 8, 16, 16, 16)
OUTPUT = {"DynUNet": "output_block.conv.conv", "SegResNet": "conv_final.2.conv", "BasicUNet": "final_conv"}
MINE = f"{__name__}.make_network"


class Tiny(nn.Module):
    def __init__(self, dims: int, channels: int, classes: int, extra: str = "") -> None:
        super().__init__()
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
        self.head = conv(4, classes, 1)  # before its input's layer, so that the order of names is not that of calls
        self.first = conv(channels, 4, 3, padding=1)
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        logits = self.head(self.first(x).relu())
        if self.extra == "even" and x.shape[-1] % 2:
            raise RuntimeError("Sizes of tensors must match")
        return [logits, logits] if self.extra == "list" and self.training else logits


def make_network(spatial_dims: int, in_channels: int, out_channels: int, extra: str = "") -> nn.Module:
    return Tiny(spatial_dims, in_channels, out_channels, extra)


def not_a_network(**_: object) -> str:
    return "no"


def monai(name: str, dims: int = 2, seed: int | None = 0, **options: object) -> nn.Module:
    given = default_options(f"{MONAI}.{name}", FEATURES) | options
    return build_network(name=f"{MONAI}.{name}", spatial_dims=dims, in_channels=1, out_channels=3, options=given, seed=seed)


def test_the_unet_is_built_as_before() -> None:
    options = {"features": [4, 8], "dropout": None, "norm": "group"}
    ours = build_network(spatial_dims=2, in_channels=3, out_channels=2, options=options, seed=5)
    plain = UNet(spatial_dims=2, in_channels=3, out_channels=2, features=(4, 8), norm="group", seed=5)
    assert isinstance(ours, UNet)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize("name", OUTPUT)
def test_seeded_weights_leave_the_global_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second, other = monai(name), monai(name), monai(name, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    values = [torch.cat([p.flatten() for p in network.parameters()]) for network in (first, second, other)]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", OUTPUT)
def test_stage_1_learns_all_convolutions_but_the_output(name: str, dims: int) -> None:
    network, images = monai(name, dims), torch.randn(2, 1, *(32,) * dims)
    layers, output = choose_layers(network, images, None, name=name, out_channels=3)
    assert output == OUTPUT[name] and output not in layers
    before = {key: value.clone() for key, value in network.state_dict().items()}
    result = pretrain(network, lambda step: images, PretrainSettings(epochs=1), layers=layers)
    assert list(result.diagnostics) == list(layers), "in the order of a forward pass"
    changed = {key for key, value in network.state_dict().items() if not torch.equal(before[key], value)}
    assert {f"{layer}.weight" for layer in layers} <= changed
    assert not any(key.startswith(OUTPUT[name]) for key in changed)


def test_layers_by_wildcard() -> None:
    network, images = monai("BasicUNet"), torch.randn(1, 1, 32, 32)
    chosen, _ = choose_layers(network, images, ("down_[12]*",), name="n", out_channels=3)
    assert len(chosen) == 4 and all(name.startswith(("down_1.", "down_2.")) for name in chosen)
    with pytest.raises(HebbsegError, match=r"layers=encoder: no layer of n matches"):
        choose_layers(network, images, ("encoder",), name="n", out_channels=3)


def test_the_order_is_that_of_the_calls() -> None:
    network = make_network(2, 1, 2)
    assert called_layers(network, torch.zeros(1, 1, 5, 5), name="mine", out_channels=2) == ["first", "head"]
    assert network.training and not network.first._forward_hooks


@pytest.mark.parametrize(
    ("extra", "size", "classes", "said"),
    [
        ("list", 6, 2, r"in training it returns a list.*deep_supervision=false"),
        ("", 6, 3, r"returns shape \(1, 2, 6, 6\).*must return logits of shape \(1, 3, 6, 6\)"),
        ("even", 45, 2, r"failed on images of shape \(1, 1, 45, 45\).*--size 32x32"),
    ],
)
def test_outputs_that_are_no_logits_are_refused(extra: str, size: int, classes: int, said: str) -> None:
    with pytest.raises(HebbsegError, match=said):
        called_layers(make_network(2, 1, 2, extra), torch.zeros(1, 1, size, size), name="mine", out_channels=classes)


def test_deep_supervision_is_refused() -> None:
    with pytest.raises(HebbsegError, match=r"DynUNet: in training it returns shape .*deep_supervision=false"):
        called_layers(monai("DynUNet", deep_supervision=True), torch.zeros(2, 1, 32, 32), name="DynUNet", out_channels=3)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("unit", {}, r"Unknown network 'unit'. Did you mean 'unet'\?"),
        ("no_such_package.make", {}, r"network=no_such_package.make: it cannot be imported"),
        (f"{MONAI}.DynUNett", {}, r"DynUNett: it cannot be imported"),
        (f"{MONAI}.DynUNet", {}, r"DynUNet: building it with .* failed \(TypeError.*network_options.NAME=VALUE"),
        (f"{__name__}.not_a_network", {}, r"it returned a str, not a torch.nn.Module"),
        (f"{__name__}.MONAI", {}, r"a str cannot be called"),
    ],
)
def test_wrong_names_and_options_are_said(name: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(HebbsegError, match=said):
        build_network(name=name, spatial_dims=2, in_channels=1, out_channels=2, options=options)


def test_an_entry_point_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "tiny"

        def load(self) -> object:
            return make_network

    points = {"tiny": Point()}
    monkeypatch.setattr(errors, "_entry_points", lambda group, path: points if group == "hebbseg.networks" else {})
    assert isinstance(build_network(name="tiny", spatial_dims=3, in_channels=1, out_channels=2), Tiny)
    with pytest.raises(HebbsegError, match=r"'tiny'.*only unet and monai.networks.nets"):
        check_trusted({"name": "tiny", "options": {}})


@pytest.mark.parametrize(
    "name", ["os.system", "monai.networks.nets.dynunet.torch.hub.load", "monai.networks.nets.os", "untrusted.net"]
)
def test_a_name_from_a_file_is_not_imported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "untrusted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HebbsegError):
        check_trusted({"name": name, "options": {}})
    assert "untrusted" not in sys.modules


def test_options_that_download_need_trust() -> None:
    check_trusted({"name": f"{MONAI}.DynUNet", "options": {"strides": [1, 2]}})
    with pytest.raises(HebbsegError, match=r"pretrained_url='http://x'.*--trust"):
        check_trusted({"name": f"{MONAI}.HoVerNet", "options": {"pretrained_url": "http://x"}})


ANY = [name for name, cls in METHODS.items() if not cls.needs_unet]


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", [*ANY, "auto"])
def test_methods_train_any_network(name: str, dims: int) -> None:
    name, options = auto_method(unlabelled=1) if name == "auto" else (name, {})
    check_method(name, options, network=MINE)
    method = make_method(
        name,
        network=make_network(dims, 1, 2),
        another=lambda: make_network(dims, 1, 2),
        loss="dice+ce",
        options=options,
    )
    images, size = torch.rand(2, 1, *(8,) * dims), (8,) * dims
    step = Step(number=3, progress=0.6, generator=torch.Generator().manual_seed(0))
    terms = method.loss(Labelled(images, torch.randint(2, (2, *size))), torch.rand(2, 1, *size), step)
    torch.stack(list(terms.values())).sum().backward()
    method.after_step(step)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.network.parameters())


def test_methods_that_need_the_unet_say_so() -> None:
    assert set(METHODS) - set(ANY) == {"cct", "urpc", "dtc", "unimatch"}
    for name in set(METHODS) - set(ANY):
        check_method(name, {})
        with pytest.raises(HebbsegError, match=rf"Method {name} uses feature maps of the UNet's encoder.*fixmatch"):
            check_method(name, {}, network=f"{MONAI}.DynUNet")
    for name in ("vae", "superpix"):
        with pytest.raises(HebbsegError, match=rf"init={name} trains the UNet's encoder and decoder"):
            check_init(name, network=f"{MONAI}.DynUNet")


def test_basic_unet_takes_five_levels() -> None:
    with pytest.raises(HebbsegError, match="BasicUNet has five levels"):
        default_options(f"{MONAI}.BasicUNet", (8, 16))
