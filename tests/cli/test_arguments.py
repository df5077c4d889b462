"""Errors of `Segmenter` name its arguments."""

from pathlib import Path

import pytest

from hebbseg import Segmenter
from hebbseg.cli.arguments import as_arguments
from hebbseg.errors import HebbsegError
from tests.tiny import bright_folder


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Raise --labelled.", "Raise labelled."),
        ("--time-budget 60 s is too short", "time_budget_s 60 s is too short"),
        ("fewer test cases (--set test=0.1)", "fewer test cases (test=0.1)"),
        ("--set method_options.weight=5", "method_options.weight=5"),
        ("--from run: omit --init", "from_run run: omit init"),
        ("Continue it with --resume.", "Continue it with resume=True."),
        ("see `hebbseg train --help`, or --folds 3", "see `hebbseg train --help`, or folds 3"),
        ("--unknown stays", "--unknown stays"),
        ("a - b -- c", "a - b -- c"),
    ],
)
def test_options_become_arguments(message: str, expected: str) -> None:
    assert as_arguments(message) == expected


def test_training_in_python_names_arguments(tmp_path: Path) -> None:
    data = bright_folder(tmp_path / "data")
    with pytest.raises(HebbsegError) as error:
        Segmenter.train(data, tmp_path / "run", quiet=True, curve=True, labelled="1")
    assert "raise labelled" in str(error.value) and "--" not in str(error.value)
