"""The table of data sets: numbers of images and patients, sizes, classes and splits."""

from collections.abc import Callable, Iterable, Sequence

from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.results import RunResult
from hebbseg.reporting.splits_used import SplitUsed, folds_text, splits_used
from hebbseg.reporting.tables.table import EMPTY, Cell, Row, Table, number_cell, text_cell

# Patients and sizes of images of a data set, (None, "") if not known; see `hebbseg.reporting.data_facts`.
Facts = Callable[[RunResult], tuple[int | None, str]]


def datasets_table(group: Sequence[Comparison], facts: Facts) -> Table:
    """Return one row per data set and way of splitting it."""
    runs_of: dict[tuple[str, str], list[RunResult]] = {}
    for comparison in group:
        key = comparison.dataset, str(comparison.runs[0].settings.get("data", ""))
        runs_of.setdefault(key, []).extend(comparison.runs)
    rows = [row for (dataset, _), runs in runs_of.items() for row in _rows(dataset, runs, facts)]
    return Table(
        name="datasets",
        title="Data sets",
        note="Patients and image sizes are read from the data, if they are present; sizes from up to 5 images, evenly spaced. "
        "Size used: of images in training; auto: planned from the data of each run (run.json). Training (labelled and "
        "unlabelled), validation and test images are counts per run, as a range over folds and seeds. Classes: foreground "
        "only.",
        columns=("data set", "images", "patients", "image size (px)", "size used", "classes", "train / val. / test",
                 "split"),
        rows=tuple(rows),
    )  # fmt: skip


def _rows(dataset: str, runs: Sequence[RunResult], facts: Facts) -> list[Row]:
    by_split: dict[str, list[RunResult]] = {}
    for key in dict.fromkeys(
        (run.settings.get("folds"), run.settings.get("folds_by"), run.settings.get("test")) for run in runs
    ):
        chosen = [r for r in runs if (r.settings.get("folds"), r.settings.get("folds_by"), r.settings.get("test")) == key]
        by_split.setdefault(folds_text(chosen), []).extend(chosen)
    patients, size = facts(runs[0])
    rows = []
    for text, chosen in by_split.items():
        splits = splits_used(chosen)
        rows.append(
            Row(
                cells=(
                    text_cell(dataset),
                    _counts(split.cases for split in splits),
                    number_cell(None if patients is None else float(patients), 0),
                    text_cell(size) if size else EMPTY,
                    text_cell(_size_used(chosen)),
                    _counts(run.classes for run in chosen),
                    _sides(splits),
                    text_cell(text.rstrip(".")),
                )
            )
        )
    return rows


def _counts(values: Iterable[int]) -> Cell:
    found = sorted(set(values))
    if not found:
        return EMPTY
    text = f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"
    return Cell(text=text, sort=float(found[0]), numbers={"": found[0], "to": found[-1]})


def _sides(splits: Sequence[SplitUsed]) -> Cell:
    sides = {name: _counts(getattr(split, name) for split in splits) for name in ("training", "validation", "test")}
    numbers = {f"{name} {key}".strip(): value for name, cell in sides.items() for key, value in cell.numbers.items()}
    return Cell(text=" / ".join(cell.text for cell in sides.values()), numbers=numbers) if splits else EMPTY


def _size_used(runs: Iterable[RunResult]) -> str:
    sizes = dict.fromkeys(str(_shown(run.settings.get("size", "auto"))) for run in runs)
    return " or ".join(sizes)


def _shown(size: str | Sequence[int]) -> str:
    return size if isinstance(size, str) else " × ".join(map(str, size))
