"""Which images weights have learned from, as far as the runs they come from tell."""

import json
from collections.abc import Sequence
from pathlib import Path

from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError

STAGE_1 = "pretrained.safetensors"


def images_seen(weights: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the images that weights (a file, or the folder of a run) saw with their masks, and of those without.

    They are those of the run that made the weights, of the run that it took its own first weights from, and so on, if
    these runs' folders are still where they were. Nothing is known of weights that were moved away from their run.
    """
    with_mask: set[str] = set()
    without: set[str] = set()
    visited: set[Path] = set()  # runs that were made anew can begin with each other's weights
    source: Path | None = weights
    while source is not None:
        folder = (source if source.is_dir() else source.parent).resolve()
        if folder in visited:
            break
        visited.add(folder)
        if (folder / "split.json").is_file():
            training = Split.load(folder / "split.json").training
            if source.name == STAGE_1:
                without.update(training.images)
            else:
                with_mask.update(training.labelled, training.validation)
                without.update(training.unlabelled)
        source = _first_weights(folder)
    return frozenset(with_mask), frozenset(without - with_mask)


def seen_among(weights: Path, cases: Sequence[str]) -> str | None:
    """In words, how many of the cases have the names of images that these weights saw; None if none, or nobody knows."""
    with_mask, without = (names & set(cases) for names in images_seen(weights))
    if not with_mask and not without:
        return None
    return (
        f"{len(with_mask) + len(without)} of the {len(cases)} cases have names of images that {weights} was trained on "
        f"({len(with_mask)} of them with their masks). If they are the same images, the result flatters"
    )


def start_has_seen(weights: Path, test: Sequence[str]) -> str | None:
    """A warning about a run whose test cases are not new to the weights it begins with."""
    try:
        found = seen_among(weights, test)
    except HebbsegError as error:  # what lies beside the weights need not be of their run
        return f"which images {weights} was trained on cannot be told, so test cases may be among them: {error}"
    if found is None:
        return None
    return f"test: {found}. `hebbseg pretrain` with the seed and split of this run leaves its test cases out."


def _first_weights(folder: Path) -> Path | None:
    """The file of weights that the run in ``folder`` began with, if it did and if that is known."""
    try:
        name = json.loads((folder / "run.json").read_text(encoding="utf-8")).get("init_file")
    except (OSError, ValueError, AttributeError):
        return None
    return Path(name) if isinstance(name, str) else None
