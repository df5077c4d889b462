"""Linear probe: segmentation by a single linear layer on frozen features, for each level."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hebbseg.data.cases import IGNORE
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import dice, pooled_dice

Features = Callable[[Tensor], Mapping[str, Tensor]]
Example = tuple[Tensor, Tensor]

_INTERPOLATION = {2: "bilinear", 3: "trilinear"}


class ProbeScore(NamedTuple):
    """``dice``: mean over images of the mean over foreground classes; ``dice_pooled``: see `pooled_dice`."""

    dice: float
    dice_pooled: float


def linear_probe(
    features: Features,
    fit: Sequence[Example],
    held_out: Iterable[Example],
    *,
    n_classes: int,
    generator: torch.Generator,
    pixels_per_image: int = 1024,
    penalty: float = 1e-3,
    multiple_of: int = 16,
) -> dict[str, ProbeScore]:
    """Fit one linear layer per feature map on a few labelled pixels, and compute its Dice on held-out images.

    For each map, with f̃ the features standardized and linearly interpolated to the image's pixels,

        min over W, b of  −mean log softmax(W f̃ + b)[class] + penalty · ‖W‖²

    which is convex and minimized by L-BFGS. Interpolation and the linear layer commute: features are interpolated only at
    the fitted pixels, and on held-out images the logits are interpolated. The fitted pixels are balanced over classes.

    Args:
        features: maps (1, channels, *S) to {name: (1, C, *s)}; networks must be in evaluation mode.
        fit: pairs of image (channels, *S) and mask (*S) of class indices, with two or three spatial axes. Pixels with index
            `IGNORE` are neither fitted nor evaluated.
        held_out: pairs to compute Dice on.
        n_classes: number of classes, including background (0).
        generator: chooses the pixels.
        pixels_per_image: number of fitted pixels per image.
        penalty: weight of ‖W‖².
        multiple_of: images are padded to multiples of this (border repeated at the far sides).

    Returns:
        {name: Dice on the held-out images}, in the order of ``features``.
    """
    if not fit:
        raise HebbsegError("fit is empty: the probe needs at least one image with a mask.")
    samples: dict[str, list[Tensor]] = {}
    classes: list[Tensor] = []
    for image, mask in fit:
        positions = _balanced_positions(_checked_mask(image, mask, n_classes), n_classes, pixels_per_image, generator)
        classes.append(mask[tuple(positions.T)].long())
        padded = _pad(image, multiple_of)
        for name, feature_map in _features(features, padded).items():
            samples.setdefault(name, []).append(_at(feature_map, positions, padded.shape[1:]))
    target = torch.cat(classes)
    layers = {
        name: fit_linear(torch.cat(parts), target, n_classes=n_classes, penalty=penalty) for name, parts in samples.items()
    }
    scores: dict[str, list[float]] = {name: [] for name in layers}
    counts: dict[str, list[dict[str, int]]] = {name: [] for name in layers}  # one row per image and class
    for image, mask in held_out:
        _checked_mask(image, mask, n_classes)
        padded = _pad(image, multiple_of)
        for name, feature_map in _features(features, padded).items():
            predicted = _predict(feature_map, *layers[name], padded.shape[1:])[tuple(slice(n) for n in mask.shape)]
            predicted, mask = predicted.where(mask != IGNORE, 0), mask.where(mask != IGNORE, 0)
            per_class = [dice(predicted == k, mask == k) for k in range(1, n_classes)]
            scores[name].append(sum(per_class) / len(per_class))
            counts[name] += [_counts(predicted, mask, k) for k in range(1, n_classes)]
    if not all(scores.values()):
        raise HebbsegError("held_out is empty: the probe needs at least one image with a mask to evaluate.")
    return {
        name: ProbeScore(dice=sum(values) / len(values), dice_pooled=pooled_dice(counts[name]))
        for name, values in scores.items()
    }


def _counts(predicted: Tensor, mask: Tensor, k: int) -> dict[str, int]:
    p, t = predicted == k, mask == k
    return {"class": k, "n_intersection": int((p & t).sum()), "n_prediction": int(p.sum()), "n_target": int(t.sum())}


def fit_linear(x: Tensor, y: Tensor, *, n_classes: int, penalty: float) -> tuple[Tensor, Tensor]:
    """Fit a multinomial logistic regression on standardized features.

    Args:
        x: (n, C) features.
        y: (n) class indices.
        penalty: weight of the squared norm of the weights for standardized features.

    Returns:
        Weights (n_classes, C) and bias (n_classes) for the original features, float32.
    """
    x = x.double()
    mean, scale = x.mean(dim=0), x.std(dim=0, correction=0)
    scale = torch.where(scale > 1e-6 * (mean.abs() + 1e-6), scale, torch.ones_like(scale))  # constant features
    standardized = (x - mean) / scale
    weight = torch.zeros(n_classes, x.shape[1], dtype=x.dtype, device=x.device, requires_grad=True)
    bias = torch.zeros(n_classes, dtype=x.dtype, device=x.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(standardized @ weight.T + bias, y) + penalty * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    weight, bias = weight.detach() / scale, bias.detach()
    return weight.float(), (bias - weight @ mean).float()


def _features(features: Features, image: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        return {name: feature_map.float() for name, feature_map in features(image[None]).items()}


def _checked_mask(image: Tensor, mask: Tensor, n_classes: int) -> Tensor:
    if mask.ndim not in _INTERPOLATION or image.shape[1:] != mask.shape:
        raise HebbsegError(
            f"image has shape {tuple(image.shape)} and mask {tuple(mask.shape)}; expected (C, *S) and (*S) with two or three "
            "spatial axes."
        )
    known = mask[mask != IGNORE]
    if not len(known):
        raise HebbsegError("No pixel of the mask is annotated. Annotate some pixels, or leave the image out.")
    if known.min() < 0 or known.max() >= n_classes:
        raise HebbsegError(f"mask has classes {known.min()} … {known.max()}; allowed are 0 … {n_classes - 1}.")
    return mask


def _balanced_positions(mask: Tensor, n_classes: int, n_pixels: int, generator: torch.Generator) -> Tensor:
    """Return (n, spatial axes) indices of pixels, equally many from every class that has enough."""
    chosen = []
    for index in range(n_classes):
        of_class = (mask == index).nonzero()
        order = torch.randperm(len(of_class), generator=generator)[: n_pixels // n_classes]
        chosen.append(of_class[order.to(mask.device)])
    return torch.cat(chosen)


def _pad(image: Tensor, multiple_of: int) -> Tensor:
    missing = [(-n) % multiple_of for n in image.shape[1:]]
    sides = [side for m in reversed(missing) for side in (0, m)]  # torch counts from the last axis
    return F.pad(image[None].float(), sides, mode="replicate")[0] if any(missing) else image


def _at(feature_map: Tensor, positions: Tensor, size: Sequence[int]) -> Tensor:
    """Interpolate the map (1, C, *s) linearly to n pixels of an image of ``size``: (n, C)."""
    n_axes = len(size)
    # Pixel centers in the coordinates −1 … 1 of grid_sample, last axis first.
    grid = (2 * positions.to(feature_map) + 1) / feature_map.new_tensor(list(size)) - 1
    grid = grid.flip(1).reshape(1, len(positions), *[1] * (n_axes - 1), n_axes)  # (1, n, 1[, 1], axes)
    sampled = F.grid_sample(feature_map, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return sampled.reshape(feature_map.shape[1], len(positions)).T  # (1, C, n, 1[, 1]) → (n, C)


def _predict(feature_map: Tensor, weight: Tensor, bias: Tensor, size: Sequence[int]) -> Tensor:
    """Return the classes (*size) that a linear layer predicts from a map (1, C, *s)."""
    logits = torch.einsum("kc,nc...->nk...", weight, feature_map)
    enlarged = F.interpolate(logits, size=tuple(size), mode=_INTERPOLATION[len(size)], align_corners=False)[0]
    return (enlarged + bias.reshape(-1, *[1] * len(size))).argmax(dim=0)
