import dataclasses
import json
import math
import time

import pytest

from hebbseg.data.sources import open_source
from hebbseg.data.sources.phantom import phantom
from hebbseg.data.splits.draw import drawn_order
from hebbseg.data.splits.split import Selection, Split, TrainingCases, make_split
from hebbseg.errors import HebbsegError
from tests.data.arrays_source import listed
from tests.realdata import real


def roles(split):
    t = split.training
    return [set(t.labelled), set(t.unlabelled), set(t.validation), set(split.test)]


def disjoint(split):
    sets = roles(split)
    return sum(map(len, sets)) == len(set().union(*sets))


@pytest.mark.parametrize("options", [{}, {"folds": 5, "fold": 2}, {"protocol": "paper", "fold": 3}, {"test": 0.3}])
def test_roles_are_disjoint_and_cover_all_masked_cases(options):
    source = listed(57, unmasked={3, 8, 20})
    split = make_split(source, labelled="10%", seed=4, **options)
    assert disjoint(split)
    assert set().union(*roles(split)) == {c.id for c in source.cases}
    assert {"c003", "c008", "c020"} <= set(split.training.unlabelled)


def test_regimes_are_nested_and_rounded_up():
    source = listed(85)
    previous = set()
    for percent in (1, 2, 5, 7, 10, 20, 100):
        split = make_split(source, labelled=f"{percent}%", seed=1, test=0)
        labelled = split.training.labelled
        assert len(labelled) == math.ceil(percent * 85 / 100)
        assert previous <= set(labelled)
        previous = set(labelled)


def test_percent_is_exact_arithmetic():
    # 0.07 * 100 is 7.000000000000001 in floating point.
    for labelled in ("7%", 0.07, "0.07"):
        assert len(make_split(listed(100), labelled=labelled, test=0).training.labelled) == 7
    assert len(make_split(listed(100), labelled="8", test=0).training.labelled) == 8
    assert len(make_split(listed(100), labelled=8, test=0).training.labelled) == 8
    assert len(make_split(listed(100), labelled=1.0, test=0).training.labelled) == 100


def test_draw_is_the_documented_one_and_ignores_listing_order():
    source = listed(40)
    source_reversed = listed(40)
    source_reversed.cases = source_reversed.cases[::-1]
    split = make_split(source, labelled="8", seed=3)
    assert split.hash == make_split(source_reversed, labelled="8", seed=3).hash
    assert split.hash != make_split(source, labelled="8", seed=4).hash
    # Frozen: the same on every machine, for ever.
    assert drawn_order("abcdef", seed=0, purpose="labelled") == list("cefdba")


def test_splits_drawn_at_random_keep_the_hashes_of_version_0_2():
    assert make_split(listed(40), labelled="8", seed=3).hash.startswith("4576ad0b74dde423185e461116aca2d2")
    source = listed(40, groups=[f"p{i // 4}" for i in range(40)])
    split = make_split(source, labelled="10%", seed=5, protocol="paper")
    assert split.hash.startswith("38b9049036fa105928d1db8d2a8691c8")


def test_a_selection_chooses_the_labelled_cases_and_nothing_else(tmp_path):
    source = listed(40, unmasked={7})
    drawn = make_split(source, labelled="10%", seed=3)
    order = tuple(sorted(set(drawn.training.images) - {"c007"}, reverse=True))
    chosen = make_split(source, labelled="10%", seed=3, selection=Selection(name="coverage", order=order))
    assert chosen.training.labelled == order[:4] and chosen.training.images == drawn.training.images
    assert chosen.test == drawn.test and chosen.provenance.select == "coverage" and drawn.provenance.select == "random"
    assert chosen.hash != drawn.hash
    for split in (chosen, drawn):
        split.save(tmp_path / "split.json")
        assert Split.load(tmp_path / "split.json") == split
        assert ("select" in json.loads((tmp_path / "split.json").read_text())["provenance"]) == (split is chosen)


def test_a_later_case_does_not_move_the_others():
    before, after = drawn_order("abcdef", seed=0, purpose="x"), drawn_order("abcdefg", seed=0, purpose="x")
    assert [name for name in after if name != "g"] == before


@pytest.mark.parametrize("seed", range(5))
def test_groups_never_straddle(seed):
    groups = [f"p{i % 13}" for i in range(90)]
    source = listed(90, groups=groups, unmasked={1, 14, 27, 30, 44})
    of = {c.id: c.group for c in source.cases}
    for options in ({}, {"folds": 6, "fold": 1}, {"protocol": "paper", "folds": 4, "fold": 0, "validation": 0.2}):
        split = make_split(source, labelled="20%", seed=seed, **options)
        training = {of[i] for i in split.training.images}
        validation = {of[i] for i in split.training.validation}
        test = {of[i] for i in split.test}
        assert not (training & validation or training & test or validation & test)
        assert split.provenance.grouped
        left_out = {c.id for c in source.cases} - set().union(*roles(split))
        assert all(not c.has_mask for c in source.cases if c.id in left_out)
        assert bool(left_out) == any("without mask" in note for note in split.provenance.notes)


def test_folds_partition_the_cases_evenly():
    groups = [f"p{i // 3}" for i in range(63)]
    source = listed(63, groups=groups)
    tests = [set(make_split(source, labelled="10%", seed=0, folds=5, fold=k).test) for k in range(5)]
    assert set().union(*tests) == {c.id for c in source.cases}
    assert sum(map(len, tests)) == 63
    assert max(map(len, tests)) - min(map(len, tests)) <= 3


def test_paper_protocol_has_ten_folds_five_for_volumes_and_validation():
    assert make_split(listed(60), labelled="5%", protocol="paper").provenance.folds == 10
    split = make_split(listed(60, spatial_dims=3), labelled="5%", protocol="paper")
    assert split.provenance.folds == 5
    assert len(split.training.validation) == round(0.1 * 48)


def test_hold_out_takes_about_a_fifth():
    assert len(make_split(listed(50), labelled="10%").test) == 10
    groups = [f"p{i // 5}" for i in range(50)]
    assert len(make_split(listed(50, groups=groups), labelled="10%").test) == 10


def test_official_split_is_kept_as_published_and_says_who_is_on_both_sides():
    subsets = ["train"] * 6 + ["test"] * 4
    source = listed(10, subsets=subsets, groups=[f"p{i % 4}" for i in range(10)])
    split = make_split(source, labelled="50%", seed=0)
    assert set(split.test) == {f"c{i:03d}" for i in range(6, 10)}
    assert split.provenance.test == "official"
    assert not split.provenance.grouped
    assert "4 groups" in split.provenance.notes[0] and "kept as published" in split.provenance.notes[0]
    assert make_split(source, labelled="50%", folds=2).provenance.grouped


def test_published_test_side_without_masks_is_never_trained_on():
    source = listed(20, subsets=["train"] * 15 + ["test"] * 5, unmasked=set(range(15, 20)))
    split = make_split(source, labelled="100%")
    assert len(split.test) == 3
    assert not {f"c{i:03d}" for i in range(15, 20)} & set(split.training.images)
    assert "5 cases of the published test side" in split.provenance.notes[0]


def test_selection_leaves_the_published_test_side_out_and_tests_on_the_seeds_fold():
    source = listed(40, subsets=["train"] * 30 + ["test"] * 10)
    side = listed(30)
    for seed in (0, 3, 7):
        split = make_split(source, labelled="10%", seed=seed, protocol="selection")
        same = make_split(side, labelled="10%", seed=seed, folds=5, fold=seed % 5)
        assert split.test == same.test
        assert set(split.training.images) == set(same.training.images)
        assert set().union(*roles(split)) == {case.id for case in side.cases}
        assert split.provenance.fold == seed % 5 and split.provenance.folds == 5
        assert "10 cases of the published test side are left out" in split.provenance.notes[0]
    assert make_split(source, protocol="selection", seed=7, folds=3, fold=2).provenance.fold == 2
    assert not any("left out" in note for note in make_split(side, protocol="selection").provenance.notes)


def test_one_group_falls_back_and_says_so():
    split = make_split(listed(20, groups=["me"] * 20), labelled="100%")
    assert len(split.test) == 4 and not split.provenance.grouped
    assert "'me'" in split.provenance.notes[0]


def test_stage_1_alone_needs_no_mask():
    split = make_split(listed(9, unmasked=set(range(9))), labelled=0)
    assert split.training.labelled == () and len(split.training.images) == 9 and split.test == ()
    subsets = ["train"] * 6 + ["test"] * 3
    split = make_split(listed(9, unmasked=set(range(9)), subsets=subsets), labelled="0%", protocol="paper")
    assert len(split.training.images) == 6


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (listed(5, unmasked=set(range(5))), {}, ["none of the 5 cases", "`hebbseg pretrain`"]),
        (listed(5, unmasked={1, 2, 3, 4}), {}, ["1 case has a mask", "test=0"]),
        (listed(6), {"folds": 10}, ["folds=10", "6 separate", "folds=6"]),
        (listed(30, groups=[f"p{i % 3}" for i in range(30)]), {"folds": 5}, ["3 separate", "30 masks"]),
        (listed(9), {"labelled": "20"}, ["labelled=20", "has 7 cases"]),
        (listed(9), {"labelled": "120%"}, ["120%", "0% to 100%"]),
        (listed(9), {"labelled": "few"}, ["'few'", "number of cases"]),
        (listed(9), {"labelled": -1}, ["-1"]),
        (listed(9), {"labelled": 2.5}, ["2.5"]),
        (listed(9), {"labelled": "1/0%"}, ["1/0%"]),
        (listed(9), {"protocol": "papr"}, ["Did you mean 'paper'"]),
        (listed(9), {"fold": 1}, ["fold=1", "folds=10"]),
        (listed(9), {"folds": 3, "fold": 3}, ["fold=3", "folds − 1"]),
        (listed(9), {"folds": 1}, ["folds=1"]),
        (listed(9), {"folds": 3, "test": 0.2}, ["cannot be combined"]),
        (listed(9), {"protocol": "selection", "test": 0.2}, ["folds=5", "cannot be combined"]),
        (listed(9), {"protocol": "selection", "folds": 0}, ["folds=0", "folds ≥ 2"]),
        (listed(9), {"test": "official"}, ["no published test set"]),
        (listed(9), {"test": "offical"}, ["'official'"]),
        (listed(9), {"test": 1.0}, ["below 1"]),
        (listed(9), {"validation": -0.1}, ["validation=-0.1"]),
    ],
)
def test_errors_say_what_was_found_and_what_to_do(source, options, words):
    with pytest.raises(HebbsegError) as caught:
        make_split(source, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "folder", "training", "test", "grouped"),
    [("glas", "glas", 85, 80, False), ("la", "la_half", 80, 20, True), ("hmeps", "pupil_hmeps_layout", 680, 160, True)],
)
def test_real_sets_have_their_published_sides_and_whole_groups(name, folder, training, test, grouped):
    source = open_source(f"{name}:{real(folder)}")
    split = make_split(source, labelled="10%", seed=1)
    assert (len(split.training.images), len(split.test)) == (training, test)
    assert len(split.training.labelled) == math.ceil(training / 10)
    assert split.provenance.grouped == grouped
    assert any("both sides" in note for note in split.provenance.notes) == (not grouped)
    if name != "la":
        assert make_split(source, labelled="10%", folds=5, fold=1).provenance.grouped


def test_the_time_of_a_draw_grows_linearly():
    def seconds(n: int, **options) -> float:
        source = listed(n, unmasked=set(range(0, n, 7)))
        times = []
        for _ in range(3):  # the fastest: garbage collection falls into some of them
            begin = time.process_time()
            assert disjoint(make_split(source, labelled="1%", **options))
            times.append(time.process_time() - begin)
        return min(times)

    for options in ({}, {"protocol": "paper"}):
        assert seconds(16_000, **options) < 24 * seconds(2_000, **options)  # 8 is linear, 64 quadratic


def test_a_set_without_groups_says_so():
    assert "No groups" in make_split(listed(9)).provenance.notes[0]
    assert make_split(listed(9, groups=list("abcabcabc"))).provenance.notes == ()


def test_one_mask_can_be_trained_on_without_a_test():
    split = make_split(listed(5, unmasked={1, 2, 3, 4}), test=0)
    assert split.training.labelled == ("c000",) and len(split.training.unlabelled) == 4


def test_training_cases_have_no_way_to_test_cases():
    assert {f.name for f in dataclasses.fields(TrainingCases)} == {"labelled", "unlabelled", "validation"}
    split = make_split(phantom("glands", n=40), labelled="10%")
    assert not set(split.test) & {*split.training.images, *split.training.validation}


def test_saved_split_is_read_back_and_changes_are_noticed(tmp_path):
    split = make_split(phantom("pupils", n=120), labelled="5%", seed=2, protocol="paper", folds=4, fold=1)
    path = tmp_path / "run" / "split.json"
    split.save(path)
    assert Split.load(path) == split
    assert Split.load(path).hash == split.hash
    content = json.loads(path.read_text(encoding="utf-8"))
    content["training"]["labelled"].append(content["test"].pop())
    path.write_text(json.dumps(content))
    with pytest.raises(HebbsegError, match=r"split\.json.*changed"):
        Split.load(path)
    path.write_text("{}")
    with pytest.raises(HebbsegError, match="not a valid split"):
        Split.load(path)
    path.write_text('{"hash": ')
    with pytest.raises(HebbsegError, match="not a valid split"):
        Split.load(path)
    with pytest.raises(HebbsegError, match="no such file"):
        Split.load(tmp_path / "none.json")


def test_folds_draw_labelled_and_validation_cases_independently():
    source = listed(165, groups=[f"p{i % 16}" for i in range(165)])
    for by in ("grouped", "images"):
        splits = [make_split(source, labelled="1%", protocol="paper", fold=fold, folds_by=by) for fold in range(10)]
        assert len({split.training.labelled for split in splits}) >= 9, by
        assert len({split.training.validation for split in splits}) >= (8 if by == "grouped" else 10), "of 16 patients"
        tests = [case for split in splits for case in split.test]
        assert sorted(tests) == [case.id for case in source.cases], "each case is tested once"


def test_folds_by_images_have_equal_sizes_and_say_that_patients_are_divided():
    source = listed(165, groups=[f"p{i % 16}" for i in range(165)])
    split = make_split(source, labelled="10%", protocol="paper", fold=3, folds_by="images")
    assert len(split.test) in (16, 17) and split.provenance.test == "fold 3 of 10, by images"
    assert not split.provenance.grouped and "groups (patients) are in more than one" in split.provenance.notes[0]
    together = make_split(source, labelled="10%", protocol="paper", fold=3)
    assert together.provenance.grouped and together.provenance.test == "fold 3 of 10"
