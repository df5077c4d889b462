"""The scripts in examples/ run as they are."""

import subprocess
import sys
from pathlib import Path

import numpy as np
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
