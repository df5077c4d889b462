import warnings
from typing import Any

import medpy.metric.binary as medpy
import numpy as np
import pytest
import torch
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance
from scipy import stats

from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import all_metrics, asd, case_metrics, dice, hd95, jaccard, pooled_dice, summarize
from tests.evaluation.masks import random_pairs
from tests.literal import metrics as literal


@pytest.mark.parametrize(("n_axes", "largest"), [(2, 10), (3, 6)])
def test_every_metric_is_the_literal_one(n_axes: int, largest: int) -> None:
    for p, t, spacing in random_pairs(80, n_axes, largest, seed=4):
        assert all_metrics(p, t, spacing) == pytest.approx(literal.all_metrics(p, t, spacing), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("n_axes", "largest"), [(2, 40), (3, 16)])
def test_agrees_with_medpy(n_axes: int, largest: int) -> None:
    for p, t, spacing in random_pairs(150, n_axes, largest, seed=5):
        assert dice(p, t) == pytest.approx(medpy.dc(p, t), rel=1e-12)
        assert jaccard(p, t) == pytest.approx(medpy.jc(p, t), rel=1e-12)
        assert hd95(p, t, spacing) == pytest.approx(medpy.hd95(p, t, spacing), rel=1e-9, abs=1e-9)
        assert asd(p, t, spacing) == pytest.approx(medpy.assd(p, t, spacing), rel=1e-9, abs=1e-9)


def test_asd_is_neither_the_directed_one_nor_the_mean_of_both_directions() -> None:
    p, t = np.zeros((20, 20), dtype=bool), np.zeros((20, 20), dtype=bool)
    p[5:8, 5:8] = True
    t[2:17, 2:17] = True
    there, back = medpy.asd(p, t), medpy.asd(t, p)
    n_there, n_back = 8, 56  # surface pixels of a 3 × 3 and of a 15 × 15 square
    assert asd(p, t) == pytest.approx((n_there * there + n_back * back) / (n_there + n_back))
    assert abs(asd(p, t) - (there + back) / 2) > 0.5
    assert abs(asd(p, t) - there) > 0.5


@pytest.mark.parametrize(("n_axes", "largest"), [(2, 40), (3, 16)])
def test_agrees_with_monai(n_axes: int, largest: int) -> None:
    for p, t, spacing in random_pairs(100, n_axes, largest, seed=6):
        batch = {"y_pred": torch.tensor(p)[None, None], "y": torch.tensor(t)[None, None], "include_background": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hausdorff = compute_hausdorff_distance(**batch, percentile=95, spacing=spacing).item()
            average = compute_average_surface_distance(**batch, symmetric=True, spacing=spacing).item()
        assert hd95(p, t, spacing, definition="max") == pytest.approx(hausdorff, rel=1e-5, abs=1e-5)
        assert asd(p, t, spacing) == pytest.approx(average, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("shape", [(30, 40), (12, 15, 16)])
def test_empty_masks(shape: tuple[int, ...]) -> None:
    nothing, something = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    something[(slice(3, 6),) * len(shape)] = True
    spacing = tuple(np.arange(1, len(shape) + 1) / 2)
    assert set(all_metrics(nothing, nothing, spacing).items()) == {
        ("dice", 1.0), ("jaccard", 1.0), ("hd95", 0.0), ("hd95_max", 0.0), ("asd", 0.0)
    }  # fmt: skip
    diagonal = float(np.sqrt(sum((n * s) ** 2 for n, s in zip(shape, spacing))))
    for p, t in ((nothing, something), (something, nothing)):
        assert dice(p, t) == jaccard(p, t) == 0
        assert hd95(p, t, spacing) == hd95(p, t, spacing, definition="max") == asd(p, t, spacing)
        assert asd(p, t, spacing) == pytest.approx(diagonal)
    assert hd95(nothing, np.ones(shape)) == pytest.approx(np.linalg.norm(shape))


def test_known_values() -> None:
    p, t = np.zeros((10, 20), dtype=bool), np.zeros((10, 20), dtype=bool)
    p[2, 3] = t[2, 7] = True
    assert (dice(p, t), jaccard(p, t)) == (0, 0)
    assert hd95(p, t) == asd(p, t) == 4
    assert hd95(p, t, spacing=(1, 0.5)) == 2
    assert hd95(p, t, spacing=3) == 12
    t[2, 3] = True
    assert dice(p, t) == pytest.approx(2 / 3)
    assert jaccard(p, t) == pytest.approx(1 / 2)
    assert asd(p, t) == pytest.approx(4 / 3)  # distances 0, 0 and 4
    assert hd95(p, t) == pytest.approx(3.6)  # position 1.9 of (0, 0, 4)
    assert hd95(p, t, definition="max") == pytest.approx(3.8)  # position 0.95 of (0, 4)


def test_metrics_are_symmetric_and_scale_with_the_spacing() -> None:
    for p, t, spacing in random_pairs(40, 3, 10, seed=7):
        forth, back = all_metrics(p, t, spacing), all_metrics(t, p, spacing)
        assert forth == pytest.approx(back, rel=1e-12)
        doubled = all_metrics(p, t, tuple(2 * s for s in spacing))
        for name in ("hd95", "hd95_max", "asd"):
            assert doubled[name] == pytest.approx(2 * forth[name], rel=1e-12)
        turned = all_metrics(p.transpose(2, 0, 1), t.transpose(2, 0, 1), (spacing[2], spacing[0], spacing[1]))
        assert turned == pytest.approx(forth, rel=1e-9)


@pytest.mark.parametrize(
    "convert",
    [
        lambda m: m.astype(np.uint8),
        lambda m: m.astype(np.float64),
        torch.tensor,
        lambda m: torch.tensor(m).long(),
        lambda m: torch.tensor(m).to(torch.bfloat16).requires_grad_(),
        lambda m: m[::-1][::-1],
    ],
)
def test_any_kind_of_mask_gives_the_same(convert: Any) -> None:
    p, t, spacing = next(iter(random_pairs(1, 2, 30, seed=8)))
    assert all_metrics(convert(p), convert(t), spacing) == all_metrics(p, t, spacing)


def test_errors_say_what_was_found_and_what_to_do() -> None:
    mask = np.zeros((4, 4), dtype=np.uint8)
    with pytest.raises(HebbsegError, match=r"prediction has shape \(4, 4\) and target \(4, 5\)"):
        dice(mask, np.zeros((4, 5)))
    for wrong, shown in ((mask + 255, "255"), (np.full((4, 4), 0.5), "0.5"), (np.full((4, 4), np.nan), "nan")):
        with pytest.raises(HebbsegError, match=f"target has the values {shown}; a mask is boolean or 0/1.*target > 0"):
            hd95(mask, wrong)
    with pytest.raises(HebbsegError, match=r"shape \(1, 1, 4, 4\).*batch and channel"):
        asd(mask[None, None], mask[None, None])
    with pytest.raises(HebbsegError, match=r"spacing is \(1, 1, 1\); expected one positive number, or 2"):
        hd95(mask, mask, (1, 1, 1))
    with pytest.raises(HebbsegError, match="spacing is -1"):
        hd95(mask, mask, -1)
    with pytest.raises(HebbsegError, match="Did you mean 'pooled'"):
        hd95(mask, mask, definition="pool")
    with pytest.raises(HebbsegError, match=r"class indices 0 … 3; with n_classes = 3, allowed are 0 … 2"):
        case_metrics(mask, np.diag([0, 1, 2, 3]), 3)
    with pytest.raises(HebbsegError, match="argmax"):
        case_metrics(mask.astype(float), mask, 3)
    with pytest.raises(HebbsegError, match="n_classes is 1"):
        case_metrics(mask, mask, 1)
    with pytest.raises(HebbsegError, match="no case"):
        summarize([], "px")


def three_cases() -> list[dict[str, Any]]:
    rng = np.random.default_rng(9)
    rows = []
    for case in "abc":
        target = rng.integers(0, 3, (12, 9))
        prediction = np.where(rng.random((12, 9)) < 0.3, rng.integers(0, 3, (12, 9)), target)
        rows += case_metrics(torch.tensor(prediction), target, 3, (0.5, 2.0), case=case)
    return rows


def test_case_rows_hold_each_foreground_class() -> None:
    target = np.array([[0, 1, 1, 2], [0, 1, 1, 2]])
    prediction = np.array([[0, 1, 1, 0], [1, 1, 1, 0]])
    first, second = case_metrics(prediction, target, 3, case="x")
    assert (first["case"], first["class"], second["class"]) == ("x", 1, 2)
    assert {k: first[k] for k in ("dice", "jaccard", "hd95", "asd")} == {
        k: all_metrics(prediction == 1, target == 1)[k] for k in ("dice", "jaccard", "hd95", "asd")
    }
    assert (first["n_intersection"], first["n_prediction"], first["n_target"]) == (4, 5, 4)
    assert second["dice"] == 0 and second["hd95"] == pytest.approx(np.hypot(2, 4))


def test_summary_is_the_mean_over_cases_of_the_mean_over_classes() -> None:
    rows = three_cases()
    summary = summarize(rows, "mm")
    assert (summary["n"], summary["unit"]) == (3, "mm")
    for metric in ("dice", "jaccard", "hd95", "hd95_max", "asd"):
        per_case = [np.mean([r[metric] for r in rows if r["case"] == case]) for case in "abc"]
        low, high = stats.t.interval(0.9, 2, loc=np.mean(per_case), scale=stats.sem(per_case))
        assert summary[metric]["mean"] == pytest.approx(np.mean(per_case))
        assert summary[metric]["ci90"] == pytest.approx((high - low) / 2)
        of_class = [r[metric] for r in rows if r["class"] == 2]
        assert summary["classes"]["2"][metric]["mean"] == pytest.approx(np.mean(of_class))
    backwards = summarize(rows[::-1], "mm")
    assert backwards["hd95"] == pytest.approx(summary["hd95"])


def test_pooled_dice_takes_all_voxels_together() -> None:
    rng = np.random.default_rng(10)
    targets = [rng.random((8, 8)) < share for share in (0.5, 0.01, 0.9)]
    predictions = [rng.random((8, 8)) < 0.5 for _ in targets]
    rows = [
        row
        for i, (p, t) in enumerate(zip(predictions, targets))
        for row in case_metrics(p.astype(int), t.astype(int), 2, case=str(i))
    ]
    expected = dice(np.concatenate(predictions), np.concatenate(targets))
    assert pooled_dice(rows) == pytest.approx(expected)
    assert summarize(rows, "px")["dice_pooled"] == pytest.approx(expected)
    assert abs(expected - np.mean([r["dice"] for r in rows])) > 0.01
    nothing = case_metrics(np.zeros((4, 4), int), np.zeros((4, 4), int), 2)
    assert pooled_dice(nothing) == 1


def test_summary_of_one_case_has_no_interval() -> None:
    summary = summarize([row for row in three_cases() if row["case"] == "a"], "px")
    assert summary["n"] == 1 and summary["dice"]["ci90"] is None and np.isfinite(summary["dice"]["mean"])


def test_summary_refuses_rows_that_do_not_belong_together() -> None:
    rows = three_cases()
    with pytest.raises(HebbsegError, match="Case 'a' has two rows of class 1"):
        summarize([*rows, rows[0]], "px")
    with pytest.raises(HebbsegError, match=r"Case 'c' has rows for classes \[1\], others for \[1, 2\]"):
        summarize(rows[:-1], "px")
