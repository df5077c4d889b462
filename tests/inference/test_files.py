"""Masks of files: in the input's format and geometry, nothing overwritten, one bad file does not stop the rest."""

import os
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
import torch
from PIL import Image as Pillow

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io import tiles
from hebbseg.data.io.formats import read_labels
from hebbseg.inference import large_images as largeimages
from hebbseg.inference.ensemble import mean_probabilities
from hebbseg.inference.files import find_inputs, plan, predict_files
from hebbseg.inference.sliding_window import uncertainty
from tests.data.trees import picture, save
from tests.tiny import command, tiny_segmenter


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny_segmenter().save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_folder_of_pictures(tmp_path: Path, model: Path, monkeypatch, capsys):
    save(tmp_path / "new" / "a.png", picture(0, 20, 28, 3))
    save(tmp_path / "new" / "sub" / "b.jpg", picture(1, 24, 20, 3))
    save(tmp_path / "new" / "c.tif", picture(2, 24, 20))
    assert command(monkeypatch, "predict", model, tmp_path / "new", "-o", tmp_path / "out") == 0
    assert files_below(tmp_path / "out") == [
        "a.png", "c.tif", "overlays/a.png", "overlays/c.png", "overlays/sub/b.png", "sub/b.png",
        "uncertainty/a.png", "uncertainty/c.png", "uncertainty/sub/b.png",
    ]  # fmt: skip
    assert "3 in" in capsys.readouterr().out
    segmenter = tiny_segmenter()
    for image, mask in (("a.png", "a.png"), ("sub/b.jpg", "sub/b.png"), ("c.tif", "c.tif")):
        expected = segmenter.predict(tmp_path / "new" / image)
        assert np.array_equal(read_labels(tmp_path / "out" / mask).values, expected)
        assert set(np.unique(expected)) == {0, 255}
    doubt = uncertainty(segmenter.probabilities(tmp_path / "new" / "a.png"))
    written = np.asarray(Pillow.open(tmp_path / "out" / "uncertainty" / "a.png"))
    assert np.array_equal(written, (doubt * 255).round().byte().numpy())
    assert np.asarray(Pillow.open(tmp_path / "out" / "overlays" / "a.png")).shape[2] == 3


def test_files_one_or_several_and_generated_data(tmp_path: Path, model: Path, monkeypatch):
    first, second = (save(tmp_path / place / "a.png", picture(n, 20, 28, 3)) for n, place in enumerate("xy"))
    bare = ("--no-overlays", "--no-uncertainty")
    assert command(monkeypatch, "predict", model, first, "-o", tmp_path / "one", *bare) == 0
    assert files_below(tmp_path / "one") == ["a.png"]
    assert command(monkeypatch, "predict", model, first, second, "-o", tmp_path / "two", *bare) == 0
    assert files_below(tmp_path / "two") == ["x/a.png", "y/a.png"]
    assert command(monkeypatch, "predict", model, "phantom:glands?n=2&size=32", "-o", tmp_path / "three", *bare) == 0
    assert files_below(tmp_path / "three") == ["glands_0000.png", "glands_0001.png"]


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, model: Path, monkeypatch, capsys):
    image = save(tmp_path / "new" / "a.png", picture(0, 20, 28, 3))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").write_text("drawn by hand in three hours")
    assert command(monkeypatch, "predict", model, image, "-o", tmp_path / "out") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert files_below(tmp_path / "out") == ["a.png"]
    assert (tmp_path / "out" / "a.png").read_text(encoding="utf-8") == "drawn by hand in three hours"
    assert command(monkeypatch, "predict", model, image, "-o", tmp_path / "out", "--overwrite") == 0
    assert read_labels(tmp_path / "out" / "a.png").values.shape == (20, 28)
    before = image.read_bytes()
    assert command(monkeypatch, "predict", model, tmp_path / "new", "-o", tmp_path / "new", "--overwrite") == 2
    assert "is an input image" in capsys.readouterr().err
    assert image.read_bytes() == before


def test_results_inside_the_folder_of_images_are_not_images(tmp_path: Path, model: Path, monkeypatch):
    save(tmp_path / "new" / "a.png", picture(0, 20, 28, 3))
    for _ in range(2):
        assert command(monkeypatch, "predict", model, tmp_path / "new", "-o", tmp_path / "new" / "out", "--overwrite") == 0
    assert files_below(tmp_path / "new") == ["a.png", "out/a.png", "out/overlays/a.png", "out/uncertainty/a.png"]


def test_two_images_for_one_mask(tmp_path: Path, model: Path, monkeypatch, capsys):
    files = [save(tmp_path / f"a.{kind}", picture(0, 20, 28, 3)) for kind in ("png", "jpg")]
    assert command(monkeypatch, "predict", model, *files, "-o", tmp_path / "out") == 2
    assert "would both be written to" in capsys.readouterr().err


def test_one_bad_file_is_reported_and_the_rest_goes_on(tmp_path: Path, model: Path, monkeypatch, capsys):
    for name in "abc":
        save(tmp_path / "new" / f"{name}.png", picture(0, 20, 28, 3))
    whole = (tmp_path / "new" / "b.png").read_bytes()
    (tmp_path / "new" / "b.png").write_bytes(whole[: len(whole) // 2])
    assert command(monkeypatch, "predict", model, tmp_path / "new", "-o", tmp_path / "out", "--no-overlays") == 1
    out, err = capsys.readouterr()
    assert "b.png" in err and "truncated" in err and "Traceback" not in err and "failed" in out
    assert files_below(tmp_path / "out") == ["a.png", "c.png", "uncertainty/a.png", "uncertainty/c.png"]
    (tmp_path / "new" / "a.png").write_bytes(b"")
    assert command(monkeypatch, "predict", model, tmp_path / "new", "-o", tmp_path / "again") == 1
    assert "empty file" in capsys.readouterr().err
    assert command(monkeypatch, "predict", model, tmp_path / "new" / "b.png", "-o", tmp_path / "none") == 2
    assert "The image could not be predicted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["MODEL", "new"], "-o"),
        (["nowhere", "new", "-o", "out"], "no such file"),
        (["MODEL", "nowhere", "-o", "out"], "no such file or folder"),
        (["MODEL", "new", "-o", "out", "--tta", "flip"], "'flips'"),
        (["MODEL", "new", "-o", "out", "--accelerator", "gpuu"], "'gpu'"),
        (["MODEL", "new", "-o", "out", "--with", "nowhere"], "no such file"),
        (["MODEL", "notes.txt", "-o", "out"], "unsupported file type"),
        (["MODEL"], "IMAGES"),
    ],
)
def test_mistakes(arguments: list[str], words: str, tmp_path: Path, model: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "new" / "a.png", picture(0, 20, 28, 3))
    (tmp_path / "notes.txt").write_text("no image")
    assert command(monkeypatch, "predict", *[str(model) if a == "MODEL" else a for a in arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
    assert not (tmp_path / "out").exists() or not files_below(tmp_path / "out")


def test_volumes_keep_their_geometry(tmp_path: Path, monkeypatch):
    tiny_segmenter(dims=3, channels=1, size=None, normalize="zscore", window=(8, 8, 8), axes="xyz").save(tmp_path / "m")
    volume = np.random.default_rng(0).normal(size=(9, 12, 15)).astype(np.float32)
    affine = np.array([[0, -0.7, 0, 5], [0.7, 0, 0, -3], [0, 0, 2.5, 11], [0, 0, 0, 1]])
    (tmp_path / "new").mkdir()
    nibabel.save(nibabel.Nifti1Image(volume, affine), tmp_path / "new" / "a.nii.gz")
    scan = sitk.GetImageFromArray(volume.transpose(2, 1, 0))
    scan.SetSpacing((0.7, 0.7, 2.5))
    scan.SetOrigin((1.0, 2.0, 3.0))
    sitk.WriteImage(scan, str(tmp_path / "new" / "b.mha"))
    assert command(monkeypatch, "predict", tmp_path / "m", tmp_path / "new", "-o", tmp_path / "out") == 0
    for folder in (tmp_path / "out", tmp_path / "out" / "uncertainty"):
        assert np.allclose(nibabel.load(folder / "a.nii.gz").affine, affine)
        written = sitk.ReadImage(str(folder / "b.mha"))
        assert written.GetSpacing() == (0.7, 0.7, 2.5) and written.GetOrigin() == (1.0, 2.0, 3.0)
    mask = np.asarray(nibabel.load(tmp_path / "out" / "a.nii.gz").dataobj)
    assert mask.shape == (9, 12, 15) and set(np.unique(mask)) == {0, 255}
    # One and the same volume, in two formats with opposite orders of axes.
    turned = sitk.GetArrayFromImage(sitk.ReadImage(str(tmp_path / "out" / "b.mha")))
    assert np.array_equal(turned.transpose(2, 1, 0), mask)


def test_an_ensemble_is_the_mean_and_its_models_must_agree(tmp_path: Path, monkeypatch, capsys):
    members = [tiny_segmenter(seed=seed) for seed in range(3)]
    for number, member in enumerate(members):
        member.save(tmp_path / f"m{number}")
    image = save(tmp_path / "a.png", picture(0, 20, 28, 3))
    arguments = [tmp_path / "m0", image, "-o", tmp_path / "out", "--with", tmp_path / "m1", "--with", tmp_path / "m2"]
    assert command(monkeypatch, "predict", *arguments) == 0
    mean = torch.stack([member.probabilities(image) for member in members]).mean(0)
    assert np.array_equal(read_labels(tmp_path / "out" / "a.png").values, mean.argmax(0).numpy() * 255)
    inputs, _ = find_inputs([str(image)])
    torch.testing.assert_close(mean_probabilities(members, inputs[0].read()), mean)
    three = tuple(ClassInfo(index=i, value=i, name=str(i)) for i in range(3))
    tiny_segmenter(classes=three).save(tmp_path / "other")
    assert command(monkeypatch, "predict", *arguments, "--with", tmp_path / "other", "--overwrite") == 2
    assert "differ in classes" in capsys.readouterr().err


@pytest.mark.parametrize("normalize", ["unit", "zscore"])
@pytest.mark.parametrize("value", [1, 255, 300, (200, 10, 0)])
def test_streaming_gives_what_memory_gives(normalize: str, value, tmp_path: Path, monkeypatch):
    classes = (ClassInfo(index=0, value=(0, 0, 0) if isinstance(value, tuple) else 0), ClassInfo(index=1, value=value))
    segmenters = [
        tiny_segmenter(size=None, window=(32, 32), normalize=normalize, classes=classes, seed=seed) for seed in range(2)
    ]
    image = picture(0, 150, 170, 3)
    resolution = {"resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(tmp_path / "a.tif", image, photometric="rgb", **resolution)
    inputs, _ = find_inputs([str(tmp_path / "a.tif")])

    def predicted(name: str) -> np.ndarray:
        targets = plan(segmenters, inputs, tmp_path / name)
        assert targets[0].streamed == (name == "streamed")
        outcome = predict_files(segmenters, inputs, targets)
        assert not outcome.failures
        with tifffile.TiffFile(tmp_path / name / "a.tif") as file:
            assert file.pages[0].tags["XResolution"].value == (20000, 1)
        return tifffile.imread(tmp_path / name / "a.tif")

    whole = predicted("whole")
    monkeypatch.setattr(tiles, "LARGE_PIXELS", 100)
    streamed = predicted("streamed")
    assert streamed.dtype == whole.dtype and streamed.shape == whole.shape and len(np.unique(whole)) > 1
    assert np.array_equal(streamed, whole)
    doubt = tifffile.imread(tmp_path / "streamed" / "uncertainty" / "a.tif").astype(int)
    expected = np.asarray(Pillow.open(tmp_path / "whole" / "uncertainty" / "a.png")).astype(int)
    assert np.abs(doubt - expected).max() <= 1
    assert (tmp_path / "streamed" / "overlays" / "a.png").is_file()
    assert not [path for path in (tmp_path / "streamed").iterdir() if path.name.startswith(".")]


def test_what_cannot_be_streamed_is_read_whole(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(tiles, "LARGE_PIXELS", 100)
    image = picture(0, 40, 50, 3)
    plain = {"photometric": "rgb"}
    tifffile.imwrite(tmp_path / "plain.tif", image, **plain)
    tifffile.imwrite(tmp_path / "packed.tif", image, compression="zlib", **plain)
    tifffile.imwrite(tmp_path / "white.tif", image[..., 0], photometric="miniswhite")
    save(tmp_path / "a.png", image)
    windowed = tiny_segmenter(size=None, window=(32, 32))
    streamed = [
        name for name in ("plain.tif", "packed.tif", "white.tif", "a.png") if largeimages.is_large(tmp_path / name, [windowed])
    ]
    assert streamed == ["plain.tif", "packed.tif", "white.tif"]
    for other in (tiny_segmenter(), tiny_segmenter(size=None)):
        assert not largeimages.is_large(tmp_path / "plain.tif", [other])
    assert not largeimages.is_large(tmp_path / "plain.tif", [windowed, tiny_segmenter(size=None, window=(16, 16))])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a part of a run")
def test_memory_does_not_grow_with_the_image(tmp_path: Path):
    """Eight times the rows, the same memory: far less than the larger image has bytes."""
    code = """
import re, sys, torch
torch.set_num_threads(1)
from dataclasses import replace
from pathlib import Path
from hebbseg.inference import large_images as largeimages
from tests.tiny import tiny_segmenter
network = torch.nn.Conv2d(3, 2, 1)
network.in_channels, network.spatial_dims = 3, 2
segmenter = replace(tiny_segmenter(size=None, window=(256, 256), normalize="zscore"), network=network)
peaks = []
for name in ("small", "tall"):
    path, mask, doubt = (Path(sys.argv[1]) / f"{name}{end}.tif" for end in ("", "-mask", "-doubt"))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here, not from the imports
    largeimages.predict_large([segmenter], path, mask, uncertainty=doubt)
    peaks.append(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text(encoding="utf-8")).group(1)) / 1024)
print(*peaks)
"""
    width, heights = 1024, {"small": 2048, "tall": 8 * 2048}
    strip = picture(0, 512, width, 3)
    for name, height in heights.items():
        mapped = tifffile.memmap(tmp_path / f"{name}.tif", shape=(height, width, 3), dtype=np.uint8, photometric="rgb")
        for row in range(0, height, 512):
            mapped[row : row + 512] = strip
        mapped.flush()
        del mapped
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, encoding="utf-8", check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    small, tall = map(float, done.stdout.split()[-2:])
    megabytes = 3 * width * (heights["tall"] - heights["small"]) / 2**20
    assert tall - small < megabytes / 2, f"{tall - small:.0f} MiB more for {megabytes:.0f} MiB more of image"
    with tifffile.TiffFile(tmp_path / "tall-mask.tif") as file:
        assert file.pages[0].shape == (heights["tall"], width)
