"""The scripts in examples/ run as they are."""

import json
import re
import runpy
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from hebbseg.inference.export.formats import export_model
from tests.tiny import tiny_segmenter

SCRIPT = Path(__file__).parent.parent / "examples" / "onnx_predict.py"
BLOCKED = ("torch", "hebbseg", "monai", "scipy", "skimage", "lightning_fabric")
# An import of a module whose entry in sys.modules is None raises ImportError.
WITHOUT = (
    f"import sys, runpy; sys.modules.update(dict.fromkeys({BLOCKED})); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
)


def test_onnx_needs_neither_torch_nor_hebbseg(tmp_path: Path):
    segmenter = tiny_segmenter(normalize="zscore", size=(32, 32))
    export_model(segmenter, tmp_path / "m.onnx")
    rows, columns = np.mgrid[:40, :56]
    smooth = np.stack([127 + 100 * np.sin(rows / a) * np.cos(columns / b) for a, b in ((9, 7), (5, 11), (8, 8))], axis=-1)
    Pillow.fromarray(smooth.astype(np.uint8)).save(tmp_path / "a.png")
    arguments = [str(SCRIPT), str(tmp_path / "m.onnx"), str(tmp_path / "a.png"), str(tmp_path / "mask.png")]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *arguments], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    mask, wanted = np.asarray(Pillow.open(tmp_path / "mask.png")), segmenter.predict(tmp_path / "a.png")
    assert mask.shape == wanted.shape == (40, 56) and set(np.unique(wanted)) == {0, 255}
    assert (mask == wanted).mean() > 0.98  # Pillow and PyTorch round differently when they resize


def test_blocking_works():
    done = subprocess.run([sys.executable, "-c", f"{WITHOUT.partition(';')[0]}; sys.modules['torch'] = None; import torch"])
    assert done.returncode == 1


notebooks = import_module("docs.notebooks")
OUTPUT = {
    "first_model": r"glands_0006\.png \(48, 48\) +\d+% foreground",
    "hebbian_layer": r"filter 1: (0\.9[5-9]|1\.0)\d* of the variance",
    "own_method": r"4 \{'supervised': [\d.]+, 'consistency': [\d.]+\}",
    "paired_differences": r" 5 %  Hebbian − scratch \+1\.7 ± 1\.5 \(n = 8\)",  # as in docs/results
}
"""Script → what it prints."""


def test_every_script_with_cells_is_run() -> None:
    assert {script.stem for script in notebooks.scripts()} == set(OUTPUT)


@pytest.mark.parametrize("name", OUTPUT)
def test_the_script_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(notebooks.EXAMPLES.parent)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runpy.run_path(str(notebooks.EXAMPLES / f"{name}.py"))
    printed = capsys.readouterr().out
    assert re.search(OUTPUT[name], printed), printed


@pytest.mark.parametrize("name", OUTPUT)
def test_the_notebook_has_the_code_of_the_script(name: str) -> None:
    script = (notebooks.EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    path = notebooks.EXAMPLES / "notebooks" / f"{name}.ipynb"
    assert path.read_text(encoding="utf-8") == notebooks.notebook(script), "run `make docs`"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [line for cell in cells if cell["cell_type"] == "code" for line in "".join(cell["source"]).splitlines()]
    comments = [line for cell in cells if cell["cell_type"] == "markdown" for line in "".join(cell["source"]).splitlines()]
    plain = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert [line for line in code if line] == plain and len(comments) > 2
