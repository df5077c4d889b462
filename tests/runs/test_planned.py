"""A run plans once, keeps its plan, and decodes every file once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from hebbseg import Segmenter
from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.data.splits.split import Split
from hebbseg.experiments.stage1_cache import cached_weights, fit_stage1
from hebbseg.methods import WITH_UNLABELLED
from hebbseg.runs import planned as module
from hebbseg.runs.dataset import open_dataset
from hebbseg.runs.estimate import estimate
from hebbseg.runs.timing import UPDATES
from hebbseg.runs.train import pretrain_only, run
from hebbseg.training import loop
from hebbseg.training.interrupt import Interrupted
from tests.data.trees import picture, save
from tests.runs.test_decode_once import decoded as decoded
from tests.runs.test_train import same_result
from tests.tiny import bright_folder

TINY: dict[str, Any] = {
    "labelled": "3", "test": "0.25", "features": (4, 8), "updates": 2, "pretrain_epochs": 1, "pretrain_max_batches": 1,
    "labelled_batch": 2, "unlabelled_batch": 2, "pretrain_batch": 2, "checkpoint_every_s": 0.0,
}  # fmt: skip


def wide_folder(root: Path, names: str = "abcdefgh") -> Path:
    """Pictures of 140 × 230 pixels with a large bright rectangle."""
    for seed, name in enumerate(names):
        image, mask = picture(seed, 140, 230, 3) // 3, np.zeros((140, 230), np.uint8)
        mask[30 + seed : 100, 40:180] = 255
        image[mask > 0] += 150
        save(root / "images" / f"{name}.png", image)
        save(root / "masks" / f"{name}.png", mask)
    return root


def description(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


class Heard(Quiet):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_a_wide_image_is_not_squashed_and_every_file_is_decoded_once(tmp_path: Path, decoded: list[Path]) -> None:
    data, said = wide_folder(tmp_path / "data"), Heard()
    predictor = run(make_settings(data, TINY), tmp_path / "run", reporter=said)
    assert predictor.preprocessing.size == (128, 208) and predictor.window is None
    stored = description(tmp_path / "run")
    assert stored["plan"]["choices"]["size"]["value"] == [128, 208]
    assert stored["settings"]["size"] == "auto", "what was asked for"
    assert any(line.strip().startswith("size: 128x208") for line in said.lines)
    split = Split.load(tmp_path / "run" / "split.json")
    pictures = [data / "images" / f"{case}.png" for case in split.test]  # again for figures/test.png
    assert sorted(decoded) == sorted([*data.glob("*/*.png"), *pictures])


def test_a_resumed_run_keeps_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wide_folder(tmp_path / "data")

    def train(out: str, **options: Any) -> Segmenter:
        return Segmenter.train(data, tmp_path / out, quiet=True, **TINY, **options)

    def stop(*_: object) -> None:
        raise Interrupted("Stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_refuse_divergence", stop)
        with pytest.raises(Interrupted):
            train("cut")
    with monkeypatch.context() as patch:
        patch.setattr(module, "make_plan", None)  # another version would plan something else
        train("cut", resume=True)
    train("whole")
    same_result(tmp_path / "cut", tmp_path / "whole")
    assert description(tmp_path / "cut")["plan"] == description(tmp_path / "whole")["plan"]


def test_a_run_of_a_version_without_plans_keeps_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wide_folder(tmp_path / "data")

    def stop(*_: object) -> None:
        raise Interrupted("Stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_refuse_divergence", stop)
        with pytest.raises(Interrupted):
            Segmenter.train(data, tmp_path / "run", quiet=True, **TINY)
    without = description(tmp_path / "run")
    del without["plan"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(without), encoding="utf-8")
    trained = Segmenter.train(data, tmp_path / "run", quiet=True, resume=True, **TINY)
    assert trained.preprocessing.size == (128, 128)


def test_pretraining_opens_no_mask(tmp_path: Path, decoded: list[Path]) -> None:
    data = wide_folder(tmp_path / "data", "abcd")
    pretrain_only(make_settings(data, TINY), tmp_path / "stage1")
    assert {path.parent.name for path in decoded} == {"images"}
    plan = description(tmp_path / "stage1")["plan"]
    assert plan["choices"]["size"]["value"] == [128, 208] and plan["fingerprint"]["round_trips"] == []


def test_shared_weights_of_another_size_are_not_used(tmp_path: Path) -> None:
    """A run whose labelled masks lead to another size than that of the shared stage 1 computes its own."""
    data = "phantom:glands?n=12&size=32"
    options = TINY | {"labelled": "2", "test": "auto", "method": "supervised"}
    small, large = (make_settings(data, options | {"size": size}) for size in ((16, 16), (32, 32)))
    fit_stage1(small, 0, tmp_path / "shared", dataset=open_dataset(small.data, Quiet()), reporter=Quiet())
    dataset = open_dataset(large.data, Quiet())
    run(large, tmp_path / "own", dataset=dataset)
    run(large, tmp_path / "given", dataset=dataset, initialize=cached_weights([tmp_path / "shared"]))
    same_result(tmp_path / "own", tmp_path / "given")


def test_an_estimate_trains_nothing_and_reads_few_files(
    tmp_path: Path, decoded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = wide_folder(tmp_path / "data")
    steps: list[int] = []
    kept: Callable[..., Any] = loop._refuse_divergence
    monkeypatch.setattr(loop, "_refuse_divergence", lambda *given: (steps.append(1), kept(*given)))
    found = estimate(make_settings(data, TINY | {"updates": 500}))
    assert len(steps) == UPDATES and found.method == WITH_UNLABELLED and found.time is not None
    time = found.time
    assert time.updates == 500 and min(time.update_s, time.test_s, time.stage1_s, time.reading_s) > 0
    assert time.total_s == pytest.approx(time.reading_s + time.stage1_s + 500 * time.update_s + time.test_s)
    images = {path.stem for path in decoded if path.parent.name == "images"}
    assert not images & set(found.split.test), "test cases are not read"


def test_partly_annotated_masks_have_the_method_that_uses_the_rest(tmp_path: Path) -> None:
    data = bright_folder(tmp_path / "data", "abcd")
    assert estimate(make_settings(data, TINY | {"ignore": 7}), measure=False).method == "supervised"
    for path in (data / "masks").iterdir():
        mask = np.array(Pillow.open(path))
        mask[:3] = 7
        Pillow.fromarray(mask).save(path)
    assert estimate(make_settings(data, TINY | {"ignore": 7}), measure=False).method == WITH_UNLABELLED


def test_what_a_budget_pays_for_grows_with_it(tmp_path: Path) -> None:
    data = wide_folder(tmp_path / "data", "abcd")
    found = estimate(make_settings(data, TINY | {"labelled": "1", "size": (32, 32), "init": "random"})).time
    assert found is not None and found.stage1_s == 0
    bought = [found.updates_within(seconds) for seconds in (0.001, 1e3, 2e3)]
    assert bought[0] == 0 and bought[1] < bought[2]
    assert bought[1] * found.update_s <= 1e3
