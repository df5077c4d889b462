"""The data of a run: cases are listed, decoded once and split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hebbseg.config import DataSettings, Settings
from hebbseg.data.cases import Source
from hebbseg.data.inspect import examine
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.progress import Reporter, counted
from hebbseg.data.sources import open_source
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.continued import continued_split
from hebbseg.data.splits.split import RANDOM, Selection, Split, make_split
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.planning.plan import Plan

PROBLEMS_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The readable cases, and a store of their preprocessed images and masks; ``plan``: what their size follows from."""

    source: Source
    store: CaseStore
    plan: Plan | None = None


def list_cases(settings: DataSettings) -> Source:
    """List the cases from file names and headers. Decodes no image and no mask."""
    return open_source(
        settings.source,
        label_map=settings.label_map,
        group=settings.group,
        mask_threshold=settings.mask_threshold,
        instances=settings.instances,
        ignore=settings.ignore,
        images=settings.images,
        masks=settings.masks,
        level=settings.level or None,
    )


def decode_cases(
    listed: Source, settings: DataSettings, reporter: Reporter, *, masks: bool = True, originals: Sequence[str] = ()
) -> Dataset:
    """Decode every file into the store, once. Unreadable cases are reported and left out.

    Args:
        masks: False opens no mask.
        originals: ids of the cases that may be tested in their original pixels: the store keeps their masks before resizing.
    """
    preprocessing = preprocessing_of(listed, settings)
    store = CaseStore(
        source=listed,
        preprocessing=preprocessing,
        images=[case.id for case in listed.cases],
        masks=[case.id for case in listed.cases if case.has_mask],
        borders=settings.borders,
        originals=originals,
        in_parts=not preprocessing.resizes and settings.patch != "none",
    )
    if not isinstance(listed, FileSource):  # generated images need no check
        return Dataset(source=listed, store=store)
    total = len(listed.cases)
    count = iter(range(1, total + 1))
    if store.borders and store.large is not None:
        raise HebbsegError("--borders: the objects of images of more than 4096x4096 pixels are not found. Remove --borders.")
    found = examine(
        listed,
        masks=masks,
        on_case=lambda: reporter.step("reading", next(count), total, {}),
        keep=store.keep,
        large=store.large,
    )
    if found.fatal:
        raise HebbsegError("\n".join(str(problem) for problem in found.fatal[:5]))
    if found.problems:
        # One problem per remedy, as the same often concerns many files.
        examples = list({problem.remedy: problem for problem in reversed(found.problems)}.values())[::-1]
        reporter.say(
            f"Found {counted(len(found.problems), 'problem')} in the data; left out: {total - len(found.usable)} of {total} "
            "cases. `hebbseg check` lists all:"
        )
        for problem in examples[:PROBLEMS_SHOWN]:
            reporter.say(f"  {problem}")
    return Dataset(source=listed.with_cases(found.usable), store=store)


def preprocessing_of(source: Source, settings: DataSettings) -> Preprocessing:
    size = None if settings.size == "native" else for_all_axes(settings.size, source.spatial_dims)
    spacing = settings.spacing if isinstance(settings.spacing, tuple) else None
    if spacing is not None and len(spacing) == 1:
        spacing *= source.spatial_dims
    return Preprocessing.for_source(source, size=size, normalize=settings.normalize, spacing=spacing)


def open_dataset(settings: DataSettings, reporter: Reporter, *, originals: bool = False) -> Dataset:
    """List and decode the cases, to share them between runs.

    Args:
        originals: keep the masks before resizing, as any case may be tested.
    """
    listed = list_cases(settings)
    kept = [case.id for case in listed.cases if case.has_mask] if originals else ()
    return decode_cases(listed, settings, reporter, originals=kept)


def draw_split(settings: Settings, source: Source, selection: Selection | None = None) -> Split:
    """Draw the split of the settings, with the labelled cases of ``selection``; None: drawn at random."""
    data = settings.data
    if settings.pretrain.from_run is not None:
        run = Path(settings.pretrain.from_run)
        earlier = Split.load(run / "split.json")
        return continued_split(source, earlier, labelled=data.labelled, seed=settings.split_seed, run=run.name)
    return make_split(
        source,
        labelled=data.labelled,
        seed=settings.split_seed,
        protocol=data.protocol,
        folds=data.folds,
        fold=data.fold,
        folds_by=data.folds_by,
        test=data.test if data.test in ("auto", "official") else _share(data.test),
        selection=selection,
    )


def describe_split(split: Split, source: Source, reporter: Reporter) -> None:
    training = split.training
    unlabelled = counted(len(training.unlabelled), "unlabelled training image")
    reporter.say(
        f"{source.name}: {len(training.labelled)} labelled and {unlabelled}, {len(training.validation)} for validation, "
        f"{len(split.test)} for testing"
    )
    if split.provenance.select != RANDOM:
        reporter.say(f"labelled images chosen by {split.provenance.select}, not at random")
    for note in split.provenance.notes:
        reporter.say(f"note: {note}")


def for_all_axes(size: tuple[int, ...] | str, dims: int) -> tuple[int, ...] | str:
    """Return one number per axis where a single number stands for all axes."""
    return size * dims if isinstance(size, tuple) and len(size) == 1 else size


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise HebbsegError(f"test={text!r}: allowed are auto, official, or a fraction such as 0.2 (0 for none).") from None
