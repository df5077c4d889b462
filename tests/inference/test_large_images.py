"""Images and volumes that are streamed: the masks are those of whole images, memory and geometry are kept."""

import csv
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
import torch
import zarr
from PIL import Image as Pillow
from scipy.ndimage import gaussian_filter

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io import tiles
from hebbseg.errors import HebbsegError
from hebbseg.inference import areas
from hebbseg.inference.files import find_inputs, plan, predict_files
from hebbseg.inference.object_files import ObjectFiles
from hebbseg.inference.objects import ObjectOptions
from hebbseg.inference.predictor import Predictor
from hebbseg.inference.pyramids import at_level
from hebbseg.inference.sliding_window import predict_streaming
from tests.data.pyramids import write_ome_tiff, write_ome_zarr
from tests.data.trees import picture
from tests.tiny import TWO_CLASSES, tiny_segmenter


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def patch() -> None:
        monkeypatch.setattr(tiles, "LARGE_PIXELS", 100)
        monkeypatch.setattr(tiles, "LARGE_VOXELS", 100)

    return patch


def predicted(segmenter: Predictor, path: Path, out: Path, *, streams: bool, **options: Any) -> Path:
    inputs = at_level(find_inputs([str(path)])[0], **options)
    targets = plan([segmenter], inputs, out)
    assert [target.streamed for target in targets] == [streams]
    outcome = predict_files([segmenter], inputs, targets)
    assert not outcome.failures, outcome.failures
    return outcome.masks[0]


def windowed(**options: Any) -> Predictor:
    return tiny_segmenter(size=None, normalize="zscore", **{"window": (32, 32), **options})


@pytest.mark.parametrize("layout", [{"compression": "jpeg", "tile": (16, 32)}, {"compression": "zlib", "rowsperstrip": 9}])
def test_compressed_tiff(layout: dict[str, Any], tmp_path: Path, small_is_large: Callable[[], None]):
    tifffile.imwrite(tmp_path / "a.tif", picture(0, 70, 90, 3), photometric="rgb", **layout)
    whole = tifffile.imread(predicted(windowed(), tmp_path / "a.tif", tmp_path / "whole", streams=False))
    small_is_large()
    streamed = predicted(windowed(), tmp_path / "a.tif", tmp_path / "streamed", streams=True)
    assert np.array_equal(tifffile.imread(streamed), whole) and len(np.unique(whole)) == 2
    with tifffile.TiffFile(streamed) as file:
        assert file.pages[0].is_tiled and file.pages[0].compression == tifffile.COMPRESSION.ADOBE_DEFLATE


def test_parts_of_wide_images_are_those_of_the_whole(tmp_path: Path):
    segmenter = windowed()
    image = torch.from_numpy(picture(0, 3, 50, 200)).float()
    found = []
    for pixels in (None, 48 * 60):
        classes, calls = np.zeros((50, 200), np.uint8), []
        predict_streaming(
            segmenter.network,
            image.numpy(),
            classes,
            window=32,
            batch=4,
            band_pixels=pixels,
            progress=lambda done, total, calls=calls: calls.append((done, total)),
        )
        assert calls[-1][0] == calls[-1][1] and [c[0] for c in calls] == sorted(c[0] for c in calls)
        found.append((classes, calls[-1][1]))
    (whole, windows), (parts, more) = found
    assert more > windows and np.array_equal(whole, parts) and len(np.unique(whole)) == 2


@pytest.mark.parametrize("ending", ["nii.gz", "nii", "mha"])
@pytest.mark.parametrize("axes", ["zyx", "xyz"])
def test_volumes(ending: str, axes: str, tmp_path: Path, small_is_large: Callable[[], None]):
    volume, path = np.random.default_rng(0).integers(-200, 900, (37, 22, 25)).astype(np.int16), tmp_path / f"a.{ending}"
    if ending == "mha":
        image = sitk.GetImageFromArray(volume)
        image.SetSpacing((0.5, 0.6, 2.0))
        image.SetOrigin((3, -4, 5))
        sitk.WriteImage(image, str(path), useCompression=True)
    else:
        image = nibabel.Nifti1Image(volume, np.diag([-0.5, 0.75, 2.0, 1]))
        image.header.set_slope_inter(2, -10)
        nibabel.save(image, path)
    segmenter = windowed(dims=3, channels=1, window=(16, 16, 16), axes=axes)
    whole = predicted(segmenter, path, tmp_path / "whole", streams=False)
    small_is_large()
    streamed = predicted(segmenter, path, tmp_path / "streamed", streams=True)
    if ending == "mha":
        a, b = (sitk.ReadImage(str(each)) for each in (whole, streamed))
        assert (a.GetOrigin(), a.GetSpacing(), a.GetDirection()) == (b.GetOrigin(), b.GetSpacing(), b.GetDirection())
        values = [sitk.GetArrayFromImage(each) for each in (a, b)]
    else:
        a, b = (nibabel.load(each) for each in (whole, streamed))
        assert np.array_equal(a.affine, b.affine) and np.array_equal(b.affine, image.affine)
        values = [np.asarray(each.dataobj) for each in (a, b)]
    assert np.array_equal(*values) and len(np.unique(values[0])) == 2
    assert not [each for each in (tmp_path / "streamed").iterdir() if each.name.startswith(".")]
    assert (tmp_path / "streamed" / "overlays" / "a.png").is_file()


@pytest.mark.parametrize("borders", [False, True])
@pytest.mark.parametrize(("ending", "orientation"), [("nii.gz", "LPS"), ("mha", None)])
def test_objects_of_streamed_volumes(
    ending: str, orientation: str | None, borders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    noise, path = np.random.default_rng(0).normal(size=(34, 26, 30)), tmp_path / f"a.{ending}"
    volume = (400 * gaussian_filter(noise, 1.5)).astype(np.int16)
    if ending == "mha":
        image = sitk.GetImageFromArray(volume)
        image.SetSpacing((0.5, 0.5, 2.0))
        sitk.WriteImage(image, str(path))
    else:
        nibabel.save(nibabel.Nifti1Image(volume, np.diag([0.5, 0.75, 2.0, 1])), path)
    three = (*TWO_CLASSES, ClassInfo(index=2, value=2, name="other"))
    segmenter = windowed(dims=3, channels=1, window=(16, 16, 16), axes="xyz", orientation=orientation, classes=three)
    if borders:
        segmenter = dataclasses.replace(segmenter, borders=True, classes=TWO_CLASSES)
    found = {}
    for streams in (False, True):
        if streams:
            monkeypatch.setattr(tiles, "LARGE_VOXELS", 100)
            monkeypatch.setattr(tiles, "BAND_PIXELS", 2000)
            monkeypatch.setattr(areas, "LARGEST", 30000 if borders else 2000)
        out = tmp_path / f"out-{streams}"
        files = ObjectFiles(out, ObjectOptions(min_size=5))
        inputs = find_inputs([str(path)])[0]
        targets = plan([segmenter], inputs, out, objects=files)
        assert targets[0].streamed == streams
        assert not predict_files([segmenter], inputs, targets, objects=files).failures
        files.finish()
        written = out / "objects" / path.name
        if ending == "mha":
            labels = sitk.GetArrayFromImage(read := sitk.ReadImage(str(written)))
            assert read.GetSpacing() == (0.5, 0.5, 2.0)
        else:
            labels = np.asarray((read := nibabel.load(written)).dataobj)
            assert np.array_equal(read.affine, nibabel.load(path).affine)
        with (out / "objects.csv").open() as text:
            rows = {int(row["object"]): row for row in csv.DictReader(text)}
        found[streams] = labels, rows
        assert (out / "overlays" / "a.png").is_file() and labels.dtype == np.uint16
    (whole, rows), (labels, rows_of_parts) = found.values()
    assert len(rows) > 10
    if borders:  # the inside is kept as float16
        assert len(rows_of_parts) == pytest.approx(len(rows), rel=0.01) and ((whole > 0) != (labels > 0)).mean() < 0.005
        return
    assert len(rows) == len(rows_of_parts) and np.array_equal(whole, labels)
    for number, row in rows.items():
        assert row.keys() == rows_of_parts[number].keys() and "major_axis_mm" in row
        for name, value in row.items():
            other = rows_of_parts[number][name]
            assert other == value or np.isclose(float(other), float(value), rtol=1e-3, atol=1e-3), (number, name)


@pytest.mark.parametrize("streams", [True, False])
def test_ome_tiff_pyramids_in_and_out(streams: bool, tmp_path: Path, small_is_large: Callable[[], None]):
    image = picture(3, 100, 140, 3)
    path = write_ome_tiff(tmp_path / "slide.ome.tif", image)
    tifffile.imwrite(tmp_path / "half.tif", image[::2, ::2], photometric="rgb")
    expected = tifffile.imread(predicted(windowed(), tmp_path / "half.tif", tmp_path / "half", streams=False))
    if streams:
        small_is_large()
    for options in ({"level": 1}, {"um_per_pixel": 0.9}):
        mask = predicted(windowed(), path, tmp_path / f"out-{next(iter(options))}", streams=streams, **options)
        assert mask.name == "slide.ome.tif"
        with tifffile.TiffFile(mask) as file:
            assert file.is_ome and len(file.series) == 1 and 'PhysicalSizeX="1.0"' in file.ome_metadata
            levels = file.series[0].levels
            assert [level.shape for level in levels] == [(50, 70), (25, 35)]
            first, second = (level.asarray() for level in levels)
        assert np.array_equal(first, expected) and np.array_equal(second, first[1::2, 1::2])


@pytest.mark.parametrize("version", [2, 3])
def test_ome_zarr_pyramids_in_and_out(version: int, tmp_path: Path, small_is_large: Callable[[], None]):
    image = picture(3, 100, 124, 3)  # at most 8 × 8 chunks: the statistics are those of all pixels
    path = write_ome_zarr(tmp_path / "slide.ome.zarr", np.moveaxis(image, -1, 0), version=version)
    tifffile.imwrite(tmp_path / "whole.tif", image, photometric="rgb")
    expected = tifffile.imread(predicted(windowed(), tmp_path / "whole.tif", tmp_path / "whole", streams=False))
    small_is_large()
    mask = predicted(windowed(), path, tmp_path / "out", streams=True)
    group = zarr.open_group(mask, mode="r")
    assert mask.name == "slide.ome.zarr" and group.metadata.zarr_format == version
    ome = group.attrs["ome"] if version == 3 else group.attrs
    entry = ome["multiscales"][0]
    assert [axis["name"] for axis in entry["axes"]] == ["y", "x"] and entry["axes"][0]["unit"] == "micrometer"
    assert [dataset["coordinateTransformations"][0]["scale"] for dataset in entry["datasets"]] == [[0.5] * 2, [1] * 2, [2] * 2]
    arrays = [group[dataset["path"]][...] for dataset in entry["datasets"]]
    assert np.array_equal(arrays[0], expected) and [array.shape for array in arrays] == [(100, 124), (50, 62), (25, 31)]
    again = plan([windowed()], find_inputs([str(path)])[0], tmp_path / "out", overwrite=True)
    assert not predict_files([windowed()], find_inputs([str(path)])[0], again).failures  # replaces the folder
    assert [each.name for each in (tmp_path / "out").glob("*.zarr")] == ["slide.ome.zarr"]


def test_levels_that_do_not_exist(tmp_path: Path):
    inputs = find_inputs([str(write_ome_tiff(tmp_path / "slide.ome.tif", picture(0, 64, 96, 3)))])[0]
    assert at_level(inputs, 0) == inputs
    with pytest.raises(DataError, match=r"slide\.ome\.tif: has no pyramid level 5; its levels are 0 \(64×96\), 1 \(32×48\)"):
        at_level(inputs, 5)
    with pytest.raises(DataError, match=r"no level near 8 µm per pixel; its levels are 0 \(64×96, 0.5 µm\); 1 \(32×48, 1 µm\)"):
        at_level(inputs, um_per_pixel=8)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(HebbsegError, match=r"--um-per-pixel .*: allowed are numbers above 0"):
            at_level(inputs, um_per_pixel=wrong)
    with pytest.raises(HebbsegError, match="Pass one of the two"):
        at_level(inputs, 1, 1.0)
    write_ome_tiff(tmp_path / "plain.ome.tif", picture(0, 64, 96, 3), micrometers=None)
    with pytest.raises(
        DataError, match=r"plain\.ome\.tif: states no pixel size\. Choose the level of the pyramid with --level"
    ):
        at_level(find_inputs([str(tmp_path / "plain.ome.tif")])[0], um_per_pixel=1)


def test_a_damaged_tile_fails_its_image_only(tmp_path: Path, small_is_large: Callable[[], None]):
    small_is_large()
    for name in ("a", "b"):
        tifffile.imwrite(tmp_path / f"{name}.tif", picture(0, 64, 64, 3), photometric="rgb", tile=(32, 32), compression="zlib")
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        offset, count = file.pages[0].dataoffsets[3], file.pages[0].databytecounts[3]
    data = bytearray((tmp_path / "a.tif").read_bytes())
    data[offset : offset + count] = b"\xff" * count
    (tmp_path / "a.tif").write_bytes(data)
    inputs = find_inputs([str(tmp_path)])[0]
    outcome = predict_files([windowed()], inputs, plan([windowed()], inputs, tmp_path / "out"))
    assert [mask.name for mask in outcome.masks] == ["b.tif"]
    assert len(outcome.failures) == 1 and "a.tif: tile 1, 1 (row, column) is damaged" in outcome.failures[0]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["b.tif", "overlays", "uncertainty"]


@pytest.mark.parametrize("borders", [False, True])
def test_objects_of_streamed_images(borders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    segmenter = windowed(classes=(*TWO_CLASSES, ClassInfo(index=2, value=2, name="other")))
    if borders:
        segmenter = dataclasses.replace(segmenter, borders=True, classes=TWO_CLASSES)
    path = write_ome_tiff(tmp_path / "slide.ome.tif", picture(3, 48, 64, 3))
    found = {}
    for streams in (False, True):
        if streams:
            monkeypatch.setattr(tiles, "LARGE_PIXELS", 100)
            monkeypatch.setattr(tiles, "BAND_PIXELS", 500)
            monkeypatch.setattr(areas, "LARGEST", 5000 if borders else 200)
        out = tmp_path / f"out-{streams}"
        files = ObjectFiles(out, ObjectOptions(min_size=3), outlines=True)
        inputs = find_inputs([str(path)])[0]
        targets = plan([segmenter], inputs, out, objects=files)
        assert targets[0].streamed == streams
        assert not predict_files([segmenter], inputs, targets, objects=files).failures
        files.finish()
        with tifffile.TiffFile(out / "objects" / "slide.ome.tif") as file:
            labels = [level.asarray() for level in file.series[0].levels]
        with (out / "objects.csv").open() as text:
            rows = {int(row["object"]): row for row in csv.DictReader(text)}
        features = json.loads((out / "geojson" / "slide.geojson").read_text())["features"]
        outlines = {int(each["properties"]["name"]): area(each["geometry"]) for each in features}
        found[streams] = labels, rows, outlines, np.asarray(Pillow.open(out / "overlays" / "slide.png"))
    (whole, rows, outlines, picture_of_all), (labels, rows_of_parts, outlines_of_parts, picture_of_parts) = found.values()
    assert [each.shape for each in labels] == [(48, 64), (24, 32), (12, 16)]
    assert np.array_equal(whole[0] > 0, labels[0] > 0) and len(rows) == len(rows_of_parts) > 10
    if borders:
        return
    larger = [number for number, row in rows_of_parts.items() if row.get("perimeter_px") == ""]
    assert larger and all(rows_of_parts[number]["major_axis_mm"] for number in larger)
    assert all(np.array_equal(*pair) for pair in zip(labels, whole, strict=True))
    assert np.array_equal(picture_of_all, picture_of_parts)
    assert outlines == outlines_of_parts and outlines == {n: int(row["area_px"]) for n, row in rows.items()}
    for number, row in rows.items():
        for name, value in row.items():
            other = rows_of_parts[number][name]
            assert other == value or not other or np.isclose(float(other), float(value)), (number, name)


def area(geometry: dict[str, Any]) -> int:
    """Return the area of a polygon by the shoelace formula."""
    polygons = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
    total = 0
    for ring in (np.array(ring) for polygon in polygons for ring in polygon):
        total += (ring[:-1, 0] * ring[1:, 1] - ring[1:, 0] * ring[:-1, 1]).sum()
    return abs(int(total)) // 2
