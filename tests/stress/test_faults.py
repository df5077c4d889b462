"""The fault harness and the random chains of commands, in a process of their own: they fork."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


def in_child(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, encoding="utf-8", timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_results_after_faults_are_those_of_an_undisturbed_command() -> None:
    found = in_child(
        "from tests.stress.faults import check\n"
        "counts = check(7, 0, names=('train',))\n"
        "print(sum(n for key, n in counts.items() if key[2] == 'as undisturbed'), sum(counts.values()))"
    )
    assert found.splitlines()[-1] == "7 7", found


def test_writes_of_an_evaluation_can_fail() -> None:
    found = in_child(
        "from tests.stress.full_disk import check\n"
        "counts = check(('evaluate',), every=4)\n"
        "print(counts['evaluate', 'wrong'], counts['evaluate', 'error'] >= 3)"
    )
    assert found.splitlines()[-1] == "0 True", found


def test_two_processes_share_a_grid_and_its_stage_1() -> None:
    found = in_child(
        "from tests.stress.faults import check\n"
        "counts = check(1, 0, faults=('twin',), names=('grid',))\n"
        "print(counts['twin', 'grid', 'as undisturbed'], sum(counts.values()))"
    )
    assert found.splitlines()[-1] == "1 1", found


def test_a_difference_is_seen() -> None:
    found = in_child(
        "import tempfile; from pathlib import Path; from tests.stress.faults import SCENARIOS, differences\n"
        "places = [Path(tempfile.mkdtemp()) for _ in range(2)]\n"
        "[(place / name).write_text(text) for place, text in zip(places, 'ab') for name in ('metrics.csv', 'summary.json')]\n"
        "print(len(differences(SCENARIOS['evaluate'], *places)), len(differences(SCENARIOS['evaluate'], places[0], places[0])))"
    )
    assert found.split() == ["2", "0"]


def test_random_commands_keep_the_invariants() -> None:
    found = in_child("from tests.stress.soak import soak; print(len(soak(0, chains=2)))")
    assert found.splitlines()[-1] == "0", found
