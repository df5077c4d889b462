"""The time budget covers reading, stage 1, stage 2 and test. Clocks are counters, so no test depends on the machine."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from hebbseg import Segmenter
from hebbseg.config import UNLIMITED_UPDATES, FinetuneSettings, PretrainSettings, make_settings
from hebbseg.data.progress import Quiet
from hebbseg.errors import HebbsegError
from hebbseg.runs import budget as module
from hebbseg.runs import timing
from hebbseg.runs.budget import LEAST_UPDATES, STAGE1_SHARE, TimeBudget, shortened
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import draw_split, open_dataset
from hebbseg.runs.estimate import TimeEstimate
from hebbseg.runs.timing import UPDATES, EvaluationTime, Stage1Time, affords
from hebbseg.training import loop
from hebbseg.training.distributed import make_fabric
from hebbseg.training.interrupt import Interrupted
from hebbseg.training.session import Session


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
    "pretrain_epochs": 50, "init": "hebbian", "method": "supervised", "checkpoint_every_s": 0.0,
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
    assert run["time_budget"]["test_s"] == pytest.approx(TEST.of(summary["n"], page=True))
    assert run["time_budget"]["stage1"] == {"epochs": 19, "max_batches": 1}, "1 + 19 · 3 of the 60 s allowed"
    assert run["status"] == "done" and run["seconds"] < 440
    assert summary["n"] == 4, "every test case is tested"


def test_without_a_number_of_updates_a_run_uses_its_whole_budget(tmp_path: Path, ticks: "count[int]") -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "updates"}
    Segmenter.train(DATA, tmp_path / "run", quiet=True, time_budget_s=400.0, **options)
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert run["stopped_by"] == "time_budget" and run["updates_planned"] is None
    history = (tmp_path / "run" / "history.csv").read_text(encoding="utf-8")
    assert history.count("fit") == run["updates_done"] // 20 > 0, "losses are logged although the length is not known"


def test_a_number_of_updates_or_epochs_also_ends_a_run_with_a_budget() -> None:
    assert make_settings(DATA, {"time_budget_s": 60.0}).finetune.updates == UNLIMITED_UPDATES
    assert make_settings(DATA, {"time_budget_s": 60.0, "updates": 7}).finetune.updates == 7
    assert make_settings(DATA, {"time_budget_s": 60.0, "epochs": 7}).finetune.updates == 2000
    assert make_settings("glas:place", {"time_budget_s": 60.0, "preset": "paper"}).finetune.epochs == 200
    assert make_settings(DATA, {}).finetune.updates == 2000


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
    with pytest.raises(HebbsegError, match="time_budget_s 12 s is too short"):
        Segmenter.train(DATA, tmp_path / "run", quiet=True, time_budget_s=12.0, **OPTIONS)


@pytest.mark.parametrize(("affordable", "stage1"), [(False, {"init": "random"}), (True, {"epochs": 19, "max_batches": 1})])
def test_by_default_a_budget_for_few_updates_leaves_out_stage_1(
    tmp_path: Path, ticks: "count[int]", monkeypatch: pytest.MonkeyPatch, affordable: bool, stage1: dict[str, object]
) -> None:
    asked: list[tuple[int, float]] = []

    def affords(context: object, updates: int, within_s: float) -> bool:
        asked.append((updates, within_s))
        return affordable

    monkeypatch.setattr(module, "affords", affords)
    options = OPTIONS | {"init": "auto", "time_budget_s": 400.0}
    Segmenter.train(DATA, tmp_path / "run", quiet=True, **options)
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert run["time_budget"]["stage1"] == stage1
    assert run["settings"]["init"] == "auto"
    assert asked == [(LEAST_UPDATES, pytest.approx(400.0 - TEST.of(4), abs=20.0))]
    assert (tmp_path / "run" / "pretrain.json").exists() == affordable, "there are figures of stage 1 only if it ran"


def test_stage_1_that_was_left_out_gives_the_weights_of_training_from_scratch(
    tmp_path: Path, ticks: "count[int]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "affords", lambda *_: False)
    for init in ("auto", "random"):
        Segmenter.train(DATA, tmp_path / init, quiet=True, **OPTIONS | {"init": init, "time_budget_s": 400.0})
    left_out, scratch = ((tmp_path / init / "pretrained.safetensors").read_bytes() for init in ("auto", "random"))
    assert left_out == scratch


@pytest.mark.parametrize(("step_s", "measured"), [(0.5, 1), (1.5, UPDATES), (2.5, UPDATES), (4.0, 1)])
def test_few_updates_are_measured_where_one_decides(monkeypatch: pytest.MonkeyPatch, step_s: float, measured: int) -> None:
    """100 s for 100 updates; the first update is as slow as the others here."""
    done: list[int] = []

    def fit(method: object, batches: object, settings: FinetuneSettings, *, fabric: object, session: Session) -> None:
        assert settings.method == "supervised"
        for number in range(settings.updates):
            clock[0] += step_s
            done.append(number)
            session.report(number + 1, settings.updates, {})

    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(timing, "fit", fit)
    settings = make_settings(DATA, {name: OPTIONS[name] for name in ("labelled", "size", "features")} | {"method": "fixmatch"})
    dataset = open_dataset(settings.data, Quiet())
    split = draw_split(settings, dataset.source)
    context = RunContext(settings, dataset, split.training, make_fabric(settings))
    assert affords(context, 100, 100.0) == (step_s <= 1.0)
    assert len(done) == measured


def test_without_a_time_budget_the_default_is_hebbian() -> None:
    assert make_settings(DATA, {}).pretrain.init == "hebbian"
    assert make_settings(DATA, {"init": "auto"}).pretrain.init == "hebbian"
    assert make_settings(DATA, {"time_budget_s": 60.0}).pretrain.init == "auto"
    assert make_settings(DATA, {"time_budget_s": 60.0, "init": "hebbian"}).pretrain.init == "hebbian"
    assert make_settings("glas:place", {"time_budget_s": 60.0, "preset": "paper"}).pretrain.init == "hebbian"


def test_a_plan_for_a_short_budget_has_no_stage_1() -> None:
    time = TimeEstimate(reading_s=0.0, stage1_s=50.0, update_s=0.5, test_s=10.0, updates=2000, optional_stage1=True)
    assert (time.stage1_within(300.0), time.updates_within(300.0)) == (0.0, 580)
    assert (time.stage1_within(600.0), time.updates_within(600.0)) == (50.0, 1080)
    asked_for = replace(time, optional_stage1=False)
    assert (asked_for.stage1_within(300.0), asked_for.updates_within(300.0)) == (STAGE1_SHARE * 300, 490)


def test_without_a_budget_a_run_has_all_its_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_stage1", None)  # nothing is measured
    options = OPTIONS | {"updates": 3, "pretrain_epochs": 1}
    Segmenter.train(DATA, tmp_path / "run", quiet=True, **options)
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert (run["updates_done"], run["updates_planned"], run["stopped_by"]) == (3, 3, "updates")
    assert "time_budget" not in run
