"""The splits of runs, read from split.json: sizes, and how folds were drawn."""

from collections.abc import Iterable
from dataclasses import dataclass

from hebbseg.reporting.results import RunResult
from hebbseg.text_files import read_json


@dataclass(frozen=True, kw_only=True)
class SplitUsed:
    """Numbers of cases, and how the split was drawn. ``grouped``: no patient is in more than one set; None if unknown."""

    training: int
    validation: int
    test: int
    how: str
    folds: int | None
    grouped: bool | None

    @property
    def cases(self) -> int:
        return self.training + self.validation + self.test


def split_used(run: RunResult) -> SplitUsed | None:
    """Return the split of a run, or None if split.json is missing or not readable."""
    try:
        content = read_json(run.folder / "split.json", "")
        training, drawn = content["training"], content["provenance"]
        # If no patient is known, the split counts as grouped, as no known patient is divided.
        unknown = any(str(note).startswith("No groups") for note in drawn["notes"])
        return SplitUsed(
            training=len(training["labelled"]) + len(training["unlabelled"]),
            validation=len(training["validation"]),
            test=len(content["test"]),
            how=str(drawn["test"]),
            folds=drawn["folds"],
            grouped=None if unknown else bool(drawn["grouped"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def splits_used(runs: Iterable[RunResult]) -> list[SplitUsed]:
    """Return the readable splits, one per fold and seed."""
    first: dict[tuple[int | None, int], RunResult] = {}
    for run in runs:
        first.setdefault(run.pair, run)
    found = (split_used(run) for run in first.values())
    return [split for split in found if split is not None]


def folds_text(runs: Iterable[RunResult]) -> str:
    """Return a sentence on the test sets: cross-validation or one test set, and whether patients are kept together."""
    runs = list(runs)
    texts = list(dict.fromkeys(_drawn(split, runs[0]) for split in splits_used(runs)))
    if not texts:
        folds = runs[0].settings.get("folds")
        kind = "One test set" if folds is None else f"{folds}-fold cross-validation"
        texts = [f"{kind}; whether patients are kept together is not recorded"]
    return "; ".join(texts) + "."


def _drawn(split: SplitUsed, run: RunResult) -> str:
    if split.folds is None:
        patients = {
            True: "patients kept together (no patient in more than one set)",
            False: "patients may be in the training and the test set",
            None: "patients not known",
        }
        kind = "Published test set" if split.how == "official" else f"One test set ({split.how})"
        return f"{kind}, {patients[split.grouped]}"
    by_images = run.settings.get("folds_by") == "images" or split.grouped is False
    if split.grouped is None:
        folds = "folds by images (patients not known)"
    elif by_images:
        folds = "folds by images (patients may be in the training and the test set)"
    else:
        folds = "patients kept together (no patient in more than one set)"
    return f"{split.folds}-fold cross-validation, {folds}"
