"""hebbseg evaluate: the same numbers as the run's own test, classes that must agree, and honest warnings."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from PIL import Image as Pillow
from scipy.ndimage import gaussian_filter
from skimage.measure import label

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io import tiles
from hebbseg.data.io.formats import read_labels
from hebbseg.data.progress import Quiet
from hebbseg.data.sources import open_source
from hebbseg.data.sources.files import FileSource
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.evaluation import object_pairs
from hebbseg.evaluation.object_metrics import OBJECT_METRICS
from hebbseg.inference.objects import ObjectOptions
from hebbseg.runs.evaluate import fitting_source, results_folder
from hebbseg.runs.evaluate_objects import measure_objects
from tests.data.arrays_source import ArraysSource
from tests.data.trees import picture, save
from tests.tiny import GLANDS, TINY, TWO_CLASSES, bright_folder, command, tiny_segmenter


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert command(monkeypatch, "train", GLANDS, "-o", folder, "--labelled", "3", "--init", "random", *TINY) == 0
    return folder


def test_the_runs_own_test_cases_give_the_runs_own_numbers(run_folder: Path, tmp_path: Path, monkeypatch, capsys):
    arguments = ["evaluate", run_folder, GLANDS, "-o", tmp_path / "out"]
    assert command(monkeypatch, *arguments, "--split", run_folder / "split.json") == 0
    out, err = capsys.readouterr()
    assert "Dice" in out and "warning" not in err
    assert (tmp_path / "out" / "metrics.csv").read_bytes() == (run_folder / "metrics.csv").read_bytes()
    summary, own = (
        json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder in (tmp_path / "out", run_folder)
    )
    for of_the_run in ("split_notes", "updates_done", "updates_planned", "stopped_by"):
        own.pop(of_the_run)
    assert summary == own
    assert (tmp_path / "out" / "worst.png").is_file()
    assert command(monkeypatch, *arguments, "--subset", "test") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert command(monkeypatch, *arguments, "--subset", "test", "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n"] == own["n"]


def test_cases_of_the_training_are_measured_with_a_warning(run_folder: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "evaluate", run_folder / "model.safetensors", GLANDS) == 0
    err = capsys.readouterr().err
    assert "8 of the 12 cases" in err and "3 of them with their masks" in err and "optimistic bias" in err
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("-evaluation")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["n"] == 12 and "optimistic bias" in summary["warning"]
    with (folder / "metrics.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 12


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for expected in ("my-data-evaluation", "my-data-evaluation-2", "my-data-evaluation-3"):
        assert results_folder("my data", None) == Path(expected)
        Path(expected).mkdir()


def test_other_channels_are_turned_into_the_models(tmp_path: Path, monkeypatch):
    tiny_segmenter(channels=1, size=(16, 16)).save(tmp_path / "grey")
    data = bright_folder(tmp_path / "data")
    assert command(monkeypatch, "evaluate", tmp_path / "grey", data, "-o", tmp_path / "out") == 0
    source = fitting_source(open_source(data), tiny_segmenter(channels=1))
    assert source.channels == 1 and source.image(source.cases[0]).shape == (1, 24, 32)


def test_volumes_are_turned_to_the_models_order_of_axes_with_their_spacing(tmp_path: Path):
    volume = np.random.default_rng(0).normal(size=(8, 10, 12)).astype(np.float32)
    for name, array in (("images", volume), ("masks", (volume > 0).astype(np.uint8))):
        (tmp_path / name).mkdir()
        scan = sitk.GetImageFromArray(array.transpose(2, 1, 0))
        scan.SetSpacing((1.0, 2.0, 3.0))
        sitk.WriteImage(scan, str(tmp_path / name / "a.mha"))
    segmenter = tiny_segmenter(dims=3, channels=1, size=None, classes=TWO_CLASSES, axes="xyz")
    source = fitting_source(open_source(tmp_path), segmenter)
    (case,) = source.cases
    assert case.spacing_mm == (1.0, 2.0, 3.0)
    assert np.array_equal(source.image(case)[0], volume) and np.array_equal(source.mask(case), volume > 0)
    assert nibabel  # the order xyz is NIfTI's


def test_metrics_are_those_of_the_masks_that_predict_writes(tmp_path: Path, monkeypatch):
    tiny_segmenter(size=(16, 10)).save(tmp_path / "model")
    data, odd = bright_folder(tmp_path / "data", "abc"), tmp_path / "data" / "images" / "wide.png"
    save(odd, np.concatenate([picture(7, 20, 50, 3)] * 2))
    save(tmp_path / "data" / "masks" / "wide.png", np.repeat(np.repeat([[0, 255], [255, 0]], 20, 0), 25, 1).astype(np.uint8))
    assert command(monkeypatch, "predict", tmp_path / "model", data / "images", "-o", tmp_path / "masks") == 0
    assert command(monkeypatch, "evaluate", tmp_path / "model", data, "-o", tmp_path / "out") == 0
    with (tmp_path / "out" / "metrics.csv").open() as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    assert sorted(rows) == ["a", "b", "c", "wide"]
    for name, row in rows.items():
        predicted, target = (read_labels(root / f"{name}.png").values > 0 for root in (tmp_path / "masks", data / "masks"))
        counts = (predicted & target).sum(), predicted.sum(), target.sum()
        assert tuple(int(row[key]) for key in ("n_intersection", "n_prediction", "n_target")) == counts
        assert float(row["dice"]) == pytest.approx(2 * counts[0] / (counts[1] + counts[2]))
    options = (data, "-o", tmp_path / "small", "--metrics-grid")
    assert command(monkeypatch, "evaluate", tmp_path / "model", *options, "trainig") == 2
    assert command(monkeypatch, "evaluate", tmp_path / "model", *options, "training") == 0
    summaries = [json.loads((tmp_path / name / "summary.json").read_text(encoding="utf-8")) for name in ("out", "small")]
    assert [summary["grid"] for summary in summaries] == ["original", "training"]
    with Pillow.open(tmp_path / "out" / "worst.png") as drawn:
        assert drawn.width > drawn.height


def test_large_imagess_are_streamed_and_measured_as_predicted(tmp_path: Path, monkeypatch, capsys):
    tiny_segmenter(size=None, window=(32, 32), normalize="zscore").save(tmp_path / "model")
    for folder, array in (("images", picture(0, 150, 170, 3)), ("masks", np.eye(150, 170, dtype=np.uint8) * 255)):
        (tmp_path / "data" / folder).mkdir(parents=True)
        tifffile.imwrite(tmp_path / "data" / folder / "a.tif", array, photometric="rgb" if array.ndim == 3 else "minisblack")
    monkeypatch.setattr(tiles, "LARGE_PIXELS", 100)
    monkeypatch.setattr(CaseStore, "images", lambda *_: pytest.fail("the image was loaded"))
    assert command(monkeypatch, "evaluate", tmp_path / "model", tmp_path / "data", "-o", tmp_path / "out") == 0
    assert command(monkeypatch, "predict", tmp_path / "model", tmp_path / "data" / "images", "-o", tmp_path / "masks") == 0
    (row,) = csv.DictReader((tmp_path / "out" / "metrics.csv").read_text().splitlines())
    predicted, target = (tifffile.imread(tmp_path / folder / "a.tif") > 0 for folder in ("masks", "data/masks"))
    assert (int(row["n_prediction"]), int(row["n_intersection"])) == (predicted.sum(), (predicted & target).sum())


@pytest.mark.parametrize("kind", ["instances", "classes", "borders"])
def test_objects_of_large_images_are_measured_as_those_in_memory(kind: str, tmp_path: Path, monkeypatch):
    borders = kind == "borders"
    three = tuple(ClassInfo(index=k, value=k) for k in range(3))
    segmenter = tiny_segmenter(size=None, window=(32, 32), normalize="zscore", classes=three if borders else TWO_CLASSES)
    if borders:
        segmenter = replace(segmenter, borders=True, classes=TWO_CLASSES)
    noise = gaussian_filter(np.random.default_rng(1).normal(size=(96, 110)), 4)
    mask = label(noise > 0.02) * 3 if kind == "instances" else (noise > 0.02) * 254
    mask = mask.astype(np.uint8)
    mask[40:60, 30:70] = 255
    for folder, array in (("images", picture(0, 96, 110, 3)), ("masks", mask)):
        (tmp_path / "data" / folder).mkdir(parents=True)
        tifffile.imwrite(tmp_path / "data" / folder / "a.tif", array, photometric="rgb" if array.ndim == 3 else "minisblack")
    source = open_source(tmp_path / "data", ignore=255, **({"instances": True} if kind == "instances" else {}))
    found = []
    for large in (False, True):
        if large:
            monkeypatch.setattr(tiles, "LARGE_PIXELS", 100)
            monkeypatch.setattr(tiles, "BAND_PIXELS", 1000)
            monkeypatch.setattr(object_pairs, "BAND_PIXELS", 700)
            monkeypatch.setattr(CaseStore, "images", lambda *_: pytest.fail("the image was loaded"))
            monkeypatch.setattr(FileSource, "image", lambda *_: pytest.fail("the image was loaded"))
        out = tmp_path / str(large)
        summary = measure_objects(segmenter, source, ["a"], out, ObjectOptions(min_size=2), reporter=Quiet())
        (row,) = csv.DictReader((out / "object_metrics.csv").read_text().splitlines())
        found.append((summary["target_objects"], row))
        assert [each.name for each in out.iterdir()] == ["object_metrics.csv"]
    (kind_of_all, row), (kind_of_parts, of_parts) = found
    assert kind_of_all == kind_of_parts == ("object ids" if kind == "instances" else "connected areas")
    assert int(row["n_target"]) > 3 and int(row["n_prediction"]) > 3
    for name in ("n_target", "n_prediction", *OBJECT_METRICS):
        assert float(of_parts[name]) == pytest.approx(float(row[name]), rel=0.1 if borders else 1e-6), name


def named(*pairs: tuple[str, int]) -> tuple[ClassInfo, ...]:
    return tuple(ClassInfo(index=i, value=value, name=name) for i, (name, value) in enumerate(pairs))


def test_classes_must_agree(tmp_path: Path):
    source = open_source(bright_folder(tmp_path))  # background=0, foreground=255
    for agreeing in (
        named(("background", 0), ("foreground", 1)),  # 0/1 and 0/255 mean the same
        named(("background", 0), ("gland", 255)),  # named in training, not here
    ):
        fitting_source(source, tiny_segmenter(classes=agreeing))
    with pytest.raises(HebbsegError, match=r"--label-map 'background=0;gland=255'"):
        fitting_source(source, tiny_segmenter(classes=named(("background", 0), ("gland", 1))))
    with pytest.raises(HebbsegError, match=r"--label-map 'background=0;a=1;b=2'"):
        fitting_source(source, tiny_segmenter(classes=named(("background", 0), ("a", 1), ("b", 2))))
    relabelled = open_source(tmp_path, label_map="background=0;gland=255")
    fitting_source(relabelled, tiny_segmenter(classes=named(("background", 0), ("gland", 1))))
    with pytest.raises(HebbsegError, match="differ from the model's"):
        fitting_source(relabelled, tiny_segmenter(classes=named(("background", 0), ("nucleus", 255))))
    ignoring = ArraysSource([], channels=3)
    ignoring.classes = named(("background", 0), ("class 1", 1), ("class 255", 255))
    with pytest.raises(HebbsegError, match=r"not annotated, pass --ignore 255"):
        fitting_source(ignoring, tiny_segmenter(classes=named(("background", 0), ("foreground", 1))))
    with pytest.raises(HebbsegError, match="is 2D and the model 3D"):
        fitting_source(source, replace(tiny_segmenter(dims=3, size=None)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "RUN", "unlabelled"], "none of its 1 case has a mask"),
        (["evaluate", "RUN", GLANDS, "--subset", "tets"], "Did you mean 'test'"),
        (["evaluate", "RUN", GLANDS, "--split", "nothing.json"], "no such file"),
        (["evaluate", "RUN", "phantom:glands?n=5&size=32", "--split", "RUN"], "have no mask in"),
        (["evaluate", "RUN", GLANDS, "--split", "RUN", "--subset", "test"], "give one of them"),
        (["evaluate", "RUN", "phantom:atrium?n=2&size=32"], "is 3D and the model 2D"),
        (["evaluate", "nowhere", GLANDS], "no such file"),
    ],
)
def test_mistakes(arguments: list[str], words: str, run_folder: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "unlabelled" / "images" / "a.png", picture(0, 20, 28, 3))
    assert command(monkeypatch, *[str(run_folder) if a == "RUN" else a for a in arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["unlabelled"]
