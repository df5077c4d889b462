"""Refusal of images that no model can predict, before the first one is read."""

from collections.abc import Sequence

from hebbseg.data.io.formats import read_header
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError
from hebbseg.inference.files import Input
from hebbseg.inference.predictor import Predictor

AXES = {2: "images (height, width)", 3: "volumes (three spatial axes, such as NIfTI files or multi-page TIFFs)"}


def refuse_other_dimensions(segmenter: Predictor, inputs: Sequence[Input]) -> None:
    """Raise if the images have other spatial dimensions than the model, all of them; reads headers up to the first that fits.

    An image among others that fit, and one whose header cannot be read, is reported when it is its turn.
    """
    wanted, found = segmenter.spatial_dims, 0
    for each in inputs:
        found = _spatial_dims(each)
        if found in (0, wanted):
            return
    if found:
        first = inputs[0]
        name = str(first.files[0]) if first.files else first.name
        channels = counted(segmenter.in_channels, "channel")
        others = f", like the other {len(inputs) - 1}" if len(inputs) > 1 else ""
        raise HebbsegError(
            f"{name}: a {found}D image{others}, but the model is {wanted}D. It expects {AXES[wanted]} with {channels}. Pass "
            f"{wanted}D data, or use a model trained on {found}D data. Nothing was written."
        )


def _spatial_dims(each: Input) -> int:
    """Return the number of spatial axes; 0 if the header does not tell."""
    if not each.files:
        return 0
    try:
        return len(read_header(each.files[0]).shape)
    except HebbsegError:
        return 0
