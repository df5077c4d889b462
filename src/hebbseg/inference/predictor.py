"""A trained network with its preprocessing and classes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch
from torch import Tensor, nn

from hebbseg import __version__
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.formats import read_image
from hebbseg.data.io.image_file import Axes, user_values
from hebbseg.data.io.image_file import Image as ImageFile
from hebbseg.data.io.orientation import to_grid, values_to_grid
from hebbseg.data.labels.instances import Objects
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.resampling import resized_classes, resized_probabilities
from hebbseg.errors import FileError, HebbsegError, explaining
from hebbseg.inference.memory import BATCH, refuse_more_than_memory
from hebbseg.inference.model_description import ModelDescription, Tta
from hebbseg.inference.objects import MergedBorder, ObjectOptions, find_objects
from hebbseg.inference.sliding_window import predict_probabilities
from hebbseg.inference.streaming import Blend
from hebbseg.networks.factory import as_described, build_network, declared_shapes
from hebbseg.networks.model_file import compare_shapes, compare_types, load_model, save_model

Image = np.ndarray | str | Path


@dataclass(frozen=True, kw_only=True, repr=False)
class Predictor:
    """Predicts masks of images of any size.

    Args:
        network: returns logits.
        network_options: keywords of `build_network`, to rebuild the network from a file.
        preprocessing: resizing and normalization, as in training.
        classes: index, mask value and name of each class.
        window: size of sliding windows, or None for whole images.
        tta: test-time augmentation by flips (and rotations).
        blend: weight of a window's pixels where windows overlap.
        axes: order of axes of the training files; other files are transposed to it, and their masks back. "stored"
            disables this.
        orientation: orientation of the training volumes (see `hebbseg.data.io.orientation`); volumes with another one are
            turned to it, and their masks back. None disables this.
        borders: the network has one more output than there are classes, the border of objects. It counts as foreground,
            except in `objects`.
    """

    network: nn.Module
    network_options: dict[str, Any]
    preprocessing: Preprocessing
    classes: tuple[ClassInfo, ...]
    window: tuple[int, ...] | None = None
    tta: Tta = "none"
    blend: Blend = "gaussian"
    axes: Axes = "stored"
    borders: bool = False
    orientation: str | None = None

    @property
    def spatial_dims(self) -> int:
        return int(self.network_options["spatial_dims"])

    @property
    def in_channels(self) -> int:
        return int(self.network_options["in_channels"])

    def __repr__(self) -> str:
        network = type(self.network).__name__
        channels = f"{self.in_channels} channel" + ("s" if self.in_channels > 1 else "")
        names = ", ".join(info.name or str(info.value) for info in self.classes)
        size = self.preprocessing.grid
        return f"{type(self).__name__}({network}, {self.spatial_dims}D, {channels}, {size}, classes: {names})"

    @overload
    def predict(self, image: Image) -> np.ndarray: ...

    @overload
    def predict(self, image: list[Image] | tuple[Image, ...]) -> list[np.ndarray]: ...

    def predict(self, image: Image | list[Image] | tuple[Image, ...]) -> np.ndarray | list[np.ndarray]:
        """Return the mask at the size of the image, in the values of the training masks (indices for color masks).

        A list of images, which may differ in size, gives the list of their masks. Arrays have the spacing and orientation of
        the training images; those of files are read from their headers.
        """
        if isinstance(image, list | tuple) and all(isinstance(each, str | Path) or _is_array(each) for each in image):
            return [self.predict(each) for each in image]
        one = _as_array(image) if isinstance(image, list | tuple) else image
        return user_values(self.probabilities(one).argmax(0).numpy(), self.classes)

    def objects(self, image: Image, method: str = "components", *, min_size: int = 0, fill_holes: bool = True) -> Objects:
        """Return the numbered objects of an image, at its size; see `hebbseg.inference.objects.ObjectOptions`."""
        options = ObjectOptions(method=method, min_size=min_size, fill_holes=fill_holes)
        if not isinstance(image, str | Path):
            return find_objects(self.with_border_class.probabilities(image).numpy(), options, borders=self.borders)
        file = read_image(image)
        probabilities = self.with_border_class.probabilities_of_file(file)
        return find_objects(probabilities.numpy(), options, borders=self.borders, spacing=file.spacing_mm)

    @property
    def with_border_class(self) -> Self:
        """The same predictor, whose last class is the border if it has learned one."""
        if not self.borders:
            return self
        border = ClassInfo(index=len(self.classes), value=len(self.classes), name="border")
        return replace(self, borders=False, classes=(*self.classes, border))

    @property
    def class_network(self) -> nn.Module:
        """The network with one output per class."""
        return MergedBorder(self.network) if self.borders else self.network

    def probabilities(self, image: Image) -> Tensor:
        """Return class probabilities (K, *S) at the size of the image.

        Arrays are (*S), (*S, C) or (C, *S); paths are any file that `hebbseg check` can read. Gray and color are converted
        to what the model needs; opacity is dropped.
        """
        if isinstance(image, str | Path):
            return self.probabilities_of_file(read_image(image))
        return self.probabilities_of_channels(
            self.as_channels(_channels_first(_as_array(image), self.spatial_dims, self.in_channels))
        )

    def probabilities_of_file(self, file: ImageFile) -> Tensor:
        """Like `probabilities`, for an image from `read_image`, whose voxels stay in the order of the file."""
        own, wanted, dims = (file.axes, file.orientation), (self.axes, self.orientation), file.array.ndim - 1
        turned = to_grid(np.moveaxis(file.array, 0, -1), own, wanted, dims=dims)  # (C, *S) → (*S', C)
        spacing = None if file.spacing_mm is None else values_to_grid(file.spacing_mm, own, wanted)
        probabilities = self.probabilities_of_channels(self.as_channels(np.moveaxis(turned, -1, 0)), spacing)
        # (K, *S') → (*S', K) → (*S, K) → (K, *S)
        back = to_grid(probabilities.movedim(0, -1).numpy(), wanted, own, dims=dims)
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(back, -1, 0)))

    def not_stated(self, file: ImageFile) -> str | None:
        """Return what a file does not state although the model uses it: "spacing" or "orientation"."""
        if self.preprocessing.spacing is not None and file.spacing_mm is None:
            return "spacing"
        turns = self.orientation is not None and self.spatial_dims == 3
        return "orientation" if turns and file.orientation is None else None

    def probabilities_of_channels(self, array: np.ndarray, spacing: Sequence[float] | None = None) -> Tensor:
        """Like `probabilities`, for an array (C, *S) with the network's number of channels.

        Args:
            spacing: millimeters per axis; None: that of the training images.
        """
        size = self.preprocessing.working_size(array.shape[1:], spacing)
        inside, batch = (self.window, BATCH) if self.window else (size, 1)
        for kept in (size, array.shape[1:]):
            refuse_more_than_memory(self.network_options, kept, len(self.classes), size=inside, batch=batch)
        prepared = self.preprocessing.to_network(self.preprocessing.image(array, spacing))
        return resized_probabilities(self.probabilities_of_preprocessed(prepared), array.shape[1:])

    def probabilities_of_preprocessed(self, image: Tensor) -> Tensor:
        """Like `probabilities`, for a preprocessed image (C, *S)."""
        tta = False if self.tta == "none" else self.tta
        return predict_probabilities(self.class_network, image, window=self.window, blend=self.blend, tta=tta, batch=BATCH)

    def classes_of_preprocessed(self, image: Tensor, size: Sequence[int]) -> np.ndarray:
        """Return class indices (*size) uint8 of a preprocessed image (C, *S), the argmax of the probabilities at this size."""
        return resized_classes(self.probabilities_of_preprocessed(image), size).numpy()

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: weights, and the configuration as metadata."""
        weights = self.network.state_dict()
        if not weights:
            raise HebbsegError(f"{path}: this model was loaded from an ONNX file and has no weights to save. Copy the file.")
        save_model(Path(path), weights, self.describe())

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Load a file of `save`, the model.safetensors of a run folder, or an ONNX file of `hebbseg export`.

        Executes no code from the file.

        Args:
            trust: import and call any network factory that the file names; False: only our UNet and MONAI's networks.
        """
        path = Path(path)
        if path.suffix.lower() == ".onnx":
            from hebbseg.inference.export.onnx_file import load_onnx

            return cls(**load_onnx(path))
        weights, description = load_model(path / "model.safetensors" if path.is_dir() else path)
        try:
            described = ModelDescription.of(description, trust=trust)
            shapes = declared_shapes(described.network)  # before memory is allocated
            if shapes is not None:
                compare_shapes(weights, shapes)
            network = build_network(**described.network)
            compare_types(weights, network.state_dict())
            with explaining(path, "its weights do not fit its configuration", "Use an intact copy, or train the model again."):
                network.load_state_dict(weights)
        except FileError:
            raise
        except HebbsegError as error:
            raise HebbsegError(f"{path}: {error}") from error
        return cls(network=network.eval(), **settings_of(described))

    def describe(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "network": as_described(self.network_options),
            "preprocessing": self.preprocessing.describe(),
            "classes": [asdict(info) for info in self.classes],
            "window": None if self.window is None else list(self.window),
            "tta": self.tta,
            "blend": self.blend,
            "axes": self.axes,
            "borders": self.borders,
            "orientation": self.orientation,
        }

    def as_channels(self, array: np.ndarray) -> np.ndarray:
        """Convert (C, *S) to the network's number of channels: gray, color, or color with opacity."""
        wanted, dims = self.in_channels, self.spatial_dims
        if array.ndim != dims + 1:
            raise HebbsegError(
                f"Image of shape {array.shape}: this model takes {dims} spatial axes and {wanted} channels, "
                f"{'(H, W), (H, W, C) or (C, H, W)' if dims == 2 else '(D, H, W), (D, H, W, C) or (C, D, H, W)'}. "
                "Pass several images as a list."
            )
        if len(array) == 4 and wanted == 3:
            array = array[:3]  # without opacity
        if len(array) == 1 and wanted == 3:
            array = np.repeat(array, 3, axis=0)
        if len(array) in (3, 4) and wanted == 1:
            gray = np.tensordot((0.299, 0.587, 0.114), array[:3].astype(float), 1)[None]
            array = (np.round(gray) if array.dtype.kind in "iu" else gray).astype(array.dtype)
        if len(array) != wanted:
            raise HebbsegError(f"Image with {len(array)} channels: this model was trained on {wanted}.")
        return array


def settings_of(described: ModelDescription) -> dict[str, Any]:
    """Return the keywords of `Predictor` except the network."""
    return {
        "network_options": described.network,
        "preprocessing": Preprocessing.from_description(described.preprocessing),
        "classes": described.class_infos,
        "window": described.window,
        "tta": described.tta,
        "blend": described.blend,
        "axes": described.axes,
        "borders": described.borders,
        "orientation": described.orientation,
    }


def _is_array(image: object) -> bool:
    """Whether this is an array or an image of Pillow."""
    return hasattr(image, "__array__") or hasattr(image, "__array_interface__")


def _as_array(image: object) -> np.ndarray:
    try:
        return np.asarray(image)
    except ValueError:  # a list of lists of different lengths
        return np.asarray(None)


def _channels_first(array: np.ndarray, dims: int, wanted: int) -> np.ndarray:
    """Return a user's array with channels first, in a number type of image files."""
    if array.dtype.kind not in "buif":
        raise HebbsegError(
            f"Image of type {array.dtype}: pass the path of an image, an array of integers or floating-point numbers, or a "
            "list of these."
        )
    if not array.size:
        raise HebbsegError(f"Image of shape {array.shape}: it has no pixels.")
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    if array.dtype in (np.int64, np.uint64) and array.size and array.min() >= 0 and array.max() < 2**16:
        # numpy's default integers; scaling by their maximum would leave only zeros.
        array = array.astype(np.min_scalar_type(int(array.max())))
    if not array.flags.writeable:
        array = array.copy()  # torch warns about read-only arrays, such as Pillow's
    if array.ndim == dims:
        return array[None]
    if array.ndim == dims + 1 and array.shape[-1] in {wanted, 1, 3, 4} and array.shape[0] != wanted:
        return np.moveaxis(array, -1, 0)
    return array
