"""The memory that a prediction needs, compared with that of the machine before it is allocated."""

import math
from collections.abc import Sequence
from typing import Any

from hebbseg.data.memory import machine_memory
from hebbseg.errors import HebbsegError

BATCH = 4  # windows
FLOAT = 4
MAPS = 3  # of the first level that exist at once, at least
COPIES = 4  # of the probabilities


def refuse_more_than_memory(
    network_options: dict[str, Any], shape: Sequence[int], classes: int, *, size: Sequence[int] | None, batch: int = BATCH
) -> None:
    """Raise if a prediction needs more than the memory of the machine, whose operating system would end the process.

    Args:
        network_options: those of a UNet have the number of features of its levels.
        shape: (*S) of the probabilities that are kept.
        classes: number of classes.
        size: of the windows, or of the whole image in the network.
        batch: number of windows that are predicted together.
    """
    options = network_options.get("options", network_options)
    features = options.get("features") or [1]
    inside = math.prod(shape if size is None else size) * batch * max(network_options["in_channels"], MAPS * features[0])
    needed, there = FLOAT * (inside + COPIES * classes * math.prod(shape)), machine_memory()
    if needed > there:
        windows = "the whole image" if size is None else f"{batch} window(s) of {'×'.join(map(str, size))}"
        raise HebbsegError(
            f"the prediction of {'×'.join(map(str, shape))} pixels with {classes} classes, in the network {windows}, needs at "
            f"least {needed / 1e9:.0f} GB of memory, and there are {there / 1e9:.0f} GB. Cut the image into parts, or use a "
            "larger machine."
        )
