"""What is known about one run: the files of its folder, and the list of its data if they are still there."""

import csv
import io
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError, explaining, printable
from hebbseg.planning.plan import Plan
from hebbseg.runs.dataset import list_cases
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.metrics_file import CaseMetrics, dice_by_case, read_metrics
from hebbseg.text_files import read_json, read_text

REMEDY = "Restore it from a backup."


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The content of a run folder.

    ``run`` is run.json. Empty without the file: ``summary``, ``metrics`` (metrics.csv), ``history`` (history.csv, numbers
    where possible), ``layers`` (pretrain.json: diagnostics of stage 1 by layer). ``source`` is None if the data cannot be
    listed, for the reason in ``no_source``.
    """

    folder: Path
    run: dict[str, Any]
    settings: Settings
    plan: Plan | None
    split: Split
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: tuple[CaseMetrics, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    layers: dict[str, Any] = field(default_factory=dict)
    source: Source | None = None
    no_source: str = ""

    @property
    def name(self) -> str:
        return printable(self.folder.resolve().name)

    @property
    def finished(self) -> bool:
        return self.run["status"] == "done"

    @property
    def class_names(self) -> dict[int, str]:
        """Name of each foreground class by index."""
        names = self.summary.get("class_names", {})
        return {int(key): printable(name) or f"class {key}" for key, name in names.items()}

    @cached_property
    def dice_by_case(self) -> dict[str, float]:
        return dice_by_case(self.metrics)

    def rows_of(self, stage: str) -> list[dict[str, Any]]:
        """Return the history of a stage, ``pretrain`` or ``fit``."""
        return [row for row in self.history if row.get("stage") == stage]

    @property
    def validations(self) -> list[tuple[int, float]]:
        """Return (update, Dice) of each validation."""
        return [(int(row["step"]), row["dice"]) for row in self.rows_of("fit") if isinstance(row.get("dice"), float)]


def is_training_run(folder: Path) -> bool:
    """Whether a folder contains a run of `hebbseg train`, finished or not, and not a linear probe or stage 1 alone."""
    if not (folder / "run.json").is_file():
        return False
    run = read_json(folder / "run.json", REMEDY)
    names = ("model.safetensors", "metrics.csv")
    grid = run.get("grid")
    probe = isinstance(grid, dict) and grid.get("kind") == "probe"
    return not probe and (run.get("status") != "done" or any((folder / name).is_file() for name in names))


def read_run(folder: Path) -> RunFacts:
    """Read a run folder; raise HebbsegError if it has no run or a file of it is damaged."""
    run = RunFolder(folder)
    description, settings = run.description(), run.begun_with()
    assert settings is not None
    source, reason = None, ""
    try:
        source = list_cases(settings.data)
    except (HebbsegError, OSError) as error:
        reason = str(error)
    summary, metrics, history = (folder / name for name in ("summary.json", "metrics.csv", "history.csv"))
    layers = folder / "pretrain.json"
    return RunFacts(
        folder=folder,
        run=description,
        settings=settings,
        plan=run.plan(),
        split=Split.load(folder / "split.json"),
        summary=read_json(summary, REMEDY) if summary.is_file() else {},
        metrics=tuple(read_metrics(folder)) if metrics.is_file() else (),
        history=_history(history) if history.is_file() else (),
        layers=read_json(layers, REMEDY) if layers.is_file() else {},
        source=source,
        no_source=reason,
    )


def _history(path: Path) -> tuple[dict[str, Any], ...]:
    text = read_text(path, REMEDY)
    with explaining(path, "not a table of training steps", REMEDY):
        return tuple({name: _number(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(text)))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
