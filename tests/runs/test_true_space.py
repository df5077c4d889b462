"""Runs on volumes of different spacing and orientation: planned, trained, recorded, evaluated, continued."""

import json
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from nibabel.orientations import axcodes2ornt, ornt_transform
from scipy.ndimage import zoom

from hebbseg.data.sources import open_source
from hebbseg.errors import HebbsegError
from hebbseg.runs.evaluate import fitting_source
from hebbseg.segmenter import Segmenter
from tests.data.io.test_orientation import affine_of
from tests.tiny import bright_folder, command

TINY: dict[str, Any] = {
    "features": (4, 8), "updates": 2, "pretrain_epochs": 1, "pretrain_max_batches": 1, "labelled_batch": 2,
    "unlabelled_batch": 2, "pretrain_batch": 2, "test": "0.4", "patch": (8, 8, 8), "quiet": True, "accelerator": "cpu",
}  # fmt: skip
VARIED = {"a": ("RAS", 1.0), "b": ("LPS", 2.0), "c": ("SPL", 1.0), "d": ("RAS", 1.25), "e": ("AIR", 1.0)}


def volume(seed: int, spacing: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright box, RAS, of the same size in mm at every spacing."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((16, 12, 14), np.uint8)
    mask[4 + seed : 12, 3:9, 5:11] = 1
    image = rng.normal(100, 10, mask.shape) + 80 * mask
    factors = [1 / step for step in spacing]
    return zoom(image, factors, order=1).astype(np.float32), zoom(mask, factors, order=0)


def volumes_folder(root: Path, varied: dict[str, tuple[str, float]], suffix: str = ".nii.gz") -> Path:
    """Write images and masks; the spacing of the last axis is given, that of the others 1 mm."""
    for seed, (name, (code, step)) in enumerate(varied.items()):
        spacing = (1.0, 1.0, step)
        for folder, array in zip(("images", "masks"), volume(seed, spacing), strict=True):
            turned = nibabel.Nifti1Image(array, affine_of("RAS", spacing))
            turned = turned.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(code)))
            turned.header.set_xyzt_units("mm")
            (root / folder).mkdir(parents=True, exist_ok=True)
            nibabel.save(turned, root / folder / f"{name}{suffix}")
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return volumes_folder(tmp_path_factory.mktemp("varied"), VARIED)


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    Segmenter.train(data, data.parent / "run", **TINY)
    return data.parent / "run"


def test_a_source_has_every_volume_in_the_same_orientation(data: Path) -> None:
    source = open_source(data)
    assert source.orientation == "RAS"
    for case in source.cases:
        image = nibabel.as_closest_canonical(nibabel.load(case.image[0]))
        mask = nibabel.as_closest_canonical(nibabel.load(case.mask[0]))
        assert np.array_equal(source.image(case)[0], np.asarray(image.dataobj))
        assert np.array_equal(source.mask(case), np.asarray(mask.dataobj))
        assert case.spacing_mm == tuple(float(step) for step in image.header.get_zooms())
        header = source.headers[case.id]
        assert header.shape == image.shape and header.spacing_mm == case.spacing_mm


def test_volumes_of_one_orientation_stay_as_they_are(tmp_path: Path) -> None:
    source = open_source(volumes_folder(tmp_path, {"a": ("LPS", 1.0), "b": ("LPS", 1.0)}))
    assert source.orientation == "LPS"
    for case in source.cases:
        assert np.array_equal(source.image(case)[0], np.asarray(nibabel.load(case.image[0]).dataobj))


def test_a_run_records_spacing_and_orientation(run: Path) -> None:
    plan = json.loads((run / "run.json").read_text())["plan"]
    assert plan["resampled_to"] == [1.0, 1.0, 1.0] and "factor of 2" in plan["choices"]["spacing"]["reason"]
    loaded = Segmenter.load(run)
    assert loaded.preprocessing.spacing == (1.0, 1.0, 1.0) and loaded.orientation == "RAS"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["unit"] == "mm" and summary["grid"] == "original" and summary["n"] == 2


def test_masks_are_compared_in_the_voxels_of_their_files(run: Path, data: Path, tmp_path: Path, monkeypatch) -> None:
    assert command(monkeypatch, "evaluate", run, data, "-o", tmp_path / "one") == 0
    rows = (tmp_path / "one" / "metrics.csv").read_text().splitlines()[1:]
    targets = {row.split(",")[0]: int(float(row.split(",")[-2])) for row in rows}
    assert targets == {name: int(nibabel.load(data / "masks" / f"{name}.nii.gz").get_fdata().sum()) for name in VARIED}


def test_metrics_do_not_depend_on_the_orientation_of_the_files(run: Path, tmp_path: Path, monkeypatch) -> None:
    for name, codes in (("ras", ("RAS", "RAS")), ("mixed", ("PIR", "LAS"))):
        varied = {"x": (codes[0], 2.0), "y": (codes[1], 1.0)}
        assert command(monkeypatch, "evaluate", run, volumes_folder(tmp_path / name, varied), "-o", tmp_path / f"m-{name}") == 0
    ours, theirs = (json.loads((tmp_path / f"m-{name}" / "summary.json").read_text()) for name in ("ras", "mixed"))
    assert ours["dice"] == theirs["dice"] and ours["hd95"]["mean"] == pytest.approx(theirs["hd95"]["mean"])


def test_a_run_that_continues_another_has_its_spacing_and_orientation(run: Path, tmp_path: Path) -> None:
    more = volumes_folder(tmp_path / "more", dict.fromkeys((*VARIED, "f"), ("LPS", 2.0)))
    options = {name: value for name, value in TINY.items() if name not in ("features", "test", "patch")}
    continued = Segmenter.train(more, tmp_path / "run2", from_run=run, **options)
    assert continued.preprocessing.spacing == (1.0, 1.0, 1.0) and continued.orientation == "RAS"
    with pytest.raises(HebbsegError, match=r"spacing=2\.0 and from_run"):
        Segmenter.train(more, tmp_path / "run3", from_run=run, spacing="2.0", **options)


def test_a_model_without_orientation_reads_volumes_as_stored(run: Path, data: Path) -> None:
    former = Segmenter(**{**vars(Segmenter.load(run)), "orientation": None})
    source = fitting_source(open_source(data), former)
    for case in source.cases:
        assert np.array_equal(source.image(case)[0], np.asarray(nibabel.load(case.image[0]).dataobj))


def test_the_plan_and_the_check_say_what_is_done(data: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "plan", data, "--no-timing") == 0
    assert "all images are resampled" in capsys.readouterr().out
    assert command(monkeypatch, "check", data) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "turned to RAS: 2 × RAS, 1 × LPS, 1 × SPL, 1 × AIR" in said


def test_thick_slices_get_an_anisotropic_unet(tmp_path: Path) -> None:
    flat = volumes_folder(tmp_path / "flat", dict.fromkeys("abcde", ("RAS", 3.5)))
    options = {name: value for name, value in TINY.items() if name != "patch"}
    for init in ("hebbian", "vae"):
        trained = Segmenter.train(flat, tmp_path / init, init=init, **options)
        assert trained.preprocessing.spacing is None
        assert trained.network_options["options"]["strides"] == [[2, 2, 1]]
        assert Segmenter.load(tmp_path / init).network.kernels == ((3, 3, 1), (3, 3, 3))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"spacing": "1,1"}, "2 numbers, but the images of varied.* are 3D"),
        ({"spacing": "1", "size": "16x16x16"}, "Choose one of the two"),
        ({"spacing": "30"}, r"would leave .* pixels of 1,1,.* mm\. Spacings are in mm"),
        ({"spacing": "0.001"}, r"images/a.nii.gz: resampled from .* more than HEBBSEG_MAX_PIXELS allows"),
    ],
)
def test_a_spacing_that_does_not_fit_is_refused(options: dict, word: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match=word):
        Segmenter.train(data, tmp_path / "run", **TINY, **options)
    assert not (tmp_path / "run").exists()


def test_a_spacing_for_pictures_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match=r"6 of 6 images have no spacing in their files.*pass spacing native"):
        Segmenter.train(bright_folder(tmp_path / "data"), tmp_path / "run", spacing="0.5", quiet=True)
