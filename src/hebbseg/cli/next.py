"""hebbseg next: which images to annotate next."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hebbseg.cli.options import DATA_HELP, TrustOption, show_facts
from hebbseg.cli.settings_options import takes_settings
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hebbseg.data.cases import Source
    from hebbseg.inference.predictor import Predictor
    from hebbseg.runs.next_images import Candidates, Ranked

DataOrRun = Annotated[
    str,
    typer.Argument(metavar="DATA|RUN", help=f"{DATA_HELP} Or a run folder of hebbseg train.", show_default=False),
]


@takes_settings("group", "images", "masks", "accelerator")
def next_(
    data: DataOrRun,
    count: Annotated[
        int | None,
        typer.Option("-n", "--number", metavar="N", help="Number of images to rank. [dim]\\[10; all if fewer][/]"),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="CSV", help="Write the ranking to this file.")] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="PNG", help="Draw a contact sheet of the ranked images.")
    ] = None,
    copy_to: Annotated[
        Path | None, typer.Option("--copy-to", metavar="FOLDER", help="Copy the ranked images; never overwrites a file.")
    ] = None,
    criterion: Annotated[
        str | None,
        typer.Option(
            "--criterion",
            metavar="NAME",
            help="typical, coverage, facility, random, or uncertainty (needs RUN). [dim]\\[typical; with RUN: uncertainty][/]",
        ),
    ] = None,
    descriptors: Annotated[
        str | None,
        typer.Option(
            "--descriptors",
            metavar="NAME",
            help="What images are compared by: hebbian (features of stage 1), random (features of a random network), color, or "
            "model (needs RUN). [dim]\\[hebbian; with RUN: model][/]",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Random seed of the descriptors and of --criterion random.")
    ] = 0,
    trust: TrustOption = False,
    *,
    accelerator: str | None = None,
    **reading: Any,
) -> None:
    """Rank the images without masks of DATA: which of them to annotate next, and why.

    \b
    Examples:
      hebbseg next my_data/ -n 10 --copy-to to_annotate/
      hebbseg next my_data/ -n 10 -o next.csv --sheet next.png --group '^(p[0-9]+)_'
      hebbseg next run1 -n 10 -o next.csv

    With DATA, images are compared by descriptors that need no mask. With RUN, images are ranked by the uncertainty of its
    model, times their distance to images that are labelled or ranked before. The choice is spread over patients. Masks and
    test images are not read. See docs/how-to/next.md.
    """
    run = Path(data) if (Path(data) / "run.json").is_file() else None
    criterion = _criterion(criterion, run)
    descriptors = _descriptors(descriptors, run)
    from hebbseg.atomic_files import refuse_unwritable
    from hebbseg.cli.models import load_models
    from hebbseg.cli.progress import make_reporter
    from hebbseg.runs.folder import RunFolder
    from hebbseg.runs.next_images import check_copies, check_count, copy_images, next_images

    source, candidates = _candidates(data, run, reading)
    check_count(count, candidates, source.name)
    for path in (out, sheet):
        if path is not None:
            refuse_unwritable(path.parent)
    if copy_to is not None:
        check_copies(None, candidates.unlabelled, copy_to)
    model: Predictor | None = None
    if run is not None and (criterion == "uncertainty" or descriptors == "model"):
        (model,) = load_models([run], accelerator=accelerator, trust=trust)
    with make_reporter() as reporter:
        for note in candidates.notes:
            reporter.say(f"note: {note}")
        ranked = next_images(
            source,
            candidates,
            count,
            criterion=criterion,
            descriptors=descriptors,
            seed=seed,
            reporter=reporter,
            model=model,
        )
    if copy_to is not None:
        check_copies(ranked, [each.case for each in ranked], copy_to)
    _show(ranked)
    facts = [("ranked", f"{len(ranked)} of {len(candidates.unlabelled)} unlabelled images by {criterion} ({descriptors})")]
    if out is not None:
        _write(ranked, out)
        facts.append(("table", str(out)))
    if sheet is not None:
        facts.append(("sheet", str(_draw(source, ranked, sheet))))
    if copy_to is not None:
        facts.append(("copied", f"{counted(copy_images(ranked, copy_to), 'file')} to {copy_to}"))
    following = ["hebbseg", "train", data, "-o", "RUN"]
    if run is not None:
        settings = RunFolder(run).begun_with()
        assert settings is not None
        following = ["hebbseg", "train", settings.data.source, "-o", "NEW_RUN", "--from", data]
    facts.append(("next", f"annotate them and add the masks to the data, then: {shlex.join(following)}"))
    show_facts(facts)


def _criterion(given: str | None, run: Path | None) -> str:
    from hebbseg.planning.criteria import CRITERIA, DEFAULT_CRITERION

    if given is None:
        return DEFAULT_CRITERION if run is None else "uncertainty"
    if given not in CRITERIA:
        raise HebbsegError(f"--criterion {given!r} is unknown. {did_you_mean(given, CRITERIA)}")
    if given == "uncertainty" and run is None:
        raise HebbsegError("--criterion uncertainty needs the predictions of a model. Give a run folder instead of DATA.")
    return given


def _descriptors(given: str | None, run: Path | None) -> str:
    allowed = ("hebbian", "random", "color", "model")
    if given is None:
        return "hebbian" if run is None else "model"
    if given not in allowed:
        raise HebbsegError(f"--descriptors {given!r} is unknown. {did_you_mean(given, allowed)}")
    if given == "model" and run is None:
        raise HebbsegError("--descriptors model needs the network of a run. Give a run folder instead of DATA.")
    return given


def _candidates(data: str, run: Path | None, reading: dict[str, Any]) -> "tuple[Source, Candidates]":
    """Return the data and the images to choose from; with a run, its data as they are now, and its split."""
    from hebbseg.data.splits.split import Split
    from hebbseg.runs.dataset import list_cases
    from hebbseg.runs.folder import RunFolder
    from hebbseg.runs.next_images import find_candidates, hides_masks

    given = {name: value for name, value in reading.items() if value is not None}
    if run is None:
        from hebbseg.config import make_settings

        source = list_cases(make_settings(data, given).data)
        return source, find_candidates(source)
    settings = RunFolder(run).begun_with()
    assert settings is not None
    source = list_cases(settings.data.model_copy(update=given))
    return source, find_candidates(source, Split.load(run / "split.json"), hidden=hides_masks(settings.data))


def _show(ranked: "Sequence[Ranked]") -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    groups = any(each.case.group for each in ranked)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("rank", justify="right")
    table.add_column("case", overflow="fold")
    if groups:
        table.add_column("group", overflow="fold")
    table.add_column("score", justify="right")
    table.add_column("reason", ratio=1)
    for each in ranked:
        group = [escape(each.case.group or "")] if groups else []
        table.add_row(str(each.rank), escape(each.case.id), *group, f"{each.score:.3g}", escape(each.reason))
    Console().print(table)


def _write(ranked: "Sequence[Ranked]", path: Path) -> None:
    from hebbseg.atomic_files import write_text
    from hebbseg.text_files import csv_text

    rows = [each.row() for each in ranked]
    write_text(path, csv_text([list(rows[0]), *(list(row.values()) for row in rows)]))


def _draw(source: "Source", ranked: "Sequence[Ranked]", path: Path) -> Path:
    from hebbseg.reporting.plots.contact_sheet import contact_sheet

    captions = {each.case.id: f"{each.rank} · {each.case.id}" for each in ranked}
    # Without masks: those that exist must not be seen before they are drawn.
    cases = [replace(each.case, mask=None) for each in ranked]
    return contact_sheet(source, cases, (), path, columns=5, most=len(cases), captions=captions)
