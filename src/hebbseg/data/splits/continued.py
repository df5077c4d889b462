"""The split of a run that continues another one: its test and validation cases stay, new cases are for training."""

from dataclasses import replace

from hebbseg.data.cases import Case, Source
from hebbseg.data.splits.draw import Regime, drawn_order
from hebbseg.data.splits.split import Split, TrainingCases


def continued_split(source: Source, earlier: Split, *, labelled: str | float, seed: int, run: str) -> Split:
    """Return the split of ``earlier`` for data to which cases or masks were added. Cases are recognized by their names.

    Test and validation cases of ``earlier`` keep their role and are never trained on. All other cases are training cases,
    labelled if they have a mask and ``labelled`` (as in `make_split`) includes them; labelled cases of ``earlier`` come
    first. New cases are left out, with a note, if their group (patient) has a test or validation case or if they are on the
    test side of a published split.

    Args:
        run: name of the earlier run, for the notes.
    """
    regime = Regime.parse(labelled)
    cases = {case.id: case for case in sorted(source.cases, key=lambda case: case.id)}
    test, validation = ([id for id in ids if _masked(cases, id)] for ids in (earlier.test, earlier.training.validation))
    held = {*earlier.test, *earlier.training.validation}
    held_groups = {cases[id].group for id in held if id in cases} - {None}
    former = set(earlier.training.images)
    new = [case for case in cases.values() if case.id not in held | former]
    left_out = {case.id for case in new if case.group in held_groups or case.subset == "test"}
    training = [case for case in cases.values() if case.id not in held | left_out]
    first = [id for id in earlier.training.labelled if _masked(cases, id)]
    others = drawn_order(
        [case.id for case in training if case.has_mask and case.id not in set(first)], seed=seed, purpose="labelled"
    )
    order = [*first, *others]
    chosen = tuple(order[: regime.count(len(order), source.name)])
    notes = [_kept(run, test, validation, [case for case in new if case.id not in left_out], chosen)]
    if left_out:
        notes.append(
            f"{len(left_out)} new cases belong to patients of test or validation cases, or to a published test side: neither "
            "trained on nor scored."
        )
    for role, ids, kept in (("test", earlier.test, test), ("validation", earlier.training.validation, validation)):
        if gone := sorted(set(ids) - set(kept)):
            notes.append(
                f"{len(gone)} of {len(ids)} {role} cases of {run} are not in {source.name}, or have no mask there: {gone[0]}"
                f"{', …' if len(gone) > 1 else ''}. They are not evaluated."
            )
    if not former & cases.keys():
        notes.append(f"No training case of {run} is in {source.name}: its model is trained on the new cases only.")
    groups = {case.group for case in training} - {None}
    return Split(
        training=TrainingCases(
            labelled=chosen,
            unlabelled=tuple(sorted({case.id for case in training} - set(chosen))),
            validation=tuple(validation),
        ),
        test=tuple(test),
        provenance=replace(
            earlier.provenance,
            source=source.name,
            seed=seed,
            labelled=regime.text,
            grouped=not groups & held_groups,
            notes=tuple(notes),
        ),
    )


def _masked(cases: dict[str, Case], id: str) -> bool:
    return id in cases and cases[id].has_mask


def _kept(run: str, test: list[str], validation: list[str], new: list[Case], chosen: tuple[str, ...]) -> str:
    labelled = sum(case.id in set(chosen) for case in new)
    checked = f" and {len(validation)} validation cases" if validation else " cases"
    return (
        f"Split of {run} kept: {len(test)} test{checked} stay. {len(new)} cases are new: {labelled} labelled and "
        f"{len(new) - labelled} unlabelled training images."
    )
