"""What an exported file says about its use: input, output, preprocessing and classes."""

from collections.abc import Callable
from typing import Any

from hebbseg.inference.export.traced import Checked, axes_names
from hebbseg.inference.predictor import Predictor

CLIPPING = (
    "clip to [2a - b, 2b - a], where a and b are the 0.5th and 99.5th percentile (minimum and maximum if these are equal)"
)


def describing(predictor: Predictor, format: str) -> Callable[[Checked], dict[str, Any]]:
    """Return the function that makes the metadata of a checked export: the description of the model file, and ``export``."""

    def describe(checked: Checked) -> dict[str, Any]:
        axes = ["batch", "channel", *axes_names(predictor.spatial_dims)]
        border = {"border": {"name": "border", "type": "float32", "axes": axes}} if checked.border else {}
        return predictor.describe() | {
            "export": {
                "format": format,
                "input": {"name": "image", "type": "float32", "axes": axes, "step": checked.step},
                "output": {"name": "probabilities", "type": "float32", "axes": axes},
                **border,
                "steps": steps(predictor),
                "checked": {"sizes": [list(size) for size in checked.sizes], "difference": checked.difference},
            }
        }

    return describe


def steps(predictor: Predictor) -> list[str]:
    """Return what to do with an image before and after the network, in sentences."""
    channels, size, window = predictor.in_channels, predictor.preprocessing.size, predictor.window
    found = [f"Convert the image to {channels} channel{'s' if channels > 1 else ''} ({_channels(channels)})."]
    if size is not None:
        how = "bilinear with anti-aliasing" if len(size) == 2 else "trilinear, area average when shrinking"
        found.append(f"Resize it to {_times(size)} pixels ({how}).")
    if predictor.orientation is not None:
        found.append(f"Turn it by flips and transpositions to the orientation {predictor.orientation} (x, y, z).")
    if (spacing := predictor.preprocessing.spacing) is not None:
        steps_mm = "×".join(f"{step:g}" for step in spacing)
        found.append(f"Resample it to {steps_mm} mm (linear with anti-aliasing; size = round(size × spacing / {steps_mm})).")
    if predictor.preprocessing.normalize == "zscore":
        found.append(f"For each channel: {CLIPPING}, subtract the mean and divide by the standard deviation.")
    else:
        found.append(
            f"Divide integers by the maximum of their type (8 bit: 255); for floating-point images: {CLIPPING}, then scale "
            "a to 0 and b to 1."
        )
    if window is not None:
        found.append(
            f"Predict windows of {_times(window)} pixels that overlap by half, and average their probabilities with "
            f"{predictor.blend} weights."
        )
    if predictor.preprocessing.resizes:
        found.append("Resize the probabilities to the size of the image (linear).")
    found.append("The class of a pixel is the one with the highest probability.")
    if predictor.borders:
        found.append(
            "To separate touching objects: the inside of objects is where the foreground's probability is more than twice that "
            "of the border (second output). Each connected area of it is an object, which grows over the rest of the "
            "foreground (watershed)."
        )
    return found


def _channels(channels: int) -> str:
    return {1: "grayscale: 0.299 R + 0.587 G + 0.114 B", 3: "red, green, blue"}.get(channels, "in the order of training")


def _times(sides: tuple[int, ...]) -> str:
    return "×".join(map(str, sides))
