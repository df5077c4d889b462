"""What a fingerprint reads and contains."""

import numpy as np
import pytest
from PIL import Image

from hebbseg.data.cases import Case
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import TrainingCases
from hebbseg.planning import fingerprint
from hebbseg.planning.fingerprint import spread, take_fingerprint
from tests.data.arrays_source import ArraysSource
from tests.planning.masks import blobs, lines


def arrays(shape=(150, 200), draw=blobs, n=6) -> ArraysSource:
    cases = [Case(id=f"c{i}", mask=()) for i in range(n)]
    masks = {case.id: draw(shape, seed=i).numpy() for i, case in enumerate(cases)}
    images = {case.id: np.zeros((1, *shape), np.uint8) for case in cases}
    return ArraysSource(cases, images=images, masks=masks)


TRAINING = TrainingCases(labelled=("c2", "c0"), unlabelled=("c3",), validation=("c4",))  # c1 and c5 are test cases


def test_only_masks_of_labelled_training_cases_are_read() -> None:
    source = arrays()
    found = take_fingerprint(source, TRAINING, test=2)
    assert {name for what, name in source.reads if what == "mask"} == {"c0", "c2"}
    assert {name for what, name in source.reads if what == "image"} <= {"c0", "c2", "c3"}
    assert (found.images, found.labelled, found.unlabelled, found.test, found.classes) == (6, 2, 1, 2, 2)
    assert found.median_size == (150, 200) and found.aspect == 0.75 and found.masks_tried == 2
    assert found.round_trips[-1].size == (128, 176) and found.round_trips[-1].dice >= 0.98


@pytest.mark.parametrize("options", [{"masks": False}, {"sizes": False}])
def test_no_mask_is_read_where_none_is_needed_or_allowed(options: dict) -> None:
    source = arrays()
    found = take_fingerprint(source, TRAINING, **options)
    assert not [key for key in source.reads if key[0] == "mask"]
    assert found.round_trips == () and found.median_size == (150, 200)


def test_it_does_not_depend_on_the_order_in_which_masks_were_drawn() -> None:
    other = TrainingCases(labelled=("c0", "c2"), unlabelled=("c3",))
    assert take_fingerprint(arrays(draw=lines), TRAINING) == take_fingerprint(arrays(draw=lines), other)


def test_masks_without_foreground_tell_nothing() -> None:
    source = arrays(draw=lambda shape, seed: blobs(shape, radius=1) * 0)
    assert take_fingerprint(source, TRAINING).round_trips == ()


def test_sizes_are_those_of_all_headers_and_a_single_odd_one_does_not_decide(tmp_path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    for number in range(40):
        side = 1000 if number == 7 else 40
        Image.new("L", (side, 40), number).save(tmp_path / "images" / f"{number:02d}.png")
    Image.fromarray(np.eye(40, dtype=np.uint8) * 255).save(tmp_path / "masks" / "00.png")
    source = open_source(str(tmp_path))
    found = take_fingerprint(source, TrainingCases(labelled=("00",), unlabelled=("01",)))
    assert found.smallest_size == (40, 40) and found.largest_size == (40, 1000) and found.median_size == (40, 40)
    assert found.size_ratio == 1.0 and not found.one_size


def test_a_mask_that_is_read_ahead_is_not_decoded_again(tmp_path, monkeypatch) -> None:
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for name in "abc":
        Image.new("L", (40, 40), 9).save(tmp_path / "images" / f"{name}.png")
        Image.fromarray(np.eye(40, dtype=np.uint8) * 255).save(tmp_path / "masks" / f"{name}.png")
    source = open_source(str(tmp_path))
    take_fingerprint(source, TrainingCases(labelled=("a", "b"), unlabelled=("c",)))
    monkeypatch.setattr("hebbseg.data.sources.files.read_labels", None)
    cases = {case.id: case for case in source.cases}
    assert source.mask(cases["a"]).sum() == 40
    with pytest.raises(TypeError):
        source.mask(cases["a"])  # once only: it is not kept in memory


def test_cases_are_spread_evenly() -> None:
    assert spread("abcde", 9) == list("abcde")
    assert spread([str(n) for n in range(101)], 3) == ["0", "50", "100"]
    assert len(set(spread([str(n) for n in range(50)], fingerprint.MASKS))) == fingerprint.MASKS
