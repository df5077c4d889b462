"""Which test cases are drawn, and that the pictures show them."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hebbseg.data.sources import open_source
from hebbseg.runs.examples import Examples, chosen
from hebbseg.runs.pictures import drawn, shown
from tests.tiny import bright_folder


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("cases", [0, 1, 2, 3, 4, 5, 9, 10, 100])
def test_cases_are_different_and_in_order(cases: int, each: int) -> None:
    found = chosen(cases, each)
    positions = [position for _, position in found]
    assert positions == sorted(set(positions)) and all(0 <= position < cases for position in positions)
    assert len(found) == (cases if cases < 3 else 3 * min(each, cases // 3))
    if cases >= 3:
        assert found[0] == ("worst", 0) and found[-1] == ("best", cases - 1)
        middle = [position for role, position in found if role == "median"]
        assert abs(np.mean(middle) - (cases - 1) / 2) <= 0.5


def test_pictures_are_those_of_the_lowest_median_and_highest_dice(tmp_path: Path) -> None:
    source = open_source(str(bright_folder(tmp_path / "data", "abcde")))
    examples = Examples()
    right = {"a": 0.9, "b": 0.1, "c": 0.5, "d": 0.3, "e": 0.7}  # share of the mask's rows that is predicted
    for case in source.cases:
        target = source.mask(case)
        prediction = target.copy()
        prediction[round(right[case.id] * target.shape[0]) :] = 0
        examples.look(case.id, prediction, target, 2)
    examples.draw(source, tmp_path / "run")
    found = json.loads((tmp_path / "run" / "figures" / "cases" / "cases.json").read_text(encoding="utf-8"))["cases"]
    assert [each["role"] for each in found] == ["worst", "median", "best"]
    assert [each["case"] for each in found] == ["b", "c", "a"]
    assert [each["dice"] for each in found] == sorted(each["dice"] for each in found)
    case = next(case for case in source.cases if case.id == "a")
    prediction = source.mask(case).copy()
    prediction[round(0.9 * len(prediction)) :] = 0
    expected = drawn(source, shown("a", prediction, source.mask(case), 2)).astype(float)
    with Image.open(tmp_path / "run" / "figures" / "cases" / found[2]["file"]) as opened:
        assert np.abs(np.asarray(opened, dtype=float) - expected).mean() < 5, "up to JPEG"
