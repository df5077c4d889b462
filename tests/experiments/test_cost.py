import re
from pathlib import Path

import pytest

from hebbseg.experiments import cost
from hebbseg.experiments.cost import UPDATES, Cost, describe_plan, in_updates
from hebbseg.runs import train as pipeline
from tests.experiments.tinygrid import SETTINGS, tiny_tasks

ARMS = [
    {"name": "Supervised", "init": "random", "method": "supervised"},
    {"name": "EM", "init": "random", "method": "em"},
]


def test_an_estimate_times_every_method_and_tests_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested = []
    test = pipeline._test
    monkeypatch.setattr(pipeline, "_test", lambda *arguments: (tested.append(1), test(*arguments)))
    facts = dict(describe_plan(tiny_tasks(tmp_path, arms=ARMS), jobs=2))
    assert len(tested) == 1
    assert facts["runs"] == "8 (8 left)" and "s per update" in facts["supervised"] and "s per update" in facts["em"]
    assert "with --jobs 2" in facts["time"]
    assert UPDATES >= 3, "the first and the last update do not count"


def test_updates_before_and_after_the_start_count_with_their_own_time() -> None:
    price = Cost(fixed=0.0, update=3.0, early=1.0, start=0.5, start_updates=500)
    assert price.of_updates(300) == 300, "all at the start"
    assert price.of_updates(800) == 500 + 300 * 3
    assert price.of_updates(2000) == 1000 + 1000 * 3
    assert Cost(fixed=0.0, update=3.0).of_updates(7) == 21


def test_the_default_method_is_timed_after_its_start_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    done = cost.run

    def noting(settings, folder, **options):
        timed.append((settings.finetune.method, settings.finetune.method_options))
        return done(settings, folder, **options)

    monkeypatch.setattr(cost, "run", noting)
    arms = [{"name": "Supervised", "init": "random", "method": "auto"}]
    tasks = tiny_tasks(tmp_path, arms=arms, axes={"labelled": ["2"], "seed": [0]})
    found = cost.time_task(tasks[0], {})
    assert [method for method, _ in timed] == ["auto", "fixmatch"]
    options = timed[1][1]
    assert options["start"] == options["start_updates"] == 0 and options["dice_gated"] is True
    assert (found.start, found.start_updates) == (0.5, 500) and found.early > 0 and found.update > 0


def test_epochs_are_converted_for_each_regime(tmp_path: Path) -> None:
    settings = SETTINGS | {"preset": "paper", "folds": 2, "epochs": 10, "validate_every": 2}
    del settings["updates"]
    axes = {"labelled": ["1", "3"], "fold": [0, 1]}
    tasks = tiny_tasks(tmp_path, settings=settings, arms=ARMS[:1], axes=axes)
    labelled: dict[str, int] = {}
    lengths = [(found.updates, found.validate_every) for found in (in_updates(task, labelled) for task in tasks)]
    assert lengths == [(10, 2), (20, 4)] * 2 and sorted(labelled.values()) == [1, 3], "batches of two"
    price = Cost(fixed=1.0, update=0.5, validation=2.0)
    assert price.of(in_updates(tasks[1], labelled)) == 1 + 20 * 0.5 + 5 * 2


def test_an_estimate_does_not_run_all_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SETTINGS | {"preset": "paper", "folds": 2, "pretrain_epochs": 100_000, "epochs": 100_000, "validate_every": 2}
    del settings["updates"]
    monkeypatch.setattr("hebbseg.experiments.cost.STAGE1_S", 0.2)
    arms = [*ARMS[:1], {"name": "Hebbian", "init": "hebbian"}]
    tasks = tiny_tasks(tmp_path, settings=settings, arms=arms, axes={"labelled": ["3"], "fold": [0]})
    facts = dict(describe_plan(tasks, jobs=1))
    assert facts["runs"] == "2 (2 left)"
    assert all(re.search(r"\d (h|min)\b", facts[name]) for name in ("supervised", "stage 1 (hebbian)")), facts
