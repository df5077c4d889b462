"""Object metrics: against a slow version, by hand, and where there is nothing to measure."""

import math

import numpy as np
import pytest

from hebbseg.errors import HebbsegError
from hebbseg.evaluation import object_pairs
from hebbseg.evaluation.object_metrics import OBJECT_METRICS, metrics_of, object_metrics, summarize_objects
from hebbseg.evaluation.object_pairs import Numbered, hausdorff
from tests.literal import objects as literal


def rectangles(seed: int, shape: tuple[int, ...], n: int) -> np.ndarray:
    """Overlapping rectangles with ids in random order and with gaps; later ones cover earlier ones."""
    draw = np.random.default_rng(seed)
    labels = np.zeros(shape, np.int32)
    for value in draw.permutation(3 * n)[:n] + 1:
        start = [int(draw.integers(0, side - 2)) for side in shape]
        labels[tuple(slice(a, a + int(draw.integers(2, 7))) for a in start)] = value
    return labels


@pytest.mark.parametrize("seed", range(12))
def test_equals_the_slow_version(seed: int):
    shape, spacing = ((14, 17), (1.0, 1.0)) if seed % 3 else ((6, 8, 7), (2.0, 1.0, 0.5))
    target = rectangles(seed, shape, 1 + seed % 6)
    # Shifted, so that objects overlap in part, with others that overlap none.
    prediction = np.roll(target, 1 + seed % 2, axis=0) if seed % 2 else rectangles(seed + 100, shape, 5)
    expected = literal.metrics(prediction, target, spacing)
    found = object_metrics(prediction, target, spacing)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-12), name


def test_by_hand():
    """Target: 4 pixels in columns 0 … 3 and 2 in 8 … 9. Prediction: columns 1 … 4 and, far from all, column 12."""
    target, prediction = np.zeros((2, 1, 14), int)
    target[0, 0:4], target[0, 8:10] = 1, 2
    prediction[0, 1:5], prediction[0, 12] = 1, 2
    found = object_metrics(prediction, target)
    # Dice of the first pair: 2·3 / 8. The second objects overlap none.
    assert math.isclose(found["object_dice"], (4 / 6 * 0.75 + 4 / 5 * 0.75) / 2)
    # H of the first pair is 1. Target 2 (8, 9) is nearest to prediction 2 (12): 4; likewise from the other side.
    assert math.isclose(found["object_hausdorff"], ((4 * 1 + 2 * 4) / 6 + (4 * 1 + 1 * 4) / 5) / 2)
    assert found["f1_glas"] == found["f1"] == 0.5  # one of two and two
    assert math.isclose(found["sq"], 3 / 5) and math.isclose(found["pq"], 0.5 * 3 / 5)
    assert math.isclose(found["aji"], 3 / (5 + 2 + 1))


def test_one_prediction_over_two_objects_and_two_over_one():
    two = np.array([[1, 1, 1, 1, 2, 2]])
    one = np.ones((1, 6), int)
    merged = object_metrics(one, two)
    assert math.isclose(merged["f1_glas"], 2 / 3)  # a true positive for the larger one, the other is missed
    assert math.isclose(merged["f1"], 2 / 3) and math.isclose(merged["sq"], 4 / 6)
    assert math.isclose(merged["aji"], (4 + 2) / (6 + 6))
    cut = object_metrics(two, one)
    assert math.isclose(cut["aji"], 4 / (6 + 2)) and cut["n_prediction"] == 2
    halves = object_metrics(np.array([[1, 1, 2, 2]]), np.ones((1, 4), int))
    assert halves["f1"] == halves["f1_glas"] == halves["pq"] == 0  # neither covers more than half


def test_perfect_and_empty():
    labels = rectangles(0, (12, 12), 4)
    renumbered = np.where(labels > 0, 50 - labels, 0)
    perfect = object_metrics(renumbered, labels)
    assert all(perfect[name] == (0 if name == "object_hausdorff" else 1) for name in OBJECT_METRICS)
    none = np.zeros((12, 12), int)
    both = object_metrics(none, none)
    assert all(both[name] == (0 if name == "object_hausdorff" else 1) for name in OBJECT_METRICS) and both["n_target"] == 0
    for prediction, target in ((none, labels), (labels, none)):
        found = object_metrics(prediction, target, (3.0, 4.0))
        assert all(found[name] == 0 for name in OBJECT_METRICS if name != "object_hausdorff")
        assert found["object_hausdorff"] == 60.0  # √(36² + 48²)
    with pytest.raises(HebbsegError, match="shapes must be equal"):
        object_metrics(none, none[:3])


def test_hausdorff_is_that_of_scikit_image():
    from skimage.metrics import hausdorff_distance

    a, b = rectangles(1, (20, 20), 3) > 0, rectangles(2, (20, 20), 3) > 0
    assert math.isclose(hausdorff(a, b, (1, 1)), hausdorff_distance(a, b))


def test_the_summary_is_the_mean_over_cases_of_the_mean_over_classes():
    values = {("a", 1): 0.2, ("a", 2): 0.4, ("b", 1): 0.6, ("b", 2): 0.8, ("c", 1): 1.0, ("c", 2): 0.0}
    rows = [
        {"case": case, "class": k, **dict.fromkeys(OBJECT_METRICS, value), "n_target": 2, "n_prediction": 3}
        for (case, k), value in values.items()
    ]
    summary = summarize_objects(rows, "px")
    assert summary["n"] == 3 and summary["unit"] == "px" and summary["n_target"] == 12
    assert math.isclose(summary["pq"]["mean"], (0.3 + 0.7 + 0.5) / 3)
    assert math.isclose(summary["pq"]["ci90"], 2.919986 * 0.2 / 3**0.5, rel_tol=1e-6)  # t(0.95, 2) · s/√3
    assert math.isclose(summary["classes"]["1"]["pq"]["mean"], 0.6) and summary["classes"]["2"]["n_prediction"] == 9


@pytest.mark.parametrize("seed", range(4))
def test_objects_that_are_read_in_bands_and_far_apart(seed: int, monkeypatch: pytest.MonkeyPatch):
    target, prediction = rectangles(seed, (40, 50), 8), rectangles(seed + 50, (40, 50), 8)
    expected = object_metrics(prediction, target, (2.0, 1.0))
    monkeypatch.setattr(object_pairs, "BAND_PIXELS", 130)
    numbered = Numbered.of(prediction), Numbered.of(target)
    assert metrics_of(*numbered, (2.0, 1.0), most=1) == pytest.approx(expected), "distances of points, all of them"
    monkeypatch.setattr(object_pairs, "FEW_PIXELS", 8)
    found = metrics_of(*numbered, (2.0, 1.0), most=1)
    assert abs(found.pop("object_hausdorff") - expected.pop("object_hausdorff")) < 4 and found == pytest.approx(expected)


def test_chosen_objects_are_numbered_in_the_order_of_their_labels():
    labels = np.array([[5, 5, 0, 2], [0, 9, 9, 2]])
    numbered = Numbered.of(labels, np.isin(np.arange(10), (5, 9)))
    assert numbered[:,].tolist() == [[1, 1, 0, 0], [0, 2, 2, 0]] and numbered.areas.tolist() == [2, 2]
    assert numbered.boxes.tolist() == [[[0, 0], [1, 2]], [[1, 1], [2, 3]]]
    assert numbered.points(1, 10).tolist() == [[1, 1], [1, 2]] and len(numbered.points(1, 1)) >= 1
