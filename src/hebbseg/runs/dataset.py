"""The cases of a run and who of them is trained on, from its settings."""

from collections.abc import Callable

from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.inspect import examine
from hebbseg.data.sources import open_source
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import Split, make_split
from hebbseg.errors import HebbsegError
from hebbseg.cli.progress import Reporter


def open_cases(
    settings: Settings, reporter: Reporter, *, masks: bool = True, check: Callable[[Source], None] | None = None
) -> Source:
    """The source, without what cannot be read.

    Args:
        masks: off opens no mask.
        check: is shown the source as listed, before every file is read: what it refuses costs the user no waiting.
    """
    source: Source = open_source(
        settings.data,
        label_map=settings.label_map,
        group=settings.group,
        mask_threshold=settings.mask_threshold,
        instances=settings.instances,
    )
    if check is not None:
        _checked(source, check)
    return _usable(source, reporter, masks=masks) if isinstance(source, FileSource) else source


def draw_split(settings: Settings, source: Source, reporter: Reporter) -> Split:
    """Who is trained on and who is tested, by the settings."""
    test: str | float = settings.test if settings.test in ("auto", "official") else _number(settings.test)
    split = make_split(
        source,
        labelled=settings.labelled,
        seed=settings.drawn_by,
        protocol=settings.protocol,
        folds=settings.folds,
        fold=settings.fold,
        test=test,
    )
    training = split.training
    reporter.say(
        f"{source.name}: {len(training.labelled)} labelled and {len(training.unlabelled)} unlabelled training images, "
        f"{len(training.validation)} for validation, {len(split.test)} for testing"
    )
    for note in split.provenance.notes:
        reporter.say(f"note: {note}")
    return split


def _checked(source: Source, check: Callable[[Source], None]) -> None:
    try:
        check(source)
    except HebbsegError as error:
        if not source.problems:
            raise
        # Masks that nobody asked for are often the reason why there are too few.
        raise HebbsegError(
            f"{error}\n{len(source.problems)} problems with the files were found before; `hebbseg check` lists all. "
            f"First: {source.problems[0]}"
        ) from error


def _usable(source: FileSource, reporter: Reporter, *, masks: bool) -> FileSource:
    """The cases that can be read, every one of them looked at; says how many are left out, and why."""
    total = len(source.cases)
    count = iter(range(1, total + 1))
    found = examine(source, masks=masks, on_case=lambda: reporter.step("reading", next(count), total, {}))
    if found.fatal:
        raise HebbsegError("\n".join(str(problem) for problem in found.fatal[:5]))
    left_out = total - len(found.usable)
    if found.problems:
        reporter.say(
            f"{len(found.problems)} problems with the data, {left_out} of {total} cases left out; `hebbseg check` lists all. "
            f"First: {found.problems[0]}"
        )
    return source.with_cases(found.usable)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise HebbsegError(f"test={text!r}: allowed are auto, official, or a share such as 0.2 (0 for none).") from None
