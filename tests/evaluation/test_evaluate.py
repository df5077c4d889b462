"""Metrics are those of the original pixels, whatever size the network works at."""

import math

import medpy.metric.binary as medpy
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hebbseg.data.cases import Case
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.evaluate import checked_grid, describe_summary, evaluate
from hebbseg.segmenter import Segmenter
from tests.data.arrays_source import ArraysSource
from tests.tiny import TWO_CLASSES

SHAPES = {"a": (20, 33), "b": (47, 18), "c": (12, 12), "d": (9, 40)}
WORKING = (12, 12)


class Truth(nn.Module):
    """Returns given masks one after the other, as almost certain logits."""

    def __init__(self, masks: list[Tensor]) -> None:
        super().__init__()
        self.masks = iter(masks)

    def forward(self, x: Tensor) -> Tensor:
        mask = next(self.masks)
        assert mask.shape == x.shape[2:]
        return 40 * torch.stack([mask == 0, mask == 1])[None].float()


def source_of(shapes: dict[str, tuple[int, ...]], spacing: tuple[float, ...] | None = None) -> ArraysSource:
    """Discs (balls) at various places, with thin spikes."""
    masks = {}
    for number, (name, shape) in enumerate(shapes.items()):
        place = np.stack(np.meshgrid(*((np.arange(n) + 0.5) / n for n in shape), indexing="ij"))
        centre = 0.4 + 0.05 * number
        mask = (((place - centre) ** 2).sum(0) < 0.09).astype(np.uint8)
        mask[shape[0] // 2, ..., shape[-1] // 3 :] = 1
        masks[name] = mask
    return ArraysSource(
        [Case(id=name, mask=(), spacing_mm=spacing) for name in shapes],
        images={name: mask[None] * np.uint8(255) for name, mask in masks.items()},
        masks=masks,
        spatial_dims=len(next(iter(shapes.values()))),
    )


def segmenter_of(source: ArraysSource, size: tuple[int, ...] | None) -> Segmenter:
    """A model whose network returns the truth at its working size."""
    preprocessing = Preprocessing(size=size, normalize="unit")
    truth = [preprocessing.mask(source.masks[case.id]) for case in source.cases]
    options = {"spatial_dims": source.spatial_dims, "in_channels": 1, "out_channels": 2}
    return Segmenter(network=Truth(truth), network_options=options, preprocessing=preprocessing, classes=TWO_CLASSES)


def enlarged(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Linear interpolation of the foreground's share to another grid, pixel by pixel; at least one half is foreground."""
    result = np.zeros(shape, np.uint8)
    for index in np.ndindex(*shape):
        share = 0.0
        corners = []
        for place, new, old in zip(index, shape, mask.shape, strict=True):
            x = min(max((place + 0.5) * old / new - 0.5, 0.0), old - 1.0)
            low = min(math.floor(x), old - 1)
            corners.append(((low, 1 - (x - low)), (min(low + 1, old - 1), x - low)))
        for choice in np.ndindex(*(2,) * len(shape)):
            picked = [corner[c] for corner, c in zip(corners, choice, strict=True)]
            share += math.prod(w for _, w in picked) * float(mask[tuple(i for i, _ in picked)])
        result[index] = share > 0.5 + 1e-6
    return result


def dice(a: np.ndarray, b: np.ndarray) -> float:
    both = sum(int(x and y) for x, y in zip(a.flat, b.flat, strict=True))
    return 2 * both / (sum(map(int, a.flat)) + sum(map(int, b.flat)))


def test_images_of_mixed_sizes_are_measured_in_their_own_pixels() -> None:
    source = source_of(SHAPES)
    seen = {}
    rows, summary = evaluate(
        segmenter_of(source, WORKING), source, list(SHAPES), look=lambda name, p, t: seen.update({name: (p, t)})
    )
    assert summary["grid"] == "original" and summary["unit"] == "px" and summary["n"] == 4
    for row in rows:
        prediction, target = seen[row["case"]]
        assert prediction.shape == target.shape == SHAPES[row["case"]]
        assert np.array_equal(target, source.masks[row["case"]])
        small = Preprocessing(size=WORKING, normalize="unit").mask(target).numpy()
        expected = enlarged(small, target.shape)
        assert (prediction != expected).mean() < 0.01, "ties alone may differ"
        assert row["dice"] == pytest.approx(dice(expected, target), abs=0.01)
        assert row["hd95"] == pytest.approx(medpy.hd95(prediction, target))
    by_case = {row["case"]: row["dice"] for row in rows}
    assert by_case["c"] == 1, "as large as in training"
    assert max(by_case[name] for name in "abd") < 0.999, "what is lost by resizing counts"
    assert len({round(value, 3) for value in by_case.values()}) == 4


def test_the_training_grid_on_request() -> None:
    source = source_of(SHAPES)
    rows, summary = evaluate(segmenter_of(source, WORKING), source, list(SHAPES), grid="training")
    assert summary["grid"] == "training"
    assert all(row["dice"] == 1 and row["hd95"] == 0 for row in rows), "compared with the resized masks"
    assert all(row["n_target"] <= math.prod(WORKING) for row in rows)
    source = source_of(SHAPES)
    _, summary = evaluate(segmenter_of(source, None), source, list(SHAPES), grid="training")
    assert summary["grid"] == "original", "nothing is resized"
    with pytest.raises(HebbsegError, match="Did you mean 'original'"):
        checked_grid("orignal")


def test_distances_of_resized_volumes_are_in_mm_of_the_files() -> None:
    spacing = (3.0, 1.5, 0.5)
    source = source_of({"v": (8, 12, 18)}, spacing)
    seen = []
    options = {"store": None, "look": lambda name, p, t: seen.append((p, t))}
    (row,), summary = evaluate(segmenter_of(source, (4, 6, 6)), source, ["v"], **options)
    ((prediction, target),) = seen
    assert summary["unit"] == "mm" and prediction.shape == (8, 12, 18) and (prediction != target).any()
    assert row["hd95"] == pytest.approx(medpy.hd95(prediction, target, spacing))
    assert row["asd"] == pytest.approx(medpy.assd(prediction, target, spacing))
    moved = segmenter_of(source, (4, 6, 6))
    moved.network.masks = iter([torch.roll(next(moved.network.masks), 1, 0)])
    (row,), _ = evaluate(moved, source, ["v"], grid="training", look=options["look"])
    assert row["asd"] == pytest.approx(medpy.assd(*seen[-1], (6.0, 3.0, 1.5))), "two, two and three voxels in one"


def test_a_store_of_other_cases_is_not_read() -> None:
    source = source_of(SHAPES)
    store = CaseStore(source=source, preprocessing=Preprocessing(size=WORKING, normalize="unit"), images=["a"], masks=["a"])
    with pytest.raises(HebbsegError, match="case 'b'"):
        evaluate(segmenter_of(source, WORKING), source, ["b"], store=store)


def test_the_closing_line_has_a_unit_and_no_interval_of_two_cases() -> None:
    source = source_of({name: SHAPES[name] for name in "ab"})
    _, summary = evaluate(segmenter_of(source, WORKING), source, ["a", "b"])
    line = describe_summary(summary)
    assert "±" not in line and " px, ASD" in line and "(n = 2)" in line
    assert "px at training size" in describe_summary(summary | {"grid": "training"})
    small = summary | {"unit": "mm", "hd95": {"mean": 0.0213}, "asd": {"mean": 0.0042}}
    assert "95HD 21.3 µm, ASD 4.2 µm" in describe_summary(small)
    source = source_of(SHAPES)
    _, summary = evaluate(segmenter_of(source, WORKING), source, list(SHAPES))
    assert "±" in describe_summary(summary) and "(n = 4, ± 90 % interval over cases)" in describe_summary(summary)
