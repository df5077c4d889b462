"""A trained network with its preprocessing and its classes: predicts masks of images of any size."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg import __version__
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.formats import match_axes, read_image
from hebbseg.data.io.image_file import Axes, user_values
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.errors import HebbsegError
from hebbseg.inference.sliding_window import predict_probabilities
from hebbseg.networks.factory import as_described, build_network, check_trusted
from hebbseg.networks.model_file import load_model, save_model

Tta = Literal["none", "flips", "flips+rot"]


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """Predicts masks of images of any size.

    Args:
        network: gives logits.
        network_options: keywords of `build_network`, with which the network is built again from a file.
        preprocessing: resizing and normalisation, as in training.
        classes: index, the user's own value and name of each class.
        window: size of sliding windows, or None for whole images.
        tta: averaging over mirrored (and turned) images.
        axes: order of the axes of the files it was trained on; files of another order are turned to it and their
            masks back. "stored" takes every file as it is.
    """

    network: nn.Module
    network_options: dict[str, Any]
    preprocessing: Preprocessing
    classes: tuple[ClassInfo, ...]
    window: tuple[int, ...] | None = None
    tta: Tta = "none"
    axes: Axes = "stored"

    @property
    def spatial_dims(self) -> int:
        return int(self.network_options["spatial_dims"])

    @property
    def in_channels(self) -> int:
        return int(self.network_options["in_channels"])

    def predict(self, image: np.ndarray | str | Path) -> np.ndarray:
        """The mask of an image, at its own size, in the class values of the user's masks (indices for colour masks)."""
        return user_values(self.probabilities(image).argmax(0).numpy(), self.classes)

    def probabilities(self, image: np.ndarray | str | Path) -> Tensor:
        """Class probabilities (K, *S) at the image's own size.

        An array is (*S) or, with channels, (*S, C) or (C, *S); a path is any file that `hebbseg check` can read.
        Grey and colour are turned into each other where the model needs it, and opacity is dropped.
        """
        if isinstance(image, str | Path):
            file = read_image(image)
            return self.probabilities_of_file(file.array, file.axes)
        return self.probabilities_of_channels(
            self.as_channels(_channels_first(np.asarray(image), self.spatial_dims, self.in_channels))
        )

    def probabilities_of_file(self, array: np.ndarray, axes: Axes) -> Tensor:
        """As `probabilities`, of (C, *S) as `read_image` gives it, in the order of axes it has."""
        turned = match_axes(np.moveaxis(array, 0, -1), axes, self.axes, dims=array.ndim - 1)  # (C, *S) → (*S', C)
        probabilities = self.probabilities_of_channels(self.as_channels(np.moveaxis(turned, -1, 0)))
        # (K, *S') → (*S', K) → (*S, K) → (K, *S)
        back = match_axes(probabilities.movedim(0, -1).numpy(), self.axes, axes, dims=array.ndim - 1)
        return torch.from_numpy(np.moveaxis(back, -1, 0))

    def probabilities_of_channels(self, array: np.ndarray) -> Tensor:
        """As `probabilities`, of an array (C, *S) with the network's number of channels."""
        prepared = self.preprocessing.to_network(self.preprocessing.image(array))
        probabilities = self.probabilities_of_preprocessed(prepared)
        if probabilities.shape[1:] == array.shape[1:]:
            return probabilities
        mode = "bilinear" if self.spatial_dims == 2 else "trilinear"
        return F.interpolate(probabilities[None], size=array.shape[1:], mode=mode, align_corners=False)[0]

    def probabilities_of_preprocessed(self, image: Tensor) -> Tensor:
        """(C, *S) as the network sees it → (K, *S)."""
        tta = False if self.tta == "none" else self.tta
        return predict_probabilities(self.network, image, window=self.window, tta=tta, batch=4)

    def save(self, path: str | Path) -> None:
        """One safetensors file: weights, and in its metadata everything else."""
        save_model(Path(path), self.network.state_dict(), self.describe())

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Reads what `save` wrote; a folder means its model.safetensors. Executes no code from the file.

        Args:
            trust: import and call the network factory that the file names, whatever it is. Off, only our UNet and
                MONAI's networks are built.
        """
        path = Path(path)
        weights, description = load_model(path / "model.safetensors" if path.is_dir() else path)
        try:
            described = as_described(description["network"])
            if not trust:
                check_trusted(described)
            network = build_network(**described)
            network.load_state_dict(weights)
            classes = tuple(ClassInfo(**_class(info)) for info in description["classes"])
            preprocessing = Preprocessing.from_description(description.get("preprocessing") or description["preparation"])
            window = None if description["window"] is None else tuple(description["window"])
            tta, axes = description["tta"], description.get("axes", "stored")
        except HebbsegError as error:
            raise HebbsegError(f"{path}: {error}") from error
        except (KeyError, TypeError, RuntimeError) as error:
            raise HebbsegError(f"{path}: the model's description does not fit ({error}). Train it again.") from error
        return cls(
            network=network.eval(),
            network_options=described,
            preprocessing=preprocessing,
            classes=classes,
            window=window,
            tta=tta,
            axes=axes,
        )

    def describe(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "network": as_described(self.network_options),
            "preprocessing": self.preprocessing.describe(),
            "classes": [asdict(info) for info in self.classes],
            "window": None if self.window is None else list(self.window),
            "tta": self.tta,
            "axes": self.axes,
        }

    def as_channels(self, array: np.ndarray) -> np.ndarray:
        """(C, *S) with any reasonable number of channels → the number the network takes."""
        wanted, dims = self.in_channels, self.spatial_dims
        if array.ndim != dims + 1:
            raise HebbsegError(
                f"An image of shape {array.shape}: this model takes {dims} spatial axes and {wanted} channels, "
                f"{'(H, W), (H, W, C) or (C, H, W)' if dims == 2 else '(D, H, W), (D, H, W, C) or (C, D, H, W)'}."
            )
        if len(array) == 4 and wanted == 3:
            array = array[:3]  # no transparency
        if len(array) == 1 and wanted == 3:
            array = np.repeat(array, 3, axis=0)
        if len(array) in (3, 4) and wanted == 1:
            grey = np.tensordot((0.299, 0.587, 0.114), array[:3].astype(float), 1)[None]
            array = (np.round(grey) if array.dtype.kind in "iu" else grey).astype(array.dtype)
        if len(array) != wanted:
            raise HebbsegError(f"An image with {len(array)} channels: this model was trained on {wanted}.")
        return array


def _channels_first(array: np.ndarray, dims: int, wanted: int) -> np.ndarray:
    """An array as people hold it in memory, channels first, in a number type that image files have."""
    if array.dtype.kind not in "buif":
        raise HebbsegError(f"An image of type {array.dtype}: allowed are whole and floating-point numbers.")
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    if array.dtype in (np.int64, np.uint64) and array.size and array.min() >= 0 and array.max() < 2**16:
        # numpy's usual whole numbers; no image file has them, and scaling by their largest would leave nothing.
        array = array.astype(np.min_scalar_type(int(array.max())))
    if not array.flags.writeable:
        array = array.copy()  # torch warns of Pillow's arrays, though nothing is written here
    if array.ndim == dims:
        return array[None]
    if array.ndim == dims + 1 and array.shape[-1] in {wanted, 1, 3, 4} and array.shape[0] != wanted:
        return np.moveaxis(array, -1, 0)
    return array


def _class(info: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {
        key: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for key, value in info.items()
    }
