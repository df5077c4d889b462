import mmap
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from monai.inferers import sliding_window_inference
from torch import Tensor, nn

from hebbseg.data.io.tiles import release_pages
from hebbseg.data.patches import cut
from hebbseg.errors import HebbsegError
from hebbseg.inference.sliding_window import predict_probabilities, predict_streaming, uncertainty
from hebbseg.inference.streaming import Tiling
from hebbseg.networks.unet import UNet


def small_unet(spatial_dims: int = 2, seed: int = 0) -> UNet:
    network = UNet(spatial_dims=spatial_dims, in_channels=2, out_channels=3, features=(4, 6, 8), seed=seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):  # or eval mode and train mode could be mistaken
            generator = torch.Generator().manual_seed(seed)
            module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.running_var.shape, generator=generator))
    with torch.no_grad():  # or a single class would win everywhere
        logits = network.eval()(random_image(*[32] * spatial_dims)[None])
        network.head.bias.sub_(logits.mean(dim=[0, *range(2, 2 + spatial_dims)]))
    return network.train()


def random_image(*size: int, channels: int = 2, seed: int = 1) -> Tensor:
    return torch.randn(channels, *size, generator=torch.Generator().manual_seed(seed))


def eval_softmax(network: nn.Module, x: Tensor) -> Tensor:
    network.eval()
    with torch.no_grad():
        return network(x).softmax(dim=1)


@pytest.mark.parametrize("size", [(16, 16), (31, 45), (7, 9, 12)])
@pytest.mark.parametrize("whole", [True, False])
def test_image_as_large_as_the_window_is_taken_whole(size: tuple[int, ...], whole: bool) -> None:
    network, image = small_unet(len(size)), random_image(*size)
    found = predict_probabilities(network, image, window=None if whole else size)
    torch.testing.assert_close(found, eval_softmax(network, image[None])[0])
    torch.testing.assert_close(found.sum(dim=0), torch.ones(size))
    found += 1  # an ordinary tensor, not one that inference mode froze


@pytest.mark.parametrize(("size", "window"), [((9, 13), (16, 16)), ((5, 16), (16, 12)), ((7, 9, 12), (8, 8, 16))])
@pytest.mark.parametrize("tta", [False, "flips"])
def test_image_smaller_than_the_window_is_seen_as_in_training(size: tuple[int, ...], window: tuple[int, ...], tta: Any) -> None:
    network, image = small_unet(len(size)), random_image(*size)
    found = predict_probabilities(network, image, window=window, tta=tta, blend="constant", overlap=0.0)

    # Training cuts patches that reach beyond the image; one that holds it all begins here.
    start = [min(0, (n - w) // 2) for n, w in zip(size, window)]
    larger = tuple(max(n, w) for n, w in zip(size, window))
    alike = predict_probabilities(network, cut(image, start, larger), window=window, tta=tta, blend="constant", overlap=0.0)
    torch.testing.assert_close(found, alike[(slice(None), *(slice(-s, n - s) for s, n in zip(start, size)))])
    assert not torch.allclose(found, predict_probabilities(network, image, tta=tta))
    streamed = np.zeros(size, np.uint8)
    predict_streaming(network, image.numpy(), streamed, window=window, tta=tta, blend="constant", overlap=0.0)
    assert np.array_equal(streamed, found.argmax(dim=0).numpy())


@pytest.mark.parametrize(("size", "window"), [((50, 37), (16, 16)), ((50, 16), (16, 16)), ((20, 9, 13), (8, 8, 8))])
@pytest.mark.parametrize("blend", ["gaussian", "constant"])
def test_windows_are_blended_by_their_weights(size: tuple[int, ...], window: tuple[int, ...], blend: Any) -> None:
    network, image = small_unet(len(size)), random_image(*size)
    found = predict_probabilities(network, image, window=window, overlap=0.5, blend=blend, batch=3)

    # Literally: each pixel is the weighted mean of the windows over it.
    starts = [sorted({min(s, n - w) for s in range(0, n, max(w // 2, 1))}) for w, n in zip(window, size)]
    weight = torch.ones(window)
    for axis, w in enumerate(window):
        x = torch.arange(w) - (w - 1) / 2
        bell = torch.exp(-(x**2) / (2 * (0.125 * w) ** 2)) if blend == "gaussian" else torch.ones(w)
        weight = weight * bell.reshape([-1 if a == axis else 1 for a in range(len(window))])
    weight = weight.clamp(min=max(weight.min().item(), 1e-3))
    total, weights = torch.zeros(3, *size), torch.zeros(size)
    for corner in product(*starts):
        place = tuple(slice(s, s + w) for s, w in zip(corner, window))
        total[(slice(None), *place)] += weight * eval_softmax(network, image[(slice(None), *place)][None])[0]
        weights[place] += weight
    torch.testing.assert_close(found, total / weights, rtol=1e-4, atol=1e-5)


def test_every_flip_and_quarter_turn_is_averaged() -> None:
    network, image = small_unet(), random_image(12, 20)
    turned = []
    for k, flip in product(range(4), (False, True)):
        seen = torch.rot90(image, k, (1, 2))
        seen = seen.flip(2) if flip else seen
        p = eval_softmax(network, seen[None])[0]
        turned.append(torch.rot90(p.flip(2) if flip else p, -k, (1, 2)))
    found = predict_probabilities(network, image, tta="flips+rot")
    torch.testing.assert_close(found, torch.stack(turned).mean(dim=0))
    flips = [eval_softmax(network, image.flip(a)[None])[0].flip(a) for a in ((), (1,), (2,), (1, 2))]
    torch.testing.assert_close(predict_probabilities(network, image, tta="flips"), torch.stack(flips).mean(dim=0))


@pytest.mark.parametrize("size", [(16, 24), (8, 8, 12)])
def test_augmented_prediction_turns_with_the_image(size: tuple[int, ...]) -> None:
    network, image = small_unet(len(size)), random_image(*size)
    upright = predict_probabilities(network, image, tta="flips+rot")
    mirrored = predict_probabilities(network, image.flip(1), tta="flips+rot")
    transposed = predict_probabilities(network, image.transpose(1, 2), tta="flips+rot")
    torch.testing.assert_close(mirrored.flip(1), upright)
    torch.testing.assert_close(transposed.transpose(1, 2), upright)


def test_ensemble_is_the_mean_of_its_members() -> None:
    networks, image = [small_unet(seed=s) for s in range(3)], random_image(40, 40)
    alone = [predict_probabilities(n, image, window=16) for n in networks]
    together = predict_probabilities(networks, image, window=16)
    torch.testing.assert_close(together, torch.stack(alone).mean(dim=0))


def test_modes_come_back_as_they_were() -> None:
    network = small_unet().train()
    network.encoder.level1.norm1.eval()
    before = {name: module.training for name, module in network.named_modules()}
    state = {key: value.clone() for key, value in network.state_dict().items()}
    predict_probabilities(network, random_image(16, 16))
    assert {name: module.training for name, module in network.named_modules()} == before
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=0, atol=0)
    with pytest.raises(HebbsegError):
        predict_probabilities(network, random_image(16, 16, channels=5))
    assert {name: module.training for name, module in network.named_modules()} == before
    assert not torch.is_inference_mode_enabled()
    network(random_image(16, 16)[None]).sum().backward()


def test_device_and_type_follow_the_network() -> None:
    network, image = small_unet(), random_image(20, 20)
    single = predict_probabilities(network, image)
    double = predict_probabilities(network.double(), image)
    assert double.dtype == torch.float32
    torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-5)


def test_batches_of_2d_windows_reach_the_unet_with_channels_last() -> None:
    seen = []
    for channels in (1, 2):
        network = UNet(spatial_dims=2, in_channels=channels, out_channels=3, features=(4, 6), seed=0).eval()
        network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].stride()))
        image = random_image(24, 24, channels=channels)
        found = predict_probabilities(network, image, window=16, batch=2)
        assert seen == [(16 * 16 * channels, 1, 16 * channels, channels)] * 2
        seen.clear()
        torch.testing.assert_close(found, predict_probabilities(network, image, window=16, batch=1))
        assert len(seen) == 4, "single windows as they are"
        seen.clear()
    other = nn.Sequential(nn.Conv2d(2, 3, 1))
    other.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].stride()))
    predict_probabilities(other, image, window=16, batch=4)
    assert {stride[2:] for stride in seen} == {(16, 1)}, "other networks may need contiguous maps"


def test_uncertainty_is_the_normalized_entropy() -> None:
    p = torch.tensor([[1.0, 0.25, 0.5], [0.0, 0.25, 0.5], [0.0, 0.25, 0.0], [0.0, 0.25, 0.0]])
    torch.testing.assert_close(uncertainty(p), torch.tensor([0.0, 1.0, 0.5]))


class Recorder:
    """An array that can only be read by slices and remembers the largest piece it gave."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype, self.largest = array, array.shape, array.dtype, 0

    def __getitem__(self, index: Any) -> np.ndarray:
        piece = self.array[index]
        self.largest = max(self.largest, piece.size)
        return piece

    def __setitem__(self, index: Any, value: np.ndarray) -> None:
        self.largest = max(self.largest, value.size)
        self.array[index] = value


@pytest.mark.parametrize(
    ("size", "window", "overlap", "batch"),
    [
        ((75, 50), (16, 16), 0.5, 1),
        ((75, 50), (16, 24), 0.5, 4),
        ((75, 50), (16, 16), 0.25, 40),
        ((90, 12), (16, 16), 0.5, 5),
        ((12, 90), (16, 16), 0.75, 3),
        ((10, 11), (16, 16), 0.5, 2),
        ((33, 20), (7, 9), 0.0, 2),
        ((21, 14, 10), (8, 8, 8), 0.5, 3),
    ],
)
def test_streaming_gives_what_the_whole_image_gives(
    size: tuple[int, ...], window: tuple[int, ...], overlap: float, batch: int
) -> None:
    network, image = small_unet(len(size)), random_image(*size)
    settings: dict[str, Any] = {"window": window, "overlap": overlap, "batch": batch, "tta": "flips"}
    probabilities = predict_probabilities(network, image, **settings)
    classes, doubt = np.full(size, 255, dtype=np.uint8), np.full(size, np.nan, dtype=np.float32)
    calls: list[tuple[int, int]] = []
    predict_streaming(network, image.numpy(), classes, uncertainty_out=doubt, progress=lambda *a: calls.append(a), **settings)
    np.testing.assert_array_equal(classes, probabilities.argmax(dim=0))
    np.testing.assert_allclose(doubt, uncertainty(probabilities), atol=1e-6)
    assert len(np.unique(classes)) == 3
    assert calls[-1][0] == calls[-1][1] and [c[0] for c in calls] == sorted(c[0] for c in calls)


def test_streaming_holds_only_a_few_rows_of_windows() -> None:
    image = Recorder(np.random.default_rng(0).integers(0, 255, (2, 400, 30), dtype=np.uint8))
    classes = Recorder(np.zeros((400, 30), dtype=np.uint8))
    predict_streaming(small_unet(), image, classes, window=16, batch=2, prepare=lambda w: w.float() / 255)
    assert image.largest == 2 * 16 * 16
    assert classes.largest <= (16 + 2 * 8) * 30
    whole = predict_probabilities(small_unet(), torch.tensor(image.array) / 255, window=16, batch=2)
    np.testing.assert_array_equal(classes.array, whole.argmax(dim=0))


def test_streaming_from_tiff_to_tiff(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 60000, (70, 40, 2), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "in.tif", pixels, byteorder=">", photometric="minisblack", planarconfig="contig")
    image = np.moveaxis(tifffile.memmap(tmp_path / "in.tif", mode="r"), -1, 0)
    classes = tifffile.memmap(tmp_path / "out.tif", shape=(70, 40), dtype=np.uint8)
    doubt = tifffile.memmap(tmp_path / "doubt.tif", shape=(70, 40), dtype=np.uint8)

    def prepare(window: Tensor) -> Tensor:
        return window.float() / 30000 - 1

    network = small_unet()
    predict_streaming(network, image, classes, window=16, prepare=prepare, uncertainty_out=doubt)
    classes.flush()
    doubt.flush()
    whole = predict_probabilities(network, prepare(torch.tensor(pixels.astype(np.float32)).permute(2, 0, 1)), window=16)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out.tif"), whole.argmax(dim=0))
    np.testing.assert_allclose(tifffile.imread(tmp_path / "doubt.tif"), 255 * uncertainty(whole), atol=0.51)


def test_private_changes_survive_the_release_of_pages(tmp_path: Path) -> None:
    np.zeros(mmap.PAGESIZE, dtype=np.uint8).tofile(tmp_path / "x")
    for mode in ("c", "r+"):
        array = np.memmap(tmp_path / "x", dtype=np.uint8, mode=mode)
        array[:] = 7
        release_pages(array[10:])
        assert (array == 7).all()


def test_tiling_lies_where_monai_puts_its_windows() -> None:
    seen: list[Tensor] = []
    image = torch.arange(37 * 50, dtype=torch.float32).reshape(1, 1, 37, 50)

    def remember(x: Tensor) -> Tensor:
        seen.extend(x[:, 0, 0, 0])
        return x

    sliding_window_inference(image, (12, 10), 1, remember, overlap=0.3)
    tiling = Tiling.over((37, 50), window=(12, 10), overlap=0.3, blend="constant", batch=1)
    places = product(tiling.row_starts, tiling.columns)
    assert [int(x) for x in seen] == [row * 50 + columns[0].start for row, columns in places]


class OneChannel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1]


class Halving(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, ::2]


def test_errors_say_what_to_do() -> None:
    network, image = small_unet(), random_image(16, 16)
    with pytest.raises(HebbsegError, match=r"image has shape \(1, 2, 16, 16, 1\).*without a batch"):
        predict_probabilities(network, image[None, ..., None])
    with pytest.raises(HebbsegError, match=r"window is \(8, 8, 8\); expected one positive number or 2"):
        predict_probabilities(network, image, window=(8, 8, 8))
    with pytest.raises(HebbsegError, match=r"overlap is 1\.0"):
        predict_probabilities(network, image, window=8, overlap=1.0)
    with pytest.raises(HebbsegError, match="Did you mean 'gaussian'"):
        predict_probabilities(network, image, blend="gauss")  # type: ignore[arg-type]
    with pytest.raises(HebbsegError, match="Did you mean 'flips'"):
        predict_probabilities(network, image, tta="flip")  # type: ignore[arg-type]
    with pytest.raises(HebbsegError, match="batch is 0"):
        predict_probabilities(network, image, batch=0)
    with pytest.raises(HebbsegError, match="empty list"):
        predict_probabilities([], image)
    with pytest.raises(HebbsegError, match="one channel"):
        predict_probabilities(OneChannel(), image)
    with pytest.raises(HebbsegError, match=r"returned \(1, 2, 8, 16\) for an input \(1, 2, 16, 16\)"):
        predict_probabilities(Halving(), image)
    with pytest.raises(HebbsegError, match=r"classes_out has shape \(16, 15\).*must be \(16, 16\)"):
        predict_streaming(network, image.numpy(), np.zeros((16, 15), np.uint8), window=8)
