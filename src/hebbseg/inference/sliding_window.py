"""Class probabilities of images of any size: whole, in sliding windows, or streamed from disk to disk."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal, TypeAlias

import torch
from monai.inferers import sliding_window_inference
from torch import Tensor, nn

from hebbseg.data.io.tiles import release_pages
from hebbseg.data.patches import cut
from hebbseg.data.resampling import resized_classes
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.inference.streaming import ArrayLike, Blend, Tiling, stream
from hebbseg.networks.modes import modes_kept
from hebbseg.networks.unet import UNet

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
    """Return the mean softmax probabilities over networks, test-time augmentations and overlapping windows.

    The networks run in evaluation mode, each on the device of its weights; the result is on the image's device.

    Args:
        network: maps (B, C, *S) to logits (B, K, *S) with K ≥ 2; several networks form an ensemble.
        image: (C, *S), preprocessed.
        window: size of the windows, one number or one per axis; smaller images are centered in zeros, as in training
            with patches of that size. None predicts the whole image.
        overlap: fraction of a window covered by its neighbor, 0 ≤ overlap < 1.
        blend: weight of a window's pixels, "gaussian" (σ = 1/8 of the window) or "constant".
        tta: "flips" averages over the 2ⁿ flips of n axes; "flips+rot" adds their transposes in the plane of the first two
            axes: in 2D, all 8 flips and rotations by 90°.
        batch: windows per forward pass.

    Returns:
        (K, *S) float32, summing to 1 over K.
    """
    if image.ndim not in (3, 4):
        raise HebbsegError(f"image has shape {tuple(image.shape)}; expected (C, H, W) or (C, H, W, D), without a batch axis.")
    tiling = Tiling.over(tuple(image.shape[1:]), window=window, overlap=overlap, blend=blend, batch=batch)
    with _evaluating(network) as networks:
        predictor = _predictor(networks, tta, tiling.requested)
        x = image[None].float()  # MONAI accumulates in the type of its input
        if tiling.window == tiling.size:
            probabilities = predictor(x)[0]
        else:
            probabilities = sliding_window_inference(x, tiling.window, batch, predictor, overlap=overlap, mode=blend)[0]
    return probabilities.clone()  # tensors of inference mode cannot be modified in place


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
    band_pixels: int | None = None,
    merge: Callable[[tuple[slice, slice], Tensor], Tensor] | None = None,
) -> None:
    """Like `predict_probabilities`, but reads windows from an array on disk and writes class indices to another.

    At most two rows of windows are in memory, or with ``band_pixels`` parts of them. The classes are identical to those of
    `predict_probabilities`: the argmax of the same sums in the same order.

    Args:
        image: (C, *S), any array that can be sliced: ``np.memmap``, ``tifffile.memmap`` (with channels last, pass
            ``np.moveaxis(array, -1, 0)``), h5py, zarr.
        classes_out: (*S), receives class indices as uint8.
        prepare: preprocesses a window (C, *s) of the image; default: conversion to float32.
        uncertainty_out: (*S), receives the normalized entropy: 0 … 1, or 0 … 255 in an integer array.
        progress: called with (windows done, total windows) after every batch.
        band_pixels: wide images are predicted in several parts along their second axis, so that the sums in memory have about
            this many pixels; default: in one. Windows at the ends of a part are predicted twice, in batches of other windows,
            so that probabilities can differ by rounding.
        merge: called with the place (rows, columns) and the probabilities of every band, returns those of the classes.

    The other arguments are those of `predict_probabilities`.
    """
    size = tuple(image.shape[1:])
    for name, array in (("classes_out", classes_out), ("uncertainty_out", uncertainty_out)):
        if array is not None and tuple(array.shape) != size:
            raise HebbsegError(f"{name} has shape {tuple(array.shape)}; for an image {tuple(image.shape)} it must be {size}.")
    tiling = Tiling.over(size, window=window, overlap=overlap, blend=blend, batch=batch)
    parts = tiling.parts(band_pixels)
    with _evaluating(network) as networks:
        predictor = _predictor(networks, tta, tiling.requested)
        windows = [len(tiling.row_starts) * len(tiling.columns_of(part)) for part in parts]
        for number, part in enumerate(parts):
            report = None if progress is None else partial(_report_part, progress, sum(windows[:number]), sum(windows))
            for rows, found in stream(tiling, image, predictor, prepare, report, part):
                probabilities = found if merge is None else merge((rows, part), found)
                classes_out[rows, part] = resized_classes(probabilities, probabilities.shape[1:]).numpy()
                if uncertainty_out is not None:
                    entropy = uncertainty(probabilities).numpy()
                    integers = uncertainty_out.dtype.kind in "iu"
                    levels = (entropy * 255).round().astype(uncertainty_out.dtype) if integers else entropy
                    uncertainty_out[rows, part] = levels
                for array in (image, classes_out, uncertainty_out):
                    release_pages(array)


def _report_part(progress: Callable[[int, int], None], before: int, total: int, done: int, of_part: int) -> None:
    """Report the windows done in a part, after those of the parts before it."""
    progress(before + done, total)


def uncertainty(probabilities: Tensor) -> Tensor:
    """Return the normalized entropy −Σₖ pₖ ln pₖ / ln K of probabilities (K, *S): 0 is certain, 1 uniform."""
    return (torch.special.entr(probabilities).sum(dim=0) / math.log(probabilities.shape[0])).clamp(0, 1)


@contextmanager
def _evaluating(network: Networks) -> Iterator[list[nn.Module]]:
    networks = [network] if isinstance(network, nn.Module) else list(network)
    if not networks:
        raise HebbsegError("network is an empty list; pass at least one network.")
    with modes_kept(*networks), torch.inference_mode():
        for each in networks:
            each.eval()
        yield networks


def _predictor(networks: Sequence[nn.Module], tta: TestTimeAugmentation, size: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return a function from windows (B, C, *s) to mean probabilities (B, K, *s) on the windows' device.

    Windows are padded with zeros on all sides to ``size``.
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
                probabilities = view.back(_softmax(network, _fast_layout(network, view.apply(x)))).to(windows.device)
                total = probabilities if total is None else total + probabilities
        assert total is not None
        mean = total / (len(networks) * len(views))
        if not math.isfinite(float(mean.sum())):
            raise HebbsegError(
                "The network computes NaN or infinite values for this image. Check the image with hebbseg check, or train the "
                "model again."
            )
        return cut(mean, [-s for s in start], given) if any(start) else mean

    return predict


@dataclass(frozen=True)
class _View:
    """One test-time augmentation: the first two spatial axes transposed or not, then some axes flipped."""

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


def _fast_layout(network: nn.Module, x: Tensor) -> Tensor:
    """Return 2D windows (B, C, H, W) in the memory format in which the UNet predicts a batch faster on a CPU: channels last.

    Other networks may not accept it.
    """
    if not isinstance(network, UNet) or x.ndim != 4 or len(x) == 1 or x.device.type != "cpu":
        return x
    # With one channel, ``to(memory_format=…)`` would change no stride, by which PyTorch chooses.
    return torch.empty(x.shape, dtype=x.dtype, memory_format=torch.channels_last).copy_(x)


def _softmax(network: nn.Module, x: Tensor) -> Tensor:
    try:
        logits = network(x)
    except ValueError as error:  # of norm layers, if a level has a single value
        raise HebbsegError(f"The network cannot be applied to an image of {tuple(x.shape[2:])} pixels ({error}).") from error
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.shape[:1] + logits.shape[2:] != x.shape[:1] + x.shape[2:]:
        raise HebbsegError(f"The network returned {found} for an input {tuple(x.shape)}; expected logits (B, K, *size).")
    if logits.shape[1] < 2:
        raise HebbsegError(f"The network returned logits {found} with one channel; expected K ≥ 2, with background.")
    return logits.float().softmax(dim=1)
