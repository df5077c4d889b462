"""A trained segmenter: weights, what is done to an image before, and what the classes mean."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from hebbseg import __version__
from hebbseg.data.cases import ClassInfo
from hebbseg.data.formats import read_image
from hebbseg.data.preparation import Preparation
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.inference import predict_probabilities
from hebbseg.networks.unet import UNet
from hebbseg.training.checkpoint import load_model, save_model


@dataclass(frozen=True, kw_only=True)
class Segmenter:
    """Predicts masks of images of any size.

    Arguments:
        network: gives logits.
        network_options: with which the network is built again from a file.
        preparation: resizing and normalisation, as in training.
        classes: index, the user's own value and name of each class.
        window: size of sliding windows, or None for whole images.
        tta: averaging over mirrored (and turned) images.
    """

    network: UNet
    network_options: dict[str, Any]
    preparation: Preparation
    classes: tuple[ClassInfo, ...]
    window: tuple[int, ...] | None = None
    tta: Literal["none", "flips", "flips+rot"] = "none"

    @classmethod
    def train(
        cls, data: str | Path, out: str | Path, *, resume: bool = False, quiet: bool = False, **options: Any
    ) -> Self:
        """Both stages: Hebbian learning on all training images, then fine-tuning on the masks; measured on test cases.

        Arguments:
            data: a folder, or ``glas:PATH`` and the like.
            out: the run folder, which must not hold another run.
            resume: go on with the run in ``out``.
            quiet: no progress is shown.
            options: any of `hebbseg.config.Settings`, the same as on the command line.
        """
        from hebbseg.config import make_settings
        from hebbseg.pipeline import run
        from hebbseg.progress import make_reporter

        with make_reporter(quiet=quiet) as reporter:
            segmenter = run(make_settings(data, options), Path(out), resume=resume, reporter=reporter)
        assert isinstance(segmenter, cls)
        return segmenter

    @property
    def spatial_dims(self) -> int:
        return self.network.spatial_dims

    def predict(self, image: np.ndarray | str | Path) -> np.ndarray:
        """The mask of an image, at its own size, in the class values of the user's masks (indices for colour masks)."""
        indices = self.probabilities(image).argmax(0).numpy().astype(np.uint8)
        values = [info.value for info in self.classes]
        if all(isinstance(value, int) for value in values):
            table = np.array(values)
            return table.astype(np.min_scalar_type(int(table.max())) if table.min() >= 0 else table.dtype)[indices]
        return indices

    def probabilities(self, image: np.ndarray | str | Path) -> Tensor:
        """Class probabilities (K, *S) at the image's own size.

        An array is (*S) or, with channels, (*S, C) or (C, *S); a path is any file that `hebbseg check` can read.
        """
        array = read_image(image).array if isinstance(image, str | Path) else np.asarray(image)
        array = self._channels_first(array, first=isinstance(image, str | Path))
        return self.probabilities_of_channels(array)

    def probabilities_of_channels(self, array: np.ndarray) -> Tensor:
        """As `probabilities`, of an array (C, *S) with the network's number of channels."""
        prepared = self.preparation.to_network(self.preparation.image(array))
        probabilities = self.probabilities_of_prepared(prepared)
        if probabilities.shape[1:] == array.shape[1:]:
            return probabilities
        mode = "bilinear" if self.spatial_dims == 2 else "trilinear"
        return F.interpolate(probabilities[None], size=array.shape[1:], mode=mode, align_corners=False)[0]

    def probabilities_of_prepared(self, image: Tensor) -> Tensor:
        """(C, *S) as the network sees it → (K, *S)."""
        tta = False if self.tta == "none" else self.tta
        return predict_probabilities(self.network, image, window=self.window, tta=tta, batch=4)

    def save(self, path: str | Path) -> None:
        """One safetensors file: weights, and in its metadata everything else."""
        save_model(Path(path), self.network.state_dict(), self.describe())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote; a folder means its model.safetensors. Executes no code from the file."""
        path = Path(path)
        weights, description = load_model(path / "model.safetensors" if path.is_dir() else path)
        try:
            network = UNet(**description["network"])
            network.load_state_dict(weights)
            classes = tuple(ClassInfo(**_class(info)) for info in description["classes"])
            preparation = Preparation.from_description(description["preparation"])
            window = None if description["window"] is None else tuple(description["window"])
            tta = description["tta"]
        except (KeyError, TypeError, RuntimeError) as error:
            raise HebbsegError(f"{path}: the model's description does not fit ({error}). Train it again.") from error
        return cls(
            network=network.eval(),
            network_options=description["network"],
            preparation=preparation,
            classes=classes,
            window=window,
            tta=tta,
        )

    def describe(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "network": self.network_options,
            "preparation": self.preparation.describe(),
            "classes": [asdict(info) for info in self.classes],
            "window": None if self.window is None else list(self.window),
            "tta": self.tta,
        }

    def _channels_first(self, array: np.ndarray, *, first: bool) -> np.ndarray:
        """To (C, *S) with the network's number of channels; grey and colour are turned into each other where needed."""
        wanted, dims = self.network.in_channels, self.spatial_dims
        if array.ndim == dims:
            array = array[None]
        elif array.ndim == dims + 1 and not first and array.shape[-1] in {wanted, 1, 3, 4} and array.shape[0] != wanted:
            array = np.moveaxis(array, -1, 0)
        if array.ndim != dims + 1:
            raise HebbsegError(
                f"An array of shape {array.shape}: this model takes {dims} spatial axes and {wanted} channels, "
                f"{'(H, W), (H, W, C) or (C, H, W)' if dims == 2 else '(D, H, W), (D, H, W, C) or (C, D, H, W)'}."
            )
        if len(array) == 4 and wanted == 3:
            array = array[:3]  # no transparency
        if len(array) == 1 and wanted == 3:
            array = np.repeat(array, 3, axis=0)
        if len(array) in (3, 4) and wanted == 1:
            array = np.round(np.tensordot((0.299, 0.587, 0.114), array[:3].astype(float), 1))[None].astype(array.dtype)
        if len(array) != wanted:
            raise HebbsegError(f"An image with {len(array)} channels: this model was trained on {wanted}.")
        return array


def _class(info: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {
        key: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for key, value in info.items()
    }
