"""The time budget covers reading, stage 1, stage 2 and test. Clocks are counters, so no test depends on the machine."""

import json
from itertools import count
from pathlib import Path

import pytest

from hebbseg import Segmenter
from hebbseg.config import PretrainSettings
from hebbseg.errors import HebbsegError
from hebbseg.runs import budget as module
from hebbseg.runs.budget import STAGE1_SHARE, TimeBudget, shortened
from hebbseg.runs.timing import EvaluationTime, Stage1Time
from hebbseg.training import loop
from hebbseg.training.interrupt import Interrupted


def budget(elapsed_s: float, *, total_s: float = 100.0, test_s: float = 10.0) -> TimeBudget:
    return TimeBudget(total_s=total_s, elapsed_s=lambda: elapsed_s, test_s=test_s)


def test_stage_1_gets_its_share_and_stage_2_what_is_left() -> None:
    assert budget(5).stage1_s() == STAGE1_SHARE * 100
    assert budget(85).stage1_s() == 5, "no more than what is left"
    assert budget(95).stage1_s() == 0
    assert budget(25).stage2_s() == 100 - 25 - 10


def test_time_before_an_interruption_counts() -> None:
    # 40 of 60 seconds before were stage 2; 30 are left, so stage 2 ends 70 seconds after its start.
    assert budget(60).stage2_s(before_s=40) == 70
    assert budget(95).stage2_s(before_s=40) == 35, "the time is over: its progress is above 1, and the test follows"


def test_a_budget_that_is_too_short_says_what_takes_how_long() -> None:
    with pytest.raises(
        HebbsegError,
        match=r"100 s is too short: 92 s .* test needs about 10 s.* another folder with at least 204 s",
    ):
        budget(92).stage2_s()


def test_the_reserve_covers_every_test_case_and_the_figures() -> None:
    time = EvaluationTime(case_s=2.0, drawing_s=0.5)
    assert time.of(3) > 3 * 2.0 + 4 * 0.5, "three cases and the training curves are drawn"
    assert time.of(80) - time.of(40) == pytest.approx(1.1 * 40 * 2.0), "only some of many cases are drawn"
    assert time.of(0) == 0, "without test cases there is neither test nor figure"


@pytest.mark.parametrize("allowed_s", [1.0, 5.0, 9.0, 20.0, 49.0])
def test_stage_1_is_shortened_to_what_is_allowed(allowed_s: float) -> None:
    settings = PretrainSettings()  # two epochs
    time = Stage1Time(fixed_s=1.0, round_s=2.0, rounds=2 * 12)
    short = shortened(settings, time, allowed_s, per_epoch=12)
    if time.total_s <= allowed_s:
        assert short == settings
    else:
        assert isinstance(short.epochs, int) and short.max_batches is not None
        rounds = short.epochs * min(short.max_batches, 12)
        assert rounds == 1 or 1.0 + 2.0 * rounds <= allowed_s
        assert 1.0 + 2.0 * (rounds + 2) > allowed_s, "no more than needed"


def test_without_stage_1_nothing_is_shortened() -> None:
    settings = PretrainSettings()
    assert shortened(settings, Stage1Time(), 0.0, per_epoch=3) is settings
    assert shortened(settings, Stage1Time(rounds=None), 0.0, per_epoch=3) is settings


def test_until_convergence_becomes_a_number_of_epochs() -> None:
    settings = PretrainSettings(init="vae")
    short = shortened(settings, Stage1Time(fixed_s=0.0, round_s=1.0, rounds=2000), 35.0, per_epoch=10)
    assert (short.epochs, short.max_batches) == (3, 10)
    shorter = shortened(settings, Stage1Time(fixed_s=0.0, round_s=1.0, rounds=2000), 4.0, per_epoch=10)
    assert (shorter.epochs, shorter.max_batches) == (1, 4)


OPTIONS = {
    "labelled": "4", "size": (32, 32), "features": (4, 8), "updates": 4000, "labelled_batch": 2, "pretrain_batch": 2,
    "pretrain_epochs": 50, "method": "supervised", "checkpoint_every_s": 0.0,
}  # fmt: skip
DATA = "phantom:glands?n=12&size=32"
TEST = EvaluationTime(case_s=2.0, drawing_s=1.0)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> "count[int]":
    """A clock that advances by a second whenever somebody looks; a test case takes 2 s, a batch of stage 1 takes 3 s."""
    clock = count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(module, "time_test", lambda context: TEST)
    stage1 = Stage1Time(fixed_s=1.0, round_s=3.0, rounds=50 * 4)
    monkeypatch.setattr(module, "time_stage1", lambda context, images, enough_s: stage1)
    return clock


def test_a_run_ends_within_its_budget_and_says_so(tmp_path: Path, ticks: "count[int]") -> None:
    Segmenter.train(DATA, tmp_path / "run", quiet=True, time_budget_s=400.0, **OPTIONS)
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    for found in (run, summary):
        assert found["stopped_by"] == "time_budget" and found["updates_planned"] == 4000
        assert 0 < found["updates_done"] < 400
    assert run["time_budget"]["test_s"] == pytest.approx(TEST.of(summary["n"]))
    assert run["time_budget"]["stage1"] == {"epochs": 19, "max_batches": 1}, "1 + 19 · 3 of the 60 s allowed"
    assert run["status"] == "done" and run["seconds"] < 440
    assert summary["n"] == 4, "every test case is tested"


def test_a_resumed_run_has_what_is_left_of_its_budget(
    tmp_path: Path, ticks: "count[int]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(**options) -> None:
        Segmenter.train(DATA, tmp_path / "run", quiet=True, time_budget_s=400.0, **OPTIONS, **options)

    def refuse(*_: object, **__: object) -> Stage1Time:
        raise AssertionError("measured again")

    updates = count()

    def stop(*_: object) -> None:
        if next(updates) == 20:
            raise Interrupted("Stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_refuse_divergence", stop)
        with pytest.raises(Interrupted):
            train()
    for _ in range(1000):
        next(ticks)  # time between the two sessions does not count
    monkeypatch.setattr(module, "time_stage1", refuse)
    monkeypatch.setattr(module, "time_test", refuse)
    train(resume=True)
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert run["stopped_by"] == "time_budget" and 20 < run["updates_done"] < 400
    assert 300 < run["seconds"] < 440


def test_a_budget_without_time_for_training_is_an_error(tmp_path: Path, ticks: "count[int]") -> None:
    with pytest.raises(HebbsegError, match=r"--time-budget 12 s is too short"):
        Segmenter.train(DATA, tmp_path / "run", quiet=True, time_budget_s=12.0, **OPTIONS)


def test_without_a_budget_a_run_has_all_its_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_stage1", None)  # nothing is measured
    options = OPTIONS | {"updates": 3, "pretrain_epochs": 1}
    Segmenter.train(DATA, tmp_path / "run", quiet=True, **options)
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert (run["updates_done"], run["updates_planned"], run["stopped_by"]) == (3, 3, "updates")
    assert "time_budget" not in run
