"""Objects on the command line: the how-to is executed, and mistakes are explained."""

import csv
import json
import re
import shlex
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image as Pillow

from hebbseg.data.sources import open_source
from hebbseg.data.store import CaseStore
from hebbseg.inference.predictor import Predictor
from tests.data.trees import picture, save
from tests.inference.test_outlines import by_matplotlib
from tests.tiny import TINY, command, tiny_segmenter

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "objects.md"


def touching(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image and its object ids: pairs of bright squares that touch."""
    ids = np.zeros((32, 40), np.uint8)
    top = 2 + seed % 4
    ids[top : top + 9, 3:12], ids[top : top + 9, 12:20], ids[20:29, 24 : 34 + seed % 3] = 1, 2, 3
    image = picture(seed, 32, 40, 3) // 4
    image[ids > 0] += 150
    return image, ids


@pytest.fixture
def nuclei(tmp_path: Path) -> Path:
    for seed, name in enumerate("abcdefgh"):
        image, ids = touching(seed)
        save(tmp_path / "nuclei" / "images" / f"{name}.png", image)
        save(tmp_path / "nuclei" / "masks" / f"{name}.png", ids)
        save(tmp_path / "new_images" / f"{name}.png", image)
    return tmp_path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_how_to(nuclei: Path, monkeypatch, capsys):
    monkeypatch.chdir(nuclei)
    text = PAGE.read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for line in block.splitlines()]
    trainings, others = ([line for line in lines if ("train" in line.split()) == first] for first in (True, False))
    assert len(trainings) == 1 and len(others) == 3
    longer = [*TINY, "--init", "random", "--updates", "25"]
    assert command(monkeypatch, *shlex.split(trainings[0])[1:], *longer) == 0
    for line in others:
        assert command(monkeypatch, *shlex.split(line)[1:]) == 0, line
    assert "object Dice" in capsys.readouterr().out

    # Masks are as without --objects, and those of the border model have two values.
    mask = np.asarray(Pillow.open("out/a.png"))
    segmenter = Predictor.load("run")
    assert segmenter.borders and len(segmenter.classes) == 2 and segmenter.network.out_channels == 3
    assert np.array_equal(mask, segmenter.predict("new_images/a.png"))
    rows = rows_of(Path("out/objects.csv"))
    for name in "abcdefgh":
        labels = tifffile.imread(f"out/objects/{name}.tif")
        sizes = [int(row["area_px"]) for row in rows if row["case"] == name]
        assert labels.dtype == np.uint16 and np.bincount(labels.ravel(), minlength=1)[1:].tolist() == sizes
        assert all(size >= 20 for size in sizes) and (labels > 0).sum() == sum(sizes)
        features = json.loads(Path(f"outlines/geojson/{name}.geojson").read_text(encoding="utf-8"))["features"]
        assert len(features) == len(sizes)
        for number, feature in enumerate(features, start=1):
            rings = [np.array(ring) for ring in feature["geometry"]["coordinates"]]
            assert np.array_equal(by_matplotlib(rings, labels.shape), labels == number)
    assert rows, "the training was too short to predict anything"

    # The test of the run itself and the evaluation agree; metrics of objects are of the ids.
    found, own = (json.loads(Path(folder, "summary.json").read_text(encoding="utf-8")) for folder in ("evaluation", "run"))
    assert found["dice"] == own["dice"]
    assert found["objects"]["target_objects"] == "object ids" and found["objects"]["method"] == "components"
    table = rows_of(Path("evaluation/object_metrics.csv"))
    assert len(table) == found["n"] and all(row["n_target"] == "3" for row in table)
    assert np.isclose(found["objects"]["aji"]["mean"], np.mean([float(row["aji"]) for row in table]))
    block = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    names: dict = {}
    exec(block[1], names)
    assert names["objects"].labels.shape == (32, 40)


def test_the_training_masks_have_a_border_and_the_others_do_not(nuclei: Path):
    source = open_source(nuclei / "nuclei", instances=True)
    from hebbseg.data.preprocessing import Preprocessing

    preprocessing = Preprocessing.for_source(source, size=(32, 40))
    plain, bordered = (
        CaseStore(source=source, preprocessing=preprocessing, images=["a"], masks=["a"], borders=borders)
        for borders in (False, True)
    )
    mask = bordered.mask("a")
    assert mask.equal(plain.mask("a")) and plain.masks(["a"])[0].equal(mask.long())
    trained = bordered.restricted_to(source, images=["a"], masks=["a"]).masks(["a"])[0]
    assert trained.unique().tolist() == [0, 1, 2] and trained.clamp(max=1).equal(mask.long())
    assert (trained[2:11, 10:14] == 2).all() and (trained[4:9, 5:10] == 1).all()  # on both sides of where they touch


def test_volumes_keep_their_geometry(tmp_path: Path, monkeypatch):
    tiny_segmenter(dims=3, channels=1, size=None, normalize="zscore", window=(8, 8, 8), axes="xyz").save(tmp_path / "m")
    volume = np.random.default_rng(0).normal(size=(9, 12, 15)).astype(np.float32)
    affine = np.diag([0.7, 0.7, 2.5, 1])
    nibabel.save(nibabel.Nifti1Image(volume, affine), tmp_path / "a.nii.gz")
    arguments = [tmp_path / "m", tmp_path / "a.nii.gz", "-o", tmp_path / "out", "--objects", "watershed", "--no-fill-holes"]
    assert command(monkeypatch, "predict", *arguments) == 0
    written = nibabel.load(tmp_path / "out" / "objects" / "a.nii.gz")
    assert np.allclose(written.affine, affine) and written.get_data_dtype() == np.uint16
    labels = np.asarray(written.dataobj)
    mask = np.asarray(nibabel.load(tmp_path / "out" / "a.nii.gz").dataobj)
    assert np.array_equal(labels > 0, mask > 0)
    rows = rows_of(tmp_path / "out" / "objects.csv")
    assert len(rows) == labels.max() and np.isclose(float(rows[0]["volume_mm3"]), int(rows[0]["volume_px"]) * 0.7 * 0.7 * 2.5)
    assert command(monkeypatch, "predict", *arguments[:3], tmp_path / "other", "--geojson") == 2


def test_outlines_alone_are_those_of_the_mask(tmp_path: Path, monkeypatch):
    tiny_segmenter().save(tmp_path / "m")
    image = save(tmp_path / "a.png", picture(0, 20, 28, 3))
    assert command(monkeypatch, "predict", tmp_path / "m", image, "-o", tmp_path / "out", "--geojson") == 0
    assert not (tmp_path / "out" / "objects.csv").exists() and not (tmp_path / "out" / "objects").exists()
    features = json.loads((tmp_path / "out" / "geojson" / "a.geojson").read_text(encoding="utf-8"))["features"]
    rings = [np.array(ring) for feature in features for ring in feature["geometry"]["coordinates"]]
    mask = np.asarray(Pillow.open(tmp_path / "out" / "a.png")) > 0
    assert np.array_equal(by_matplotlib(rings, mask.shape), mask) and mask.any() and not mask.all()
    assert {feature["properties"]["objectType"] for feature in features} == {"annotation"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "m", "new_images", "-o", "out", "--objects", "watersheds"], "Did you mean 'watershed'"),
        (["predict", "m", "new_images", "-o", "out", "--min-size", "9"], "--min-size applies to objects"),
        (["predict", "m", "new_images", "-o", "out", "--no-fill-holes"], "--fill-holes applies to objects"),
        (["predict", "m", "new_images", "-o", "out", "--objects", "components", "--min-size", "-3"], "--min-size -3"),
        (
            ["predict", "m", "new_images", "-o", "out", "--objects", "components", "--min-size", "9999"],
            "is larger than",
        ),
        (["evaluate", "m", "nuclei", "--instances", "--objects", "component"], "Did you mean 'components'"),
        (
            ["train", "nuclei", "--no-instances", "--borders", "-o", "out", *TINY, "--init", "random"],
            "one class of",
        ),
    ],
)
def test_mistakes(arguments: list[str], words: str, nuclei: Path, monkeypatch, capsys):
    monkeypatch.chdir(nuclei)
    tiny_segmenter().save("m")
    assert command(monkeypatch, *arguments) == 2
    err = capsys.readouterr().err
    assert words in " ".join(err.split()) and "Traceback" not in err


def test_existing_tables_are_kept_and_models_of_an_ensemble_agree(nuclei: Path, monkeypatch, capsys):
    monkeypatch.chdir(nuclei)
    tiny_segmenter().save("m")
    Path("out").mkdir()
    Path("out/objects.csv").write_text("counted by hand")
    arguments = ["predict", "m", "new_images/a.png", "-o", "out", "--objects", "components"]
    assert command(monkeypatch, *arguments) == 2
    assert "objects.csv" in capsys.readouterr().err and Path("out/objects.csv").read_text() == "counted by hand"
    assert command(monkeypatch, *arguments, "--overwrite") == 0
    with_borders = tiny_segmenter(classes=Predictor.load("m").classes, borders=True)
    with_borders.network_options["out_channels"] = 3
    from hebbseg.networks.unet import UNet

    object.__setattr__(with_borders, "network", UNet(**with_borders.network_options, seed=0).eval())
    with_borders.save("b")
    assert command(monkeypatch, *arguments, "--overwrite", "--with", "b") == 2
    assert "differ in learned borders" in capsys.readouterr().err
