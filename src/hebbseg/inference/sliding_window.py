"""Class probabilities of an image of any size: whole, window by window, or band by band from disk to disk."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

import torch
from monai.inferers import sliding_window_inference
from torch import Tensor, nn

from hebbseg.data.patches import cut
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.inference.streaming import ArrayLike, Blend, Tiling, release_pages, stream
from hebbseg.networks.modes import modes_kept

Networks: TypeAlias = "nn.Module | Sequence[nn.Module]"
TestTimeAugmentation: TypeAlias = Literal[False, "flips", "flips+rot"]


def predict_probabilities(
    network: Networks,
    image: Tensor,
    *,
    window: int | Sequence[int] | None = None,
    overlap: float = 0.5,
    blend: Blend = "gaussian",
    tta: TestTimeAugmentation = False,
    batch: int = 1,
) -> Tensor:
    """Softmax probabilities, the mean over networks, test-time augmentations and overlapping windows.

    The networks are put in eval mode and get their modes back, whatever happens. Windows are computed on the device of
    each network's weights; the answer is put together on the image's device.

    Args:
        network: maps (B, C, *S) to logits (B, K, *S) with K ≥ 2; several of them are an ensemble.
        image: (C, *S), as the network was trained to see it (normalized).
        window: size of the windows, one number or one per axis; an image that is smaller along an axis lies in the
            middle of zeros, as in training with patches of that size. None takes the image whole.
        overlap: share of a window covered by its neighbour, 0 ≤ overlap < 1.
        blend: weight of a window's pixels, "gaussian" (σ = 1/8 of the window) or "constant".
        tta: "flips" averages over the 2ⁿ flips of the n axes; "flips+rot" over these and their transposes in the plane
            of the first two axes, which in 2D are all 8 flips and quarter turns.
        batch: windows computed at once.

    Returns:
        (K, *S) float32, summing to 1 over K.
    """
    if image.ndim not in (3, 4):
        raise HebbsegError(f"image has shape {tuple(image.shape)}; it is (C, H, W) or (C, H, W, D), without a batch axis.")
    tiling = Tiling.over(tuple(image.shape[1:]), window=window, overlap=overlap, blend=blend, batch=batch)
    with _evaluating(network) as networks:
        predictor = _predictor(networks, tta, tiling.wished)
        x = image[None].float()  # MONAI sums up in the type of its input
        if tiling.is_whole:
            probabilities = predictor(x)[0]
        else:
            probabilities = sliding_window_inference(x, tiling.window, batch, predictor, overlap=overlap, mode=blend)[0]
    # A clone made here is an ordinary tensor; what inference mode made refuses to be changed in place.
    return probabilities.clone()


def predict_streaming(
    network: Networks,
    image: ArrayLike,
    classes_out: ArrayLike,
    *,
    window: int | Sequence[int],
    overlap: float = 0.5,
    blend: Blend = "gaussian",
    tta: TestTimeAugmentation = False,
    batch: int = 1,
    prepare: Callable[[Tensor], Tensor] | None = None,
    uncertainty_out: ArrayLike | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Like `predict_probabilities`, but reads windows from an array on disk and writes finished classes to another.

    No more than a row or two of windows is in memory, however many rows the image has. The classes are the argmax of
    the same sums, taken in the same order: the same as from `predict_probabilities` on the whole image.

    Args:
        image: (C, *S), anything with a shape that gives numpy arrays when sliced: ``np.memmap``, ``tifffile.memmap``
            (channels last? ``np.moveaxis(array, -1, 0)`` costs nothing), h5py, zarr.
        classes_out: (*S), takes the class indices as uint8.
        prepare: from a window (C, *s) of the image's numbers to what the network sees; default: float32, unchanged.
        uncertainty_out: (*S), takes the normalized entropy: 0 … 1, or 0 … 255 if it holds integers.
        progress: called with (windows done, windows in all) after every batch.

    The other arguments are those of `predict_probabilities`.
    """
    size = tuple(image.shape[1:])
    for name, array in (("classes_out", classes_out), ("uncertainty_out", uncertainty_out)):
        if array is not None and tuple(array.shape) != size:
            raise HebbsegError(f"{name} has shape {tuple(array.shape)}; the image {tuple(image.shape)} asks for {size}.")
    tiling = Tiling.over(size, window=window, overlap=overlap, blend=blend, batch=batch)
    with _evaluating(network) as networks:
        for rows, probabilities in stream(tiling, image, _predictor(networks, tta, tiling.wished), prepare, progress):
            classes_out[rows] = probabilities.argmax(dim=0).to(torch.uint8).numpy()
            if uncertainty_out is not None:
                entropy = uncertainty(probabilities).numpy()
                integers = uncertainty_out.dtype.kind in "iu"
                uncertainty_out[rows] = (entropy * 255).round().astype(uncertainty_out.dtype) if integers else entropy
            for array in (image, classes_out, uncertainty_out):
                release_pages(array)


def uncertainty(probabilities: Tensor) -> Tensor:
    """Normalised entropy −Σₖ pₖ ln pₖ / ln K of probabilities (K, *S): 0 where certain, 1 where all are equal."""
    return (torch.special.entr(probabilities).sum(dim=0) / math.log(probabilities.shape[0])).clamp(0, 1)


@contextmanager
def _evaluating(network: Networks) -> Iterator[list[nn.Module]]:
    networks = [network] if isinstance(network, nn.Module) else list(network)
    if not networks:
        raise HebbsegError("network is an empty list; give at least one.")
    with modes_kept(*networks), torch.inference_mode():
        for each in networks:
            each.eval()
        yield networks


def _predictor(networks: Sequence[nn.Module], tta: TestTimeAugmentation, size: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """From windows (B, C, *s) to their mean probabilities (B, K, *s), on the windows' device.

    The networks see windows of ``size``, whatever is missing filled up with zeros on all sides.
    """
    if tta not in (False, "flips", "flips+rot"):
        raise HebbsegError(f"Unknown tta {tta!r}. {did_you_mean(str(tta), ('flips', 'flips+rot'))} Or False.")

    def predict(windows: Tensor) -> Tensor:
        given = windows.shape[2:]
        start = [(n - wanted) // 2 for n, wanted in zip(given, size, strict=True)]
        windows = cut(windows, start, size) if any(start) else windows
        views = _views(windows.ndim - 2, tta)
        total: Tensor | None = None
        for network in networks:
            weight = next(network.parameters(), windows)
            x = windows.to(device=weight.device, dtype=weight.dtype)
            for view in views:
                probabilities = view.back(_softmax(network, view.apply(x))).to(windows.device)
                total = probabilities if total is None else total + probabilities
        assert total is not None
        mean = total / (len(networks) * len(views))
        return cut(mean, [-s for s in start], given) if any(start) else mean

    return predict


@dataclass(frozen=True)
class _View:
    """One test-time augmentation: the first two spatial axes exchanged or not, then some axes flipped."""

    transposed: bool
    flipped: tuple[int, ...]

    def apply(self, x: Tensor) -> Tensor:
        x = x.transpose(2, 3) if self.transposed else x
        return x.flip(self.flipped) if self.flipped else x

    def back(self, y: Tensor) -> Tensor:
        y = y.flip(self.flipped) if self.flipped else y
        return y.transpose(2, 3) if self.transposed else y


def _views(n_axes: int, tta: TestTimeAugmentation) -> list[_View]:
    flips = list(product((False, True), repeat=n_axes)) if tta else [(False,) * n_axes]
    transposes = (False, True) if tta == "flips+rot" else (False,)
    return [
        _View(transposed, tuple(2 + axis for axis in range(n_axes) if flip[axis]))
        for transposed, flip in product(transposes, flips)
    ]


def _softmax(network: nn.Module, x: Tensor) -> Tensor:
    logits = network(x)
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.shape[:1] + logits.shape[2:] != x.shape[:1] + x.shape[2:]:
        raise HebbsegError(f"The network made {found} of an input {tuple(x.shape)}; it must give logits (B, K, *size).")
    if logits.shape[1] < 2:
        raise HebbsegError(f"The network gives logits {found} with one channel; it needs one per class, background too.")
    return logits.float().softmax(dim=1)
