"""Files made to crash, to read other files, or to fill the memory: each is refused with an error about it."""

import gzip
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from PIL import Image as Pillow

from hebbseg.data.cases import DataError
from hebbseg.data.io.formats import read_header, read_image, read_labels
from hebbseg.errors import HebbsegError
from hebbseg.text_files import read_text

META = {
    "ObjectType": "Image", "NDims": "2", "BinaryData": "True", "CompressedData": "False", "DimSize": "4 5",
    "ElementType": "MET_UCHAR", "ElementSpacing": "1 1", "ElementDataFile": "LOCAL",
}  # fmt: skip
NRRD = {"type": "uchar", "dimension": "2", "sizes": "4 5", "encoding": "raw"}


def meta_image(path: Path, **changes: str) -> Path:
    fields = META | changes
    fields["ElementDataFile"] = fields.pop("ElementDataFile")  # ends the header
    header = "".join(f"{name} = {value}\n" for name, value in fields.items())
    path.write_bytes(header.encode() + bytes(range(20)))
    return path


def nrrd(path: Path, **changes: str) -> Path:
    header = "NRRD0004\n" + "".join(f"{name.replace('_', ' ')}: {value}\n" for name, value in (NRRD | changes).items())
    path.write_bytes(header.encode() + b"\n" + bytes(range(20)))
    return path


@pytest.mark.parametrize(
    "change",
    [
        *({"NDims": value} for value in ("-1", "0", "1", "9", "1e30", "4294967296", "99999999999999999999", "two", "")),
        *({"DimSize": value} for value in ("4 5 6", "4", "0 5", "-4 5", "1e9 5", "4294967296 4294967296", "")),
        *({"ElementSpacing": value} for value in ("1", "1 inf", "nan 1", "1 0", "-1 1", "1 1 1")),
        {"TransformMatrix": "1 0 0"}, {"Offset": "1"}, {"ElementType": "MET_STRING"}, {"ElementNumberOfChannels": "-1"},
        {"ElementNumberOfChannels": "99999999"}, {"HeaderSize": "99999"}, {"Comment": "x" * 5000},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_meta_images_with_impossible_headers_do_not_reach_itk(tmp_path: Path, change: dict[str, str]) -> None:
    assert read_image(meta_image(tmp_path / "good.mha")).shape == (5, 4)
    path = meta_image(tmp_path / "bad.mha", **change)
    # In a process of its own: without the check, ITK crashes or does not return.
    code = f"from hebbseg.data.io.formats import read_image\nread_image({str(path)!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60)
    assert ended.returncode == 1 and "DataError" in ended.stderr and "bad.mha" in ended.stderr


@pytest.mark.parametrize(
    "change",
    [
        *({"dimension": value} for value in ("-1", "0", "17", "1e30", "3")),
        *({"sizes": value} for value in ("4", "4 5 6", "0 5", "-4 5", "99999999 99999999")),
        *({"spacings": value} for value in ("1", "1 inf", "1 1 1", "x y", "1 nan", "0 1")),
        {"space_directions": "(1,0) (0,nan)"},
        {"type": "block"}, {"encoding": "secret"}, {"endian": "[" * 5000}, {"space": "[" * 5000},
        {"space_directions": "(1,0)"}, {"byte_skip": "-7"}, {"line_skip": "-1"},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_nrrd_with_impossible_headers_do_not_reach_itk(tmp_path: Path, change: dict[str, str]) -> None:
    assert read_image(nrrd(tmp_path / "good.nrrd")).shape == (5, 4)
    with pytest.raises(DataError, match=r"bad\.nrrd.*Copy or export it again"):
        read_image(nrrd(tmp_path / "bad.nrrd", **change))


@pytest.mark.parametrize("name", ["../secret.raw", "{folder}/secret.raw", "LIST", "s%d.raw 1 2 1", "link.raw", "gone.raw"])
def test_detached_data_lie_beside_their_header(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.raw").write_bytes(b"a secret of 20 bytes")
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "link.raw").symlink_to(tmp_path / "secret.raw")
    (folder / "own.raw").write_bytes(bytes(range(20)))
    assert read_image(meta_image(folder / "a.mhd", ElementDataFile="own.raw")).array.max() == 19
    assert read_image(nrrd(folder / "a.nhdr", data_file="own.raw")).array.max() == 19
    name = name.format(folder=tmp_path)
    for path in (meta_image(folder / "b.mhd", ElementDataFile=name), nrrd(folder / "b.nhdr", data_file=name)):
        with pytest.raises(DataError, match=r"data file|several files"):
            read_image(path)


def test_hdf5_links_and_external_storage_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.raw").write_bytes(bytes(100))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["image"] = np.zeros((10, 10), np.uint8)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["image"] = h5py.ExternalLink("other.h5", "/image")
    with h5py.File(tmp_path / "soft.h5", "w") as file:
        file["other"] = h5py.ExternalLink("other.h5", "/")
        file["image"] = h5py.SoftLink("/other/image")
    with h5py.File(tmp_path / "storage.h5", "w") as file:
        file.create_dataset("image", (10, 10), np.uint8, external=[(str(tmp_path / "secret.raw"), 0, 100)])
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((10, 10), np.uint8)
        layout[...] = h5py.VirtualSource(str(tmp_path / "other.h5"), "image", (10, 10))
        file.create_virtual_dataset("image", layout)
    for name in ("link", "soft", "storage", "virtual"):
        for read in (read_image, read_header):
            with pytest.raises(DataError, match=rf"{name}\.h5: 'image' is a link, or its values are in another file"):
                read(tmp_path / f"{name}.h5")


def test_ome_metadata_open_no_further_file(tmp_path: Path) -> None:
    secret = np.full((8, 9), 77, np.uint8)
    tifffile.imwrite(tmp_path / "secret.ome.tif", secret, metadata={"axes": "YX"})
    with tifffile.TiffFile(tmp_path / "secret.ome.tif") as file:
        uuid = file.ome_metadata.split('UUID="')[1].split('"')[0]
    folder = tmp_path / "images"
    folder.mkdir()
    xml = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:0">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="9" SizeY="8" SizeC="1" '
        f'SizeZ="2" SizeT="1"><TiffData IFD="0" FirstZ="0" PlaneCount="1"/><TiffData IFD="0" FirstZ="1" PlaneCount="1">'
        f'<UUID FileName="../secret.ome.tif">{uuid}</UUID></TiffData></Pixels></Image></OME>'
    )
    tifffile.imwrite(folder / "a.ome.tif", np.zeros((8, 9), np.uint8), description=xml, metadata=None)
    try:
        assert (read_image(folder / "a.ome.tif").array != 77).all()
    except DataError as error:
        assert "a.ome.tif" in str(error)


def hdf5_bomb(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("image", (20_000, 20_000, 3), np.float32, chunks=(1000, 1000, 3), compression="gzip")


def nifti_bomb(path: Path) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_shape((2000, 2000, 200))
    header.set_data_dtype(np.float32)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    path.write_bytes(gzip.compress(header.binaryblock + bytes(4 + 4_000_000)))


def tiff_bomb(path: Path) -> None:
    tifffile.imwrite(path, np.zeros((64, 64), np.uint8), compression="zlib", tile=(64, 64))
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages[0].tags["ImageWidth"].overwrite(60_000)
        file.pages[0].tags["ImageLength"].overwrite(60_000)


def dicom_bomb(path: Path) -> None:
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((16, 16), np.uint16)), str(path))
    content = bytearray(path.read_bytes())
    for tag in (b"\x28\x00\x10\x00\x02\x00\x00\x00", b"\x28\x00\x11\x00\x02\x00\x00\x00"):  # rows, columns
        at = content.index(tag) + len(tag)
        content[at : at + 2] = (60_000).to_bytes(2, "little")
    path.write_bytes(bytes(content))


def npz_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("image.npy", "w") as stream:
        header = str({"descr": "<f8", "fortran_order": False, "shape": (40_000, 40_000)}).encode().ljust(117) + b"\n"
        stream.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(2**20))


def npz_header_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("image.npy", "w") as stream:
        stream.write(b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b" " * 2**24)


BOMBS = {
    ".h5": hdf5_bomb, ".nii.gz": nifti_bomb, ".tif": tiff_bomb, ".dcm": dicom_bomb, ".npz": npz_bomb, "2.npz": npz_header_bomb
}  # fmt: skip


@pytest.mark.parametrize("suffix", BOMBS)
def test_small_files_do_not_fill_the_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb{suffix}"
    BOMBS[suffix](path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_image, read_labels):
        with pytest.raises(DataError, match="bomb"):
            read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        (b"\x28\x00\x10\x00", b"\xff\xff\xff\x70"),
        (b"\x02\x00\x02\x00", b"UK"),
        (b"\x02\x00\x02\x00", b"in"),
        (b"DICM", b"\x12"),
    ],
)
def test_lengths_and_types_of_dicom_elements_are_checked_before_gdcm(tmp_path: Path, tag: bytes, value: bytes) -> None:
    path = tmp_path / "a.dcm"
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((16, 16), np.uint16)), str(path))
    assert read_image(path).shape == (16, 16)
    content = bytearray(path.read_bytes())
    at = content.index(tag) + 4
    content[at : at + len(value)] = value
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.dcm: truncated, damaged .*element"):
        read_image(path)


def test_the_limit_of_pixels_is_stated_and_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((20, 30), np.uint8))
    monkeypatch.setenv("HEBBSEG_MAX_PIXELS", "599")
    with pytest.raises(DataError, match=r"20×30 = 600 values, more than HEBBSEG_MAX_PIXELS allows \(599\).*=600"):
        read_image(tmp_path / "a.npy")
    assert read_header(tmp_path / "a.npy").shape == (20, 30), "the header is still read"
    monkeypatch.setenv("HEBBSEG_MAX_PIXELS", "600")
    assert read_image(tmp_path / "a.npy").shape == (20, 30)
    monkeypatch.setenv("HEBBSEG_MAX_PIXELS", "many")
    with pytest.raises(HebbsegError, match=r"HEBBSEG_MAX_PIXELS='many': allowed is a positive integer"):
        read_image(tmp_path / "a.npy")


@pytest.mark.parametrize("value", [1e300, -1e300, 1e-300])
def test_numbers_outside_float32_are_refused(tmp_path: Path, value: float) -> None:
    values = np.zeros((8, 9))
    values[2:4] = value
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(DataError, match=r"float64 values up to 1e.300, outside the range of float32.*Rescale"):
        read_image(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.where(values != 0, 1e30, np.nan))
    assert read_image(tmp_path / "b.npy").shape == (8, 9)


def test_empty_images_and_infinite_spacing_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 9), np.uint8))
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((8, 9), np.uint8))
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        file.pages[0].tags["SamplesPerPixel"].overwrite(0)
    volume = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.eye(4))
    volume.header["pixdim"][1] = np.inf
    (tmp_path / "a.nii").write_bytes(volume.header.binaryblock + bytes(4 + 120))
    for name in ("a.npy", "a.tif", "a.nii"):
        for read in (read_image, read_header):
            with pytest.raises(DataError, match=rf"{name}.*(positive|truncated)"):
                read(tmp_path / name)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_voxel_size_of_zero_is_unknown(tmp_path: Path, suffix: str) -> None:
    """nibabel replaces it by 1 when it reads the header."""
    volume = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.diag([1, 1, 2.5, 1]))
    content = bytearray(volume.to_bytes())
    content[76 + 3 * 4 : 76 + 4 * 4] = bytes(4)  # pixdim[3]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(bytes(content)) if suffix == ".nii.gz" else bytes(content))
    assert read_image(path).spacing_mm is None and read_header(path).spacing_mm is None
    nibabel.save(volume, tmp_path / f"good{suffix}")
    assert read_image(tmp_path / f"good{suffix}").spacing_mm == (1, 1, 2.5)


def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    for name in ("a.png", "b.nii.gz", "c.h5", "d"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match=rf"{name}: a pipe, a socket or a device, not a file"):
            read_image(tmp_path / name)
    (tmp_path / "e.tif").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="a pipe, a socket or a device"):
        read_header(tmp_path / "e.tif")
    with pytest.raises(HebbsegError, match="a pipe, a socket or a device"):
        read_text(tmp_path / "d", "Fix it.")


@pytest.mark.parametrize(("suffix", "start"), [(".jpg", b"\xff\xd8\xff\xe0\0\2"), (".gif", b"GIF89a" + bytes(7))])
def test_the_search_for_a_header_ends(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(start)
    os.truncate(path, 2**40)  # a sparse file
    with pytest.raises(DataError, match="no header in the first 100000 bytes"):
        read_header(path)


def test_a_jpeg_of_very_many_scans_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Pillow.new("RGB", (16, 16)).save(path, progressive=True)
    assert read_image(path).shape == (16, 16)
    content = path.read_bytes()
    start = content.index(b"\xff\xda")
    end = content.index(b"\xff", start + 2)
    path.write_bytes(content[:start] + content[start:end] * 600 + content[end:])
    for read in (read_image, read_labels):
        with pytest.raises(DataError, match=r"a\.jpg: 6\d\d scans, more than 500"):
            read(path)


def test_meta_images_of_very_many_fields_do_not_reach_itk(tmp_path: Path) -> None:
    path = tmp_path / "a.mha"
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((4, 5, 6), np.uint8)), str(path))
    content = path.read_bytes()
    path.write_bytes(b"".join(b"Key%d = 1\n" % number for number in range(20_000)) + content)
    with pytest.raises(DataError, match="more than 10000 fields"):
        read_header(path)


def test_complex_values_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((8, 8), np.complex64))
    tifffile.imwrite(tmp_path / "a.tif", np.ones((8, 8), np.complex64))
    nibabel.save(nibabel.Nifti1Image(np.ones((8, 8, 3), np.complex64), np.eye(4)), tmp_path / "a.nii")
    for suffix in (".npy", ".tif", ".nii"):
        with pytest.raises(DataError, match="complex"):
            read_image(tmp_path / f"a{suffix}")
