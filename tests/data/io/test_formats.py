"""Every format there and back: pixels, channels, spacing, geometry, and the values the user had."""

from pathlib import Path

import h5py
import imagecodecs
import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from PIL import Image as Pillow

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.formats import (
    FORMATS,
    mask_suffix,
    read_header,
    read_image,
    read_labels,
    stem_of,
    suffix_of,
    write_mask,
)
from hebbseg.errors import HebbsegError

BINARY = (ClassInfo(index=0, value=0, name="background"), ClassInfo(index=1, value=255, name="gland"))
GAPS = (*BINARY[:1], ClassInfo(index=1, value=7, name="a"), ClassInfo(index=2, value=300, name="b"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def picture(rng: np.random.Generator, *shape: int, dtype: type = np.uint8) -> np.ndarray:
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def agree(path: Path) -> np.ndarray:
    """The image, after checking that its header says the same before decoding."""
    image, header = read_image(path), read_header(path)
    assert (header.channels, *header.shape) == image.array.shape
    assert header.spacing_mm == (None if image.spacing_mm is None else pytest.approx(image.spacing_mm))
    assert header.axes == image.axes
    return image.array


# BMP has no grayscale with opacity.
@pytest.mark.parametrize(
    ("suffix", "mode"),
    [(".png", "LA"), *((suffix, mode) for suffix in (".png", ".bmp") for mode in ("L", "RGB", "RGBA", "1", "P"))],
)
def test_pictures_of_every_mode_read_as_pillow_shows_them(tmp_path: Path, rng: np.random.Generator, suffix: str, mode: str):
    original = Pillow.fromarray(picture(rng, 13, 17, 3)).convert(mode)
    path = tmp_path / f"a{suffix}"
    original.save(path)
    grey = mode in ("L", "LA", "1")
    expected = np.asarray(original.convert("L" if grey else "RGB"))
    expected = expected[None] if grey else np.moveaxis(expected, -1, 0)
    array = agree(path)
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, expected)


def test_grey_palette_is_one_channel(tmp_path: Path, rng: np.random.Generator):
    values = picture(rng, 9, 8)
    indexed = Pillow.fromarray(values)
    indexed.putpalette([255 - i for i in range(256) for _ in range(3)])
    indexed.save(tmp_path / "a.png")
    np.testing.assert_array_equal(agree(tmp_path / "a.png")[0], 255 - values)


def test_16_bit_png_keeps_its_16_bits(tmp_path: Path, rng: np.random.Generator):
    grey, colour = picture(rng, 9, 8, dtype=np.uint16), picture(rng, 9, 8, 3, dtype=np.uint16)
    Pillow.fromarray(grey).save(tmp_path / "grey.png")
    (tmp_path / "colour.png").write_bytes(imagecodecs.png_encode(colour))
    np.testing.assert_array_equal(agree(tmp_path / "grey.png")[0], grey)
    np.testing.assert_array_equal(agree(tmp_path / "colour.png"), np.moveaxis(colour, -1, 0))


@pytest.mark.parametrize("channels", [2, 4])
def test_16_bit_png_with_opacity_keeps_its_16_bits(tmp_path: Path, rng: np.random.Generator, channels: int):
    pixels = picture(rng, 9, 8, channels, dtype=np.uint16)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(pixels))
    np.testing.assert_array_equal(agree(tmp_path / "a.png"), np.moveaxis(pixels[..., :-1], -1, 0))
    assert read_header(tmp_path / "a.png").opacity
    if channels == 2:
        np.testing.assert_array_equal(read_labels(tmp_path / "a.png").values, pixels[..., 0])


def test_photographs_are_turned_as_their_exif_says(tmp_path: Path):
    upright = np.zeros((40, 20), np.uint8)
    upright[:8] = 255
    exif = Pillow.Exif()
    exif[0x0112] = 6
    Pillow.fromarray(np.rot90(upright)).save(tmp_path / "a.jpg", exif=exif, quality=100)
    array = agree(tmp_path / "a.jpg")
    assert array.shape == (1, 40, 20)
    assert array[0, :6].mean() > 240
    assert array[0, 12:].mean() < 15


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_tiff_pages_are_slices_and_samples_are_channels(tmp_path: Path, rng: np.random.Generator, dtype: type):
    volume = picture(rng, 5, 20, 30).astype(dtype)
    tifffile.imwrite(tmp_path / "volume.tif", volume, photometric="minisblack")
    tifffile.imwrite(tmp_path / "plane.tif", volume[0])
    tifffile.imwrite(tmp_path / "rgb.tif", np.moveaxis(volume[:3], 0, -1), photometric="rgb")
    tifffile.imwrite(tmp_path / "hyper.tif", volume[:, None, ...].repeat(2, 1), imagej=True, metadata={"axes": "ZCYX"})
    np.testing.assert_array_equal(agree(tmp_path / "volume.tif"), volume[None])
    np.testing.assert_array_equal(agree(tmp_path / "plane.tif"), volume[:1])
    np.testing.assert_array_equal(agree(tmp_path / "rgb.tif"), volume[:3])
    np.testing.assert_array_equal(agree(tmp_path / "hyper.tif"), np.stack([volume, volume]))
    assert agree(tmp_path / "volume.tif").dtype == dtype


def test_tiff_of_pillow_with_several_frames_is_a_volume(tmp_path: Path, rng: np.random.Generator):
    volume = picture(rng, 4, 11, 12)
    first, *rest = [Pillow.fromarray(plane) for plane in volume]
    first.save(tmp_path / "a.tif", save_all=True, append_images=rest)
    np.testing.assert_array_equal(agree(tmp_path / "a.tif"), volume[None])


def test_tiff_opacity_white_is_zero_and_palette(tmp_path: Path, rng: np.random.Generator):
    colour = picture(rng, 9, 8, 4)
    tifffile.imwrite(tmp_path / "rgba.tif", colour, photometric="rgb", extrasamples=["unassalpha"])
    np.testing.assert_array_equal(agree(tmp_path / "rgba.tif"), np.moveaxis(colour[..., :3], -1, 0))
    assert read_header(tmp_path / "rgba.tif").opacity
    tifffile.imwrite(tmp_path / "white.tif", colour[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(agree(tmp_path / "white.tif")[0], 255 - colour[..., 0])
    indexed = Pillow.fromarray(colour[..., :3]).quantize(8)
    indexed.save(tmp_path / "p.tif")
    np.testing.assert_array_equal(agree(tmp_path / "p.tif"), np.moveaxis(np.asarray(indexed.convert("RGB")), -1, 0))


def test_tiff_keeps_imagej_and_ome_spacing(tmp_path: Path, rng: np.random.Generator):
    volume, mask = picture(rng, 4, 10, 12), np.zeros((4, 10, 12), np.uint8)
    mask[1:3, 2:5, 3:9] = 1
    tifffile.imwrite(
        tmp_path / "ij.tif",
        volume,
        imagej=True,
        resolution=(2, 4),
        metadata={"axes": "ZYX", "spacing": 3.0, "unit": "um"},
    )
    sizes = {f"PhysicalSize{axis}": size for axis, size in zip("XYZ", (0.5, 0.25, 3.0))}
    units = {f"PhysicalSize{axis}Unit": "µm" for axis in "XYZ"}
    tifffile.imwrite(tmp_path / "o.ome.tif", volume, photometric="minisblack", metadata={"axes": "ZYX", **sizes, **units})
    for name in ("ij.tif", "o.ome.tif"):
        image = read_image(tmp_path / name)
        assert image.spacing_mm == pytest.approx((0.003, 0.00025, 0.0005))
        written = write_mask(tmp_path / "out" / name, mask, image, BINARY)
        assert written.name == name
        back = read_image(written)
        assert back.spacing_mm == pytest.approx(image.spacing_mm)
        np.testing.assert_array_equal(back.array[0], mask * 255)
        assert len(tifffile.TiffFile(written).pages) == 4


def test_tiff_pages_of_different_sizes_are_refused(tmp_path: Path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        writer.write(np.zeros((8, 9), np.uint8))
        writer.write(np.zeros((4, 5), np.uint8))
    with pytest.raises(DataError, match=r"a\.tif: 2 images of different shapes.*Export"):
        read_image(tmp_path / "a.tif")


def oblique() -> np.ndarray:
    affine = np.diag([0.7, 0.8, 2.5, 1.0])
    affine[:3, :3] = np.array([[0.96, -0.28, 0], [0.28, 0.96, 0], [0, 0, -1]]) @ affine[:3, :3]
    affine[:3, 3] = (-12.5, 30.25, 7)
    return affine


@pytest.mark.parametrize("shape", [(6, 7, 5), (6, 7, 1), (6, 7), (6, 7, 1, 1)])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nifti_mask_has_the_geometry_of_its_image(tmp_path: Path, rng: np.random.Generator, shape: tuple, suffix: str):
    volume = nibabel.Nifti1Image(rng.normal(size=shape).astype(np.float32), oblique())
    volume.set_qform(oblique(), code=1)
    volume.set_sform(oblique(), code=2)
    volume.header.set_xyzt_units("mm", "sec")
    nibabel.save(volume, tmp_path / f"scan.1{suffix}")
    array = agree(tmp_path / f"scan.1{suffix}")
    spatial = shape if shape[2:] == (5,) else shape[:2]
    assert array.shape == (1, *spatial)
    np.testing.assert_array_equal(array.reshape(shape), volume.get_fdata(dtype=np.float32))
    image = read_image(tmp_path / f"scan.1{suffix}")
    assert image.spacing_mm == pytest.approx((0.7, 0.8, 2.5)[: len(spatial)])
    indices = rng.integers(0, 3, spatial).astype(np.uint8)
    written = write_mask(tmp_path / "masks" / "scan.1", indices, image, GAPS)
    assert written.name == f"scan.1{suffix}"
    back = nibabel.load(written)
    assert back.shape == shape[:3]
    np.testing.assert_array_equal(back.affine, volume.affine)
    assert (int(back.header["qform_code"]), int(back.header["sform_code"])) == (1, 2)
    assert back.header.get_xyzt_units()[0] == "mm"
    assert back.get_data_dtype() == np.uint16
    np.testing.assert_array_equal(np.asarray(back.dataobj).reshape(spatial), np.array([0, 7, 300])[indices])


def test_nifti_channels_and_scaling(tmp_path: Path, rng: np.random.Generator):
    values = rng.integers(0, 100, (6, 7, 5, 2)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "a.nii.gz")
    np.testing.assert_array_equal(agree(tmp_path / "a.nii.gz"), np.moveaxis(values, -1, 0))
    assert agree(tmp_path / "a.nii.gz").dtype == np.int16
    scaled = nibabel.Nifti1Image(values, np.eye(4))
    scaled.header.set_slope_inter(2, -5)
    nibabel.save(scaled, tmp_path / "b.nii.gz")
    expected = np.moveaxis(nibabel.load(tmp_path / "b.nii.gz").get_fdata(), -1, 0)
    np.testing.assert_allclose(agree(tmp_path / "b.nii.gz"), expected)


@pytest.mark.parametrize("suffix", [".nrrd", ".mha", ".mhd", ".nhdr"])
@pytest.mark.parametrize("shape", [(4, 6, 7), (6, 7), (1, 6, 7)])
def test_itk_mask_has_the_geometry_of_its_image(tmp_path: Path, rng: np.random.Generator, suffix: str, shape: tuple):
    volume = sitk.GetImageFromArray(rng.integers(-500, 500, shape).astype(np.int16))
    dims = len(shape)
    volume.SetSpacing((0.5, 0.75, 3.0)[:dims])
    volume.SetOrigin((1.5, -2.5, 9.0)[:dims])
    direction = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])[:dims, :dims]
    volume.SetDirection(direction.ravel().tolist())
    sitk.WriteImage(volume, str(tmp_path / f"a{suffix}"))
    spatial = shape if shape[0] == 4 else shape[-2:]
    array = agree(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(array, sitk.GetArrayFromImage(volume).reshape(1, *spatial))
    image = read_image(tmp_path / f"a{suffix}")
    assert image.spacing_mm == (3.0, 0.75, 0.5)[-len(spatial) :]
    indices = rng.integers(0, 3, spatial).astype(np.uint8)
    written = write_mask(tmp_path / "m" / "a", indices, image, GAPS)
    assert written.name == {".mhd": "a.mha", ".nhdr": "a.nrrd"}.get(suffix, f"a{suffix}")
    back = sitk.ReadImage(str(written))
    for fact in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection"):
        assert getattr(back, fact)() == getattr(volume, fact)(), fact
    np.testing.assert_array_equal(sitk.GetArrayFromImage(back).reshape(spatial), np.array([0, 7, 300])[indices])


def test_itk_components_are_channels(tmp_path: Path, rng: np.random.Generator):
    values = picture(rng, 4, 6, 7, 3)
    sitk.WriteImage(sitk.GetImageFromArray(values, isVector=True), str(tmp_path / "a.nrrd"))
    np.testing.assert_array_equal(agree(tmp_path / "a.nrrd"), np.moveaxis(values, -1, 0))


def write_dicom_series(folder: Path, volume: np.ndarray, spacing_mm: tuple[float, float, float]) -> None:
    """One file per slice of (z, y, x), in shuffled file order, as scanners export them."""
    folder.mkdir(parents=True)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for index, plane in enumerate(volume):
        image = sitk.GetImageFromArray(plane)
        image.SetSpacing(spacing_mm[:0:-1])
        tags = {
            "0008|0060": "MR",
            "0020|000e": "1.2.826.0.1.3680043.2.1125.1",
            "0020|000d": "1.2.826.0.1.3680043.2.1125.2",
            "0008|0018": f"1.2.826.0.1.3680043.2.1125.3.{index + 1}",
            "0020|0013": str(index + 1),
            "0020|0032": f"0\\0\\{index * spacing_mm[0]}",
            "0020|0037": "1\\0\\0\\0\\1\\0",
        }
        for tag, value in tags.items():
            image.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"slice{(index * 7) % len(volume):02d}.dcm"))
        writer.Execute(image)


def test_dicom_series_is_a_volume_and_its_mask_a_nifti_in_the_same_place(tmp_path: Path, rng: np.random.Generator):
    volume = rng.integers(0, 2000, (5, 8, 9)).astype(np.uint16)
    write_dicom_series(tmp_path / "series", volume, (2.5, 0.75, 0.5))
    np.testing.assert_array_equal(agree(tmp_path / "series")[0], volume)
    image = read_image(tmp_path / "series")
    assert image.spacing_mm == pytest.approx((2.5, 0.75, 0.5))
    written = write_mask(tmp_path / "out" / "series", (volume > 1000).astype(np.uint8), image, BINARY)
    assert written.name == "series.nii.gz"
    back = sitk.ReadImage(str(written))
    assert back.GetSpacing() == pytest.approx((0.5, 0.75, 2.5))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(back), (volume > 1000) * 255)


def test_unreadable_dicom_names_the_slice(tmp_path: Path, rng: np.random.Generator):
    write_dicom_series(tmp_path / "series", rng.integers(0, 9, (5, 8, 9)).astype(np.uint16), (1, 1, 1))
    (tmp_path / "series" / "slice03.dcm").write_bytes(b"not a slice")
    with pytest.raises(
        DataError, match=r"slice03\.dcm: not a readable slice of the DICOM series.*1 of 5 files.*export the file again"
    ):
        read_image(tmp_path / "series")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.dcm").write_bytes(b"\0" * 500)
    with pytest.raises(DataError, match=r"one: no readable DICOM slice.*Export"):
        read_image(tmp_path / "one")
    with pytest.raises(DataError, match=r"a\.dcm: truncated, damaged"):
        read_image(tmp_path / "one" / "a.dcm")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".hdf5"])
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((12, 13), (1, 12, 13)),
        ((12, 13, 3), (3, 12, 13)),
        ((3, 12, 13), (3, 12, 13)),
        ((12, 13, 14), (1, 12, 13, 14)),
        ((2, 12, 13, 14), (2, 12, 13, 14)),
        ((12, 13, 14, 4), (4, 12, 13, 14)),
    ],
)
def test_arrays_follow_the_documented_rule(
    tmp_path: Path, rng: np.random.Generator, suffix: str, shape: tuple, expected: tuple
):
    values = rng.normal(size=shape)
    path = tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    elif suffix == ".npz":
        np.savez(path, image=values)
    else:
        with h5py.File(path, "w") as file:
            file["image"] = values
    array = agree(path)
    assert array.shape == expected
    assert array.dtype == np.float64
    axis = next((a for a in (0, len(shape) - 1) if shape[a] == expected[0]), None)
    np.testing.assert_array_equal(array, values[None] if axis is None else np.moveaxis(values, axis, 0))
    indices = rng.integers(0, 2, expected[1:]).astype(np.uint8)
    written = write_mask(tmp_path / "m" / "a", indices, read_image(path), BINARY)
    assert written.suffix == suffix
    np.testing.assert_array_equal(read_labels(written).values, indices * 255)


def test_arrays_that_cannot_be_images_are_refused(tmp_path: Path):
    np.save(tmp_path / "five.npy", np.zeros((9, 8, 7, 6, 5)))
    with pytest.raises(DataError, match=r"five\.npy: unsupported array shape \(9, 8, 7, 6, 5\).*Allowed: 2D or 3D"):
        read_image(tmp_path / "five.npy")
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"objects\.npy: truncated, damaged"):
        read_image(tmp_path / "objects.npy")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["label"] = np.zeros((9, 9))
    with pytest.raises(DataError, match=r"x\.h5: contains 'label' but no 'image'"):
        read_image(tmp_path / "x.h5")


@pytest.mark.parametrize("suffix", [suffix for suffix in FORMATS if suffix != ".hdf5"])
def test_damaged_missing_and_empty_files_name_file_finding_and_remedy(tmp_path: Path, suffix: str):
    path = tmp_path / f"bäd name{suffix}"
    with pytest.raises(DataError, match=r"bäd name.*no such file.*Check the path"):
        read_image(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"bäd name.*empty file.*Copy or export it again"):
        read_image(path)
    path.write_bytes(b"this is not an image" * 20)
    for read in (read_image, read_header, read_labels):
        with pytest.raises(DataError, match=r"bäd name.*truncated, damaged.*Copy or export it again"):
            read(path)


def truncatable(tmp_path: Path, rng: np.random.Generator) -> list[Path]:
    values = picture(rng, 64, 64, 3)
    for name in ("a.png", "a.jpg", "a.bmp"):
        Pillow.fromarray(values).save(tmp_path / name)
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="rgb", compression="zlib")
    tifffile.imwrite(tmp_path / "b.tif", values, photometric="rgb")
    volume = rng.normal(size=(16, 16, 16)).astype(np.float32)
    for name in ("a.nii", "a.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / name)
    for name in ("a.nrrd", "a.mha"):
        sitk.WriteImage(sitk.GetImageFromArray(volume), str(tmp_path / name))
    np.save(tmp_path / "a.npy", volume)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("image", data=volume)
    return sorted(tmp_path.iterdir())


def test_truncated_files_are_never_read_as_if_whole(tmp_path: Path, rng: np.random.Generator):
    for path in truncatable(tmp_path, rng):
        content = path.read_bytes()
        read_image(path)
        path.write_bytes(content[: len(content) * 2 // 3])
        with pytest.raises(DataError, match="truncated, damaged") as caught:
            read_image(path)
        assert str(path) in str(caught.value)


def test_unknown_types_and_names(tmp_path: Path):
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(DataError, match=r"a\.docx: unsupported file type '\.docx'.*Allowed: \.png"):
        read_image(tmp_path / "a.docx")
    assert (suffix_of("x/scan.1.NII.GZ"), stem_of("x/scan.1.NII.GZ")) == (".nii.gz", "scan.1")
    assert (suffix_of("a.b.png"), stem_of("a.b.png")) == (".png", "a.b")
    assert (suffix_of("a.ome.tif"), stem_of("a.ome.tif"), stem_of("no suffix")) == (".ome.tif", "a", "no suffix")


def test_masks_of_jpeg_are_lossless_png(tmp_path: Path, rng: np.random.Generator):
    Pillow.fromarray(picture(rng, 20, 30, 3)).save(tmp_path / "ü ber.jpeg")
    indices = rng.integers(0, 2, (20, 30)).astype(np.uint8)
    written = write_mask(tmp_path / "masks" / "ü ber.jpeg", indices, read_image(tmp_path / "ü ber.jpeg"), BINARY)
    assert written.name == "ü ber.png"
    np.testing.assert_array_equal(np.asarray(Pillow.open(written)), indices * 255)
    assert mask_suffix("a.jpg") == ".png"


def test_colours_and_palettes_come_back_as_the_user_had_them(tmp_path: Path, rng: np.random.Generator):
    Pillow.fromarray(picture(rng, 20, 30)).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    indices = rng.integers(0, 2, (20, 30)).astype(np.uint8)
    coloured = (ClassInfo(index=0, value=(0, 0, 0)), ClassInfo(index=1, value=(255, 0, 9)))
    raw = read_labels(write_mask(tmp_path / "c", indices, image, coloured))
    assert raw.colour
    np.testing.assert_array_equal(raw.values, np.array([(0, 0, 0), (255, 0, 9)])[indices])
    indexed = (ClassInfo(index=0, value=0, colour=(1, 2, 3)), ClassInfo(index=1, value=5, colour=(200, 0, 9)))
    raw = read_labels(write_mask(tmp_path / "p", indices, image, indexed))
    np.testing.assert_array_equal(raw.values, indices * 5)
    assert raw.palette is not None
    assert raw.palette[[0, 5]].tolist() == [[1, 2, 3], [200, 0, 9]]


def test_a_mask_that_does_not_fit_is_not_written(tmp_path: Path):
    Pillow.fromarray(np.zeros((4, 5), np.uint8)).save(tmp_path / "a.bmp")
    image = read_image(tmp_path / "a.bmp")
    with pytest.raises(HebbsegError, match=r"mask shape \(5, 4\) differs from image shape \(4, 5\)"):
        write_mask(tmp_path / "m", np.zeros((5, 4), np.uint8), image, BINARY)
    with pytest.raises(HebbsegError, match="class index 2 found, but there are only 2 classes"):
        write_mask(tmp_path / "m", np.full((4, 5), 2, np.uint8), image, BINARY)
    with pytest.raises(DataError, match=r"cannot store the class values.*0 to 255"):
        write_mask(tmp_path / "m", np.zeros((4, 5), np.uint8), image, GAPS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bmp"]
