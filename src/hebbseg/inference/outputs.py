"""The outputs of ``hebbseg predict`` for each image."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.inference.files import Input, Targets
from hebbseg.inference.probability_files import probabilities_suffix

OUTPUTS = ("mask", "overlay", "uncertainty", "prob", "objects")
DEFAULT = "mask,overlay,uncertainty"


def parse_outputs(text: str) -> frozenset[str]:
    """Return the outputs in ``"mask,prob"``; masks are always written.

    >>> sorted(parse_outputs("prob"))
    ['mask', 'prob']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in OUTPUTS:
            raise HebbsegError(f"--outputs {text!r}: {name!r} is unknown. {did_you_mean(name, OUTPUTS)}")
    return frozenset({"mask", *names})


def with_probabilities(inputs: Sequence[Input], targets: Sequence[Targets], out: Path, *, overwrite: bool) -> list[Targets]:
    """Return the targets with files of probabilities, ``out/probabilities/NAME.SUFFIX``."""
    found = []
    for each, target in zip(inputs, targets, strict=True):
        if target.streamed:
            raise HebbsegError(
                f"{each.files[0]}: probabilities of an image of this size are not written, as they take 4 bytes per pixel and "
                "class. Omit prob from --outputs, or predict parts of the image."
            )
        path = out / "probabilities" / f"{each.name}{probabilities_suffix(each.files[0]) if each.files else '.npz'}"
        if path.exists() and not overwrite:
            raise HebbsegError(f"{path} already exists. Choose another -o, or pass --overwrite. Nothing was written.")
        found.append(replace(target, probabilities=path))
    return found
