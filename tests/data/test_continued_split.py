"""The split of a run that continues another one: no case that was tested or validated on is ever trained on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hebbseg.data.cases import Case
from hebbseg.data.splits.continued import continued_split
from hebbseg.data.splits.split import Split, make_split
from hebbseg.errors import HebbsegError
from tests.data.arrays_source import ArraysSource, listed

IDS = [f"c{n:03d}" for n in range(40)]


def continued(cases: list[Case], earlier: Split, labelled: str = "100%") -> Split:
    return continued_split(ArraysSource(cases), earlier, labelled=labelled, seed=0, run="run1")


@given(
    masked=st.sets(st.sampled_from(IDS)),
    present=st.sets(st.sampled_from(IDS)),
    grouped=st.booleans(),
    options=st.sampled_from([{}, {"protocol": "paper"}, {"folds": 4, "fold": 1}, {"test": 0.4, "labelled": "3"}]),
    share=st.sampled_from(["100%", "0", "1"]),
)
def test_no_test_or_validation_case_is_ever_trained_on(masked, present, grouped, options, share):
    groups = [f"p{n // 3}" for n in range(30)] if grouped else None
    earlier = make_split(listed(30, groups=groups), **{"labelled": "50%"} | options)
    cases = [
        Case(id=id, mask=() if id in masked else None, group=f"p{n // 3}" if grouped else None)
        for n, id in enumerate(IDS)
        if id in present
    ]
    if share == "1" and not any(case.has_mask for case in cases):
        return
    try:
        split = continued(cases, earlier, share)
    except HebbsegError as error:  # none is left to train on
        assert share != "0" and "training set has 0 cases" in str(error)
        return
    trained, held = set(split.training.images), {*earlier.test, *earlier.training.validation}
    assert not trained & held
    assert set(split.test) == set(earlier.test) & present & masked
    assert set(split.training.validation) == set(earlier.training.validation) & present & masked
    assert set(earlier.training.images) & present <= trained
    assert set(split.training.labelled) <= masked
    if grouped:
        group = {case.id: case.group for case in cases}
        assert not {group[id] for id in trained} & {group[id] for id in held & present}
    else:
        assert trained == present - held


def test_new_masks_and_new_cases_join_the_training_set():
    earlier = make_split(listed(12, unmasked=range(6, 12)), labelled="2")
    cases = [Case(id=id, mask=() if int(id[1:]) != 11 else None) for id in IDS[:16]]
    split = continued(cases, earlier)
    assert split.training.labelled[:2] == earlier.training.labelled, "those labelled before come first"
    assert set(split.training.labelled) == set(IDS[:16]) - {"c011"} - set(earlier.test)
    assert split.training.unlabelled == ("c011",)
    assert split.test == earlier.test != ()
    (note, *_) = split.provenance.notes
    assert "Split of run1 kept" in note and "4 cases are new: 4 labelled and 0 unlabelled" in note
    fewer = continued(cases, earlier, "3").training
    assert fewer.labelled == split.training.labelled[:3] and len(fewer.images) == len(split.training.images)


def test_new_cases_of_tested_patients_and_of_a_published_test_side_are_left_out():
    earlier = make_split(listed(8, groups=[f"p{n // 2}" for n in range(8)]))
    patient = f"p{int(earlier.test[0][1:]) // 2}"
    cases = [Case(id=IDS[n], mask=(), group=f"p{n // 2}") for n in range(8)]
    new = [Case(id="x", mask=(), group=patient), Case(id="y", mask=(), subset="test"), Case(id="z", mask=(), group="q")]
    split = continued(cases + new, earlier)
    assert {"x", "y"}.isdisjoint(split.training.images) and "z" in split.training.labelled
    assert any("2 new cases belong to patients" in note for note in split.provenance.notes)
    assert split.provenance.grouped


def test_missing_test_cases_and_other_data_are_said():
    earlier = make_split(listed(10))
    notes = continued([Case(id=id, mask=()) for id in IDS[20:24]], earlier).provenance.notes
    assert any(f"2 of 2 test cases of run1 are not in arrays, or have no mask there: {min(earlier.test)}" in n for n in notes)
    assert any("No training case of run1" in note for note in notes)
    with pytest.raises(HebbsegError, match="labelled=9"):
        continued([Case(id=id, mask=()) for id in IDS[20:24]], earlier, "9")
