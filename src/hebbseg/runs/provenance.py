"""Which images a set of weights was trained on, as recorded by the runs it comes from."""

from collections.abc import Sequence
from pathlib import Path

from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.text_files import read_json

STAGE_1 = "pretrained.safetensors"


def images_seen(weights: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the training images of ``weights`` (a file or run folder), with masks and without.

    Covers the run that made the weights, the run it was initialized from, and so on, as long as these folders are still
    in place. Weights that were moved out of their run folder have no record.
    """
    with_mask: set[str] = set()
    without: set[str] = set()
    visited: set[Path] = set()  # folders that were reused can form a cycle
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
        source = _initial_weights(folder)
    return frozenset(with_mask), frozenset(without - with_mask)


def describe_overlap(weights: Path, cases: Sequence[str]) -> str | None:
    """Say how many of the cases share a name with training images of ``weights``; None if none do or it is unknown."""
    with_mask, without = (names & set(cases) for names in images_seen(weights))
    if not with_mask and not without:
        return None
    return (
        f"{len(with_mask) + len(without)} of the {len(cases)} cases have names of images that {weights} was trained on "
        f"({len(with_mask)} of them with their masks). If they are the same images, the result has an optimistic bias"
    )


def overlap_warning(weights: Path, test: Sequence[str]) -> str | None:
    """Return a warning if a run's initial weights were trained on its test cases."""
    try:
        found = describe_overlap(weights, test)
    except HebbsegError as error:  # a split.json beside the weights may belong to another run
        return f"the training images of {weights} are unknown and may include test cases: {error}"
    if found is None:
        return None
    return f"test: {found}. `hebbseg pretrain` with the seed and split of this run excludes its test cases."


def _initial_weights(folder: Path) -> Path | None:
    """Return the file that the run in ``folder`` was initialized from, if it is recorded."""
    try:
        name = read_json(folder / "run.json", "").get("init_file")
    except HebbsegError:
        return None
    return Path(name) if isinstance(name, str) else None
