"""Run folders whose files are valid JSON or tables with any content, and exported models that do not segment."""

import contextlib
import json
import math
from pathlib import Path

import pytest

from hebbseg.errors import HebbsegError
from hebbseg.reporting.results import read_results
from hebbseg.reporting.run_page.page import write_run_page
from tests.stress.corpus_folders import SUMMARY, TABLES, read_onnx, read_run_folder, run_kinds, write_onnx

CONTENTS = {
    "summary.json": [{}, {"n": "x"}, SUMMARY | {"classes": 5}, SUMMARY | {"class_names": {"a": 1}}, SUMMARY | {"dice": [1]}],
    "pretrain.json": [{"a": 5}, {"a": {"moved": "x"}}, {"a": {"units": None}}],
    "split.json": [{}, {"training": 5}],
    "run.json": [{"grid": [1]}, {"plan": 5}, {"versions": 5}, {"seconds": "x"}, {"updates_done": "x"}, {"split_notes": 5}],
    "metrics.csv": ["a", "case,class,dice\n", TABLES["metrics.csv"].replace("0.5", "x"), "case\n" + "x" * 200_000],
    "history.csv": ["stage,step\nfit,x\n", "stage,step,dice\nfit,1e400,nan\n", "a" * 200_000],
    "curve.csv": ["masks\n1\n", TABLES["curve.csv"].replace("0.1", "nan"), TABLES["curve.csv"].replace("2,", "0,")],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    run_kinds(folder)
    return folder / "run"


@pytest.mark.parametrize("name", CONTENTS)
def test_any_content_of_a_run_folder_is_read_or_refused(run: Path, name: str) -> None:
    intact = (run / name).read_text(encoding="utf-8")
    try:
        for content in CONTENTS[name]:
            base = json.loads(intact) if name == "run.json" else {}
            text = content if isinstance(content, str) else json.dumps(base | content)
            (run / name).write_text(text, encoding="utf-8")
            with contextlib.suppress(HebbsegError):
                read_run_folder(run)
        (run / name).write_text("[" * 100_000, encoding="utf-8")
        with contextlib.suppress(HebbsegError):
            read_run_folder(run)
        assert len(read_results([run]).runs) + len(read_results([run]).unread) == 1
    finally:
        (run / name).write_text(intact, encoding="utf-8")
    read_run_folder(run)


def test_the_page_of_a_run_names_the_damage(run: Path, tmp_path: Path) -> None:
    intact = (run / "summary.json").read_text(encoding="utf-8")
    (run / "summary.json").write_text(json.dumps({"n": 2}), encoding="utf-8")
    try:
        with pytest.raises(HebbsegError, match=r"run: a file of the run has unexpected content \(no 'dice'\)\. Restore it"):
            write_run_page(run, tmp_path / "report.html")
    finally:
        (run / "summary.json").write_text(intact, encoding="utf-8")
    assert not (tmp_path / "report.html").exists()


def test_exported_models_return_probabilities_of_their_classes(tmp_path: Path) -> None:
    write_onnx(tmp_path / "good.onnx")
    read_onnx(tmp_path / "good.onnx")
    for name, options, reason in (
        ("nan", {"weight": math.nan}, r"nan\.onnx: its outputs are not probabilities from 0 to 1"),
        ("inf", {"weight": math.inf}, r"inf\.onnx: its outputs are not probabilities"),
        ("more", {"outputs": 3}, r"more\.onnx: it returns values of shape \(1, 3, 8, 8\) instead of \(1, 2, 8, 8\)"),
        ("list", {"description": [1]}, r"list\.onnx: no hebbseg model \(its description is a list"),
    ):
        write_onnx(tmp_path / f"{name}.onnx", **options)  # type: ignore[arg-type]
        with pytest.raises(HebbsegError, match=reason):
            read_onnx(tmp_path / f"{name}.onnx")
