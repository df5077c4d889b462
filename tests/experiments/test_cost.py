from pathlib import Path

import pytest

from hebbseg.experiments.cost import UPDATES, describe_plan
from hebbseg.runs import train as pipeline
from tests.experiments.tinygrid import tiny_tasks

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
