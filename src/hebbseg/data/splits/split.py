"""Data splits: labelled, unlabelled, validation and test cases; reproducible, saved and hashed."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hebbseg.atomic_files import write_json
from hebbseg.data.cases import Case, Source
from hebbseg.data.progress import counted
from hebbseg.data.splits.draw import Regime, drawn_order, drawn_units, folds_of, hold_out
from hebbseg.errors import HebbsegError, did_you_mean, explaining
from hebbseg.text_files import read_json

PROTOCOLS = ("few-label", "paper", "selection")
SELECTION_FOLDS = 5
BY_IMAGES = ", by images"
RANDOM = "random"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class TrainingCases:
    """Case ids for training and model selection; never test cases.

    ``labelled`` is in drawing order, so smaller label regimes are prefixes of larger ones. ``unlabelled`` (images whose
    masks are missing or hidden) and ``validation`` are sorted.
    """

    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    validation: tuple[str, ...] = ()

    @property
    def images(self) -> tuple[str, ...]:
        """Return all training images, labelled and unlabelled, sorted."""
        return tuple(sorted((*self.labelled, *self.unlabelled)))


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a split was drawn. ``grouped``: no group (patient, subject) is in more than one set.

    ``select`` is the criterion that chose the labelled cases.
    """

    source: str
    protocol: str
    seed: int
    labelled: str
    test: str
    folds: int | None
    fold: int | None
    grouped: bool
    notes: tuple[str, ...] = ()
    select: str = RANDOM


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Labelled cases chosen by a criterion other than chance: the name of the criterion, and training cases in its order."""

    name: str
    order: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Training cases and test cases. Training code receives only ``split.training``."""

    training: TrainingCases
    test: tuple[str, ...]
    provenance: Provenance

    @property
    def hash(self) -> str:
        """Return the sha256 of the split: runs with the same hash use the same cases in the same roles."""
        text = json.dumps(self._content(), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        write_json(path, {"hash": self.hash, **self._content()})

    @classmethod
    def load(cls, path: str | Path) -> "Split":
        """Read a saved split and verify its hash."""
        path = Path(path)
        if not path.exists():
            raise HebbsegError(f"{path}: no such file. Training writes the split to split.json.")
        remedy = "Restore it, or draw a new split."
        content = read_json(path, remedy, finding="not a valid split file")
        with explaining(path, "not a valid split file", remedy):
            split = TypeAdapter(cls).validate_python({name: content[name] for name in ("training", "test", "provenance")})
            stated = content["hash"]
        if split.hash != stated:
            raise HebbsegError(
                f"{path}: the file was changed after it was written (stored hash {str(stated)[:12]}…, actual hash "
                f"{split.hash[:12]}…). Restore it, or draw a new split; results of the two are not comparable."
            )
        return split

    def _content(self) -> dict[str, Any]:
        provenance = asdict(self.provenance)
        if self.provenance.select == RANDOM:
            del provenance["select"]  # the hash is that of splits drawn before there were other criteria
        return {"format": FORMAT, "provenance": provenance, "training": asdict(self.training), "test": self.test}


def make_split(
    source: Source,
    *,
    labelled: str | float = "100%",
    seed: int = 0,
    protocol: str = "few-label",
    folds: int | None = None,
    fold: int | None = None,
    folds_by: str = "grouped",
    validation: float | None = None,
    test: str | float = "auto",
    selection: Selection | None = None,
) -> Split:
    """Draw a split without reading any mask.

    Cases are drawn by group, so that no patient is in two sets. Only cases with masks become labelled, validation or
    test cases; the others are unlabelled training images, or are excluded (with a note) if their group is in another
    set. If all masks belong to one group, cases are drawn individually, ``grouped`` is False and a note is added.

    Args:
        source: the data set.
        labelled: ``"10%"`` or 0.1 (fraction of the training cases with masks, rounded up), or ``"8"`` or 8 (number).
            For one seed, the label regimes are nested: 1 % ⊂ 2 % ⊂ 5 %. 0 returns a split for stage 1 only.
        seed: random seed.
        protocol: ``"few-label"`` (no validation set), ``"paper"`` (cross-validation with a 10 % validation set) or
            ``"selection"`` (for choosing settings: the published test set is excluded, and seed k tests on fold
            k mod ``folds`` of the training set; default 5 folds).
        folds: number of cross-validation folds; the paper protocol defaults to 10, or 5 for volumes.
        fold: test fold, 0 … folds − 1; default 0. Validation and labelled cases of different folds are drawn independently.
        folds_by: ``"grouped"``, or ``"images"`` to draw test and validation cases one by one, whatever their group.
        validation: fraction of the training cases with masks used for validation; default by protocol.
        test: ``"auto"`` (the test fold if ``folds`` is set, else the published test set, else 20 %), ``"official"``, or
            a fraction (0 for none).
        selection: chooses the labelled cases instead of a random draw; its order begins with the labelled cases.
    """
    regime = Regime.parse(labelled)
    if protocol not in PROTOCOLS:
        raise HebbsegError(f"Unknown protocol={protocol!r}. {did_you_mean(protocol, PROTOCOLS)}")
    of_fold = f" of fold {fold}" if fold else ""
    if protocol == "paper" and folds is None and test == "auto":
        folds = 5 if source.spatial_dims == 3 else 10
    if protocol == "selection":
        folds = SELECTION_FOLDS if folds is None else folds
        fold = seed % max(1, folds) if fold is None else fold
    if folds is not None and fold is None:
        fold = 0
    if validation is None:
        validation = 0.1 if protocol == "paper" else 0.0
    _check_options(folds, fold, validation, test)
    notes: list[str] = []
    cases = sorted(source.cases, key=lambda case: case.id)
    if protocol == "selection":
        kept = [case for case in cases if case.subset != "test"]
        if len(kept) < len(cases):
            notes.append(f"Protocol selection: the {len(cases) - len(kept)} cases of the published test side are left out.")
        cases = kept
    if not any(case.has_mask for case in cases):
        if not regime.is_nothing:
            raise HebbsegError(
                f"{source.name}: none of the {len(cases)} cases has a mask, so a segmenter can be neither trained nor "
                "tested. Add masks (`hebbseg next` ranks images to annotate), or pre-train without them: `hebbseg pretrain`."
            )
        test = "official" if any(case.subset == "test" for case in cases) else 0.0
        folds, fold, validation = None, None, 0.0
        notes.append("No case has a mask: nothing is held out but a published test side.")
    groups = {case.id: case.group for case in cases}
    if folds_by == "images":
        cases = [replace(case, group=None) for case in cases]
    training_side, test_side, how = _test_side(source.name, cases, folds, fold, folds_by, test, seed, notes)
    validation_side: list[Case] = []
    if validation:
        units = drawn_units(training_side, seed=seed, purpose=f"validation{of_fold}", notes=notes)
        training_side, validation_side = hold_out(units, validation, purpose="validation")
    order = drawn_order([case.id for case in training_side if case.has_mask], seed=seed, purpose=f"labelled{of_fold}")
    count = regime.count(len(order), source.name)
    chosen = tuple(order[:count] if selection is None else selection.order[:count])
    assert len(chosen) == count and set(chosen) <= set(order)
    training = TrainingCases(
        labelled=chosen,
        unlabelled=tuple(sorted({case.id for case in training_side} - set(chosen))),
        validation=_with_masks(validation_side, "validation", notes),
    )
    return Split(
        training=training,
        test=_with_masks(test_side, "test", notes),
        provenance=Provenance(
            source=source.name,
            protocol=protocol,
            seed=seed,
            labelled=regime.text,
            test=how,
            folds=folds,
            fold=fold,
            grouped=_keeps_groups((training_side, validation_side, test_side), groups, how, notes),
            notes=tuple(notes),
            select=RANDOM if selection is None else selection.name,
        ),
    )


def _check_options(folds: int | None, fold: int | None, validation: float, test: str | float) -> None:
    if isinstance(test, str) and test not in ("auto", "official"):
        raise HebbsegError(f"test={test!r}: allowed are 'auto', 'official', or a fraction from 0 to below 1.")
    for name, share in (("validation", validation), ("test", test)):
        if not isinstance(share, str) and not 0 <= share < 1:
            raise HebbsegError(f"{name}={share}: allowed is a fraction of the cases from 0 to below 1, such as {name}=0.2.")
    if folds is None:
        if fold is not None:
            raise HebbsegError(f"fold={fold} is given without folds. Set the number of folds, such as folds=10.")
    elif test != "auto":
        raise HebbsegError(f"folds={folds} and test={test!r} cannot be combined: the fold is the test set. Remove one of them.")
    elif folds < 2 or fold is None or not 0 <= fold < folds:
        raise HebbsegError(f"folds={folds}, fold={fold}: allowed are folds ≥ 2 and fold from 0 to folds − 1.")


def _test_side(
    name: str, cases: list[Case], folds: int | None, fold: int | None, folds_by: str, test: str | float, seed: int,
    notes: list[str],
) -> tuple[list[Case], list[Case], str]:  # fmt: skip
    """Return the training set, the test set and how the test set was chosen."""
    published = [case for case in cases if case.subset == "test"]
    if test == "official" and not published:
        raise HebbsegError(
            f"{name}: test='official', but the data set has no published test set. Use a fraction, such as test=0.2."
        )
    if folds is not None and fold is not None:
        parts = folds_of(drawn_units(cases, seed=seed, purpose="test", notes=notes), folds)
        held = {case.id for case in parts[fold]}
        by = BY_IMAGES if folds_by == "images" else ""
        return [c for c in cases if c.id not in held], parts[fold], f"fold {fold} of {folds}{by}"
    if test == "official" or (test == "auto" and any(case.has_mask for case in published)):
        return [case for case in cases if case.subset != "test"], published, "official"
    if test == 0:
        return cases, [], "none"
    if test == "auto" and published:
        cases = [case for case in cases if case.subset != "test"]
        notes.append(f"{len(published)} cases of the published test side have no mask: neither trained on nor scored.")
    share = 0.2 if isinstance(test, str) else test
    training, held_out = hold_out(drawn_units(cases, seed=seed, purpose="test", notes=notes), share, purpose="test")
    return training, held_out, f"{share * 100:g}% held out"


def _with_masks(side: list[Case], what: str, notes: list[str]) -> tuple[str, ...]:
    without = sum(not case.has_mask for case in side)
    if without:
        notes.append(f"Cases without mask on the {what} side, neither trained on nor scored: {without}.")
    return tuple(sorted(case.id for case in side if case.has_mask))


def _keeps_groups(sides: tuple[list[Case], ...], groups: dict[str, str | None], how: str, notes: list[str]) -> bool:
    """Return whether every group is in one set only; add notes on shared or unknown groups."""
    if all(groups[case.id] is None for side in sides for case in side):
        notes.append("No groups (patients) are known: every case counted as its own.")
    first, second, third = ({groups[case.id] for case in side} - {None} for side in sides)
    divided = (first & second) | (first & third) | (second & third)
    if divided and BY_IMAGES in how:
        notes.append(
            f"Folds by images: {len(divided)} groups (patients) are in more than one of training, validation and test set, so "
            "scores are optimistic for new patients. folds_by=grouped keeps patients together."
        )
    if divided and how == "official":
        shown = ", ".join(sorted(map(str, divided))[:10]) + (" …" if len(divided) > 10 else "")
        notes.append(
            f"The published split has {counted(len(divided), 'group (patient)', 'groups (patients)')} on both sides "
            f"({shown}); it is kept as published, and the scores are too optimistic for new patients."
        )
    return not divided
