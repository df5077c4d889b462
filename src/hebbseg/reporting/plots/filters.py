"""Figures of the filters learned in stage 1."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from torch.nn.modules.conv import _ConvTransposeNd

from hebbseg.errors import HebbsegError
from hebbseg.networks.factory import as_described, build_network, check_trusted
from hebbseg.networks.model_file import load_model
from hebbseg.reporting.plots.figures import plt
from hebbseg.text_files import read_json

UNITS_AT_MOST = 16
CHANNELS_AT_MOST = 16


def learned_filters(folder: Path, seed: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the first layer trained in stage 1 and its filters before (random initialization) and after.

    Shapes: (output channels, input channels, h, w); 3D filters by their middle slice. Raises HebbsegError if the files of
    the run do not match.
    """
    weights, described = load_model(folder / "pretrained.safetensors")
    try:
        layer = next(iter(read_json(folder / "pretrain.json", "Restore it from a backup.")))
        network = as_described(described["network"])
        check_trusted(network)
        module = build_network(**network, seed=seed).get_submodule(layer)
        banks = [bank.detach().numpy() for bank in (module.get_parameter("weight"), weights[f"{layer}.weight"])]
        if isinstance(module, _ConvTransposeNd):
            banks = [bank.swapaxes(0, 1) for bank in banks]
        if any(bank.ndim not in (4, 5) for bank in banks) or banks[0].shape != banks[1].shape:
            raise ValueError(f"shapes {banks[0].shape} and {banks[1].shape} of {layer}")
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, StopIteration) as error:
        raise HebbsegError(f"{folder}: the weights of stage 1 belong to another network ({error!r}).") from error
    first, last = (bank[:, :, bank.shape[2] // 2] if bank.ndim == 5 else bank for bank in banks)
    return layer, first, last


def draw_filters(before: np.ndarray, after: np.ndarray) -> Figure:
    """Plot one patch per output channel (1 or 3 input channels) or a row of patches per output channel (others)."""
    banks = {"before": before[:UNITS_AT_MOST], "after": after[:UNITS_AT_MOST]}
    if before.shape[1] in (1, 3):
        figure, axes = plt.subplots(2, len(banks["before"]), figsize=(0.7 * len(banks["before"]) + 0.4, 1.7), squeeze=False)
        for row, (name, bank) in zip(axes, banks.items(), strict=True):
            for axis, weights in zip(row, bank, strict=True):
                shown = np.moveaxis(_around_grey(weights), 0, -1)
                axis.imshow(shown if len(weights) == 3 else shown[..., 0], cmap="gray", vmin=0, vmax=1)
            row[0].set_ylabel(name)
    else:
        figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), squeeze=False, layout="constrained")
        for axis, (name, bank) in zip(axes[0], banks.items(), strict=True):
            axis.imshow(_mosaic(bank[:, :CHANNELS_AT_MOST]), cmap="gray", vmin=0, vmax=1)
            axis.set(title=name, xlabel="input channel", ylabel="output channel")
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def _around_grey(weights: np.ndarray) -> np.ndarray:
    """Scale symmetrically to 0 … 1; 0 becomes gray."""
    return 0.5 + 0.5 * weights / max(float(np.abs(weights).max()), 1e-12)


def _mosaic(bank: np.ndarray) -> np.ndarray:
    """Arrange (units, channels, h, w) as one image, one row per unit, separated by white lines."""
    scaled = np.stack([_around_grey(weights) for weights in bank])
    framed = np.pad(scaled, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=1.0)
    units, channels, h, w = framed.shape
    return framed.transpose(0, 2, 1, 3).reshape(units * h, channels * w)
