"""Zarr, TIFF and HDF5 files made to fill the memory, to read other files or to take for ever: each is refused by name."""

import bz2
import json
import lzma
import os
import pickle
import re
import resource
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import h5py
import imagecodecs
import numcodecs
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.formats import map_image, map_labels, pyramid_levels, read_header, read_image, read_labels, write_mask
from hebbseg.data.io.image_file import Image
from hebbseg.data.io.zarr_store import TooLarge, decoded
from hebbseg.errors import HebbsegError

ZEROS = bytes(2**24)
CLASSES = (ClassInfo(index=0, value=0), ClassInfo(index=1, value=1))
AXES = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]


def first_pixels(path: Path) -> np.ndarray | None:
    image = map_image(path)
    return None if image is None else image.array[:, :4, :4]


def group(path: Path, chunk: bytes | None = bytes(64), *, levels: list[Any] | None = None, **array: Any) -> Path:
    """Write an OME-Zarr image of version 0.4, 8×8 pixels in one chunk."""
    described = {"zarr_format": 2, "shape": [8, 8], "chunks": [8, 8], "dtype": "|u1", "compressor": None, "filters": None}
    (path / "0").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    scales = {"version": "0.4", "axes": AXES, "datasets": [{"path": "0"}] if levels is None else levels}
    (path / ".zattrs").write_text(json.dumps({"multiscales": [scales]}))
    (path / "0" / ".zarray").write_text(json.dumps(described | {"fill_value": 0, "order": "C"} | array))
    if chunk is not None:
        (path / "0" / "0.0").write_bytes(chunk)
    return path


def refused(path: Path, reason: str) -> None:
    for read in (read_image, read_labels, first_pixels):
        with pytest.raises(DataError, match=reason):
            read(path)


@pytest.mark.parametrize(
    ("codec", "chunk"),
    [
        ("zlib", zlib.compress(ZEROS)), ("gzip", zlib.compress(ZEROS, wbits=31)), ("bz2", bz2.compress(ZEROS)),
        ("lzma", lzma.compress(ZEROS)), ("zstd", numcodecs.Zstd().encode(ZEROS)), ("blosc", numcodecs.Blosc().encode(ZEROS)),
        ("lz4", numcodecs.LZ4().encode(ZEROS)), ("zstd", b"\x28\xb5\x2f\xfd\x00\x58" + bytes(20)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_chunk_is_decoded_to_no_more_than_its_size(tmp_path: Path, codec: str, chunk: bytes) -> None:
    with pytest.raises(TooLarge):
        decoded(codec, chunk, 1000)
    options = {"id": codec} | ({"cname": "lz4", "clevel": 5, "shuffle": 1} if codec == "blosc" else {})
    refused(
        group(tmp_path / "bomb.zarr", chunk, compressor=options), r"bomb\.zarr: chunk 0, 0 .*damaged \((more than|it declares)"
    )


def test_damaged_blosc_chunks_do_not_crash() -> None:
    """In a process of its own: numcodecs' decoder ends the process on many of them."""
    code = (
        "import random, numcodecs, contextlib, numpy\n"
        "from hebbseg.data.io.zarr_store import decoded\n"
        "values = numpy.random.default_rng(0).integers(0, 2, 2000, numpy.uint8)\n"
        "for name in ('lz4', 'blosclz', 'zlib', 'zstd'):\n"
        "    chunk = numcodecs.Blosc(cname=name).encode(values.tobytes())\n"
        "    assert bytes(decoded('blosc', bytes(chunk), 5000)) == values.tobytes()\n"
        "    for seed in range(500):\n"
        "        draw, damaged = random.Random(seed), bytearray(chunk)\n"
        "        damaged[draw.choice((draw.randrange(40), draw.randrange(len(chunk))))] ^= 1 << draw.randrange(8)\n"
        "        if draw.random() < 0.5:\n"
        "            damaged[16:20] = draw.randbytes(4)\n"
        "        with contextlib.suppress(ValueError, RuntimeError):\n"
        "            decoded('blosc', bytes(damaged), 5000)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=120)
    assert ended.returncode == 0, (ended.returncode, ended.stderr)


@pytest.mark.parametrize("version", [2, 3])
def test_codecs_of_intact_images(tmp_path: Path, version: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 70), np.uint8)
    codecs = (None, numcodecs.Zlib(), numcodecs.Blosc(), numcodecs.BZ2(), numcodecs.LZ4(), numcodecs.LZMA(), numcodecs.Zstd())
    if version == 3:
        codecs = (None, ZstdCodec(checksum=True), GzipCodec(), BloscCodec())
    for number, codec in enumerate(codecs):
        for shards in (None, (64, 64)) if version == 3 else (None,):
            path = tmp_path / f"{number}{shards}.zarr"
            written = zarr.open_group(path, mode="w", zarr_format=version)
            scales = {"multiscales": [{"axes": AXES, "datasets": [{"path": "0"}]}]}
            written.attrs.update(scales if version == 2 else {"ome": scales})
            array = written.create_array("0", shape=(60, 70), chunks=(32, 32), shards=shards, dtype="u1", compressors=codec)
            array[:] = pixels
            assert np.array_equal(read_image(path).array[0], pixels), (codec, shards)


def test_zarr_codecs_that_could_run_code_are_refused(tmp_path: Path) -> None:
    for number, options in enumerate(({"filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}}, {"dtype": "|O"})):
        with pytest.raises(DataError, match=r"\.zarr"):
            read_image(group(tmp_path / f"{number}.zarr", pickle.dumps(np.zeros(64, np.uint8)), **options))
    with pytest.raises(DataError, match=r"codec 'pickle'.*Allowed: bytes"):
        read_image(group(tmp_path / "a.zarr", filters=[{"id": "pickle"}]))


def test_zarr_links_lead_to_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    other = group(tmp_path / "other.zarr")
    path = group(tmp_path / "chunk.zarr", None)
    (path / "0" / "0.0").symlink_to(tmp_path / "secret")
    refused(path, r"0\.0: a link to a place outside of the image")
    path = group(tmp_path / "array.zarr", levels=[{"path": "linked"}])
    (path / "linked").symlink_to(other / "0")
    refused(path, r"linked.*a link to a place outside of the image")
    refused(group(tmp_path / "up.zarr", levels=[{"path": "../other.zarr/0"}]), r"up\.zarr")
    (tmp_path / "whole.zarr").symlink_to(other)
    assert read_image(tmp_path / "whole.zarr").shape == (8, 8), "the image itself may be a link"


def test_zarr_pipes_are_not_opened(tmp_path: Path) -> None:
    path = group(tmp_path / "chunk.zarr", None)
    os.mkfifo(path / "0" / "0.0")
    refused(path, r"0\.0: a pipe, a socket or a device")
    path = group(tmp_path / "array.zarr")
    for name in (".zattrs", "0/.zarray"):
        (path / name).unlink()
        os.mkfifo(path / name)
        refused(path, r"a pipe, a socket or a device")


def test_zarr_sizes_without_data(tmp_path: Path) -> None:
    refused(group(tmp_path / "huge.zarr", shape=[2**40, 2**40]), r"huge\.zarr.*declares")
    refused(group(tmp_path / "zero.zarr", chunks=[0, 0]), "chunks of size")
    refused(group(tmp_path / "levels.zarr", levels=[{"path": "0"}] * 5000), "5000 levels. Allowed: 1 to 64")
    (group(tmp_path / "long.zarr") / ".zattrs").write_bytes(b" " * 2**25)
    refused(tmp_path / "long.zarr", "metadata of more than")
    (tmp_path / "empty.zarr").mkdir()
    refused(tmp_path / "empty.zarr", "no zarr.json")


def tiff(path: Path, tile: bytes, compression: int, **changes: int) -> Path:
    """Write a TIFF of one tile with 64×64 pixels."""
    tags = {256: 64, 257: 64, 258: 8, 259: compression, 262: 1, 277: 1, 322: 64, 323: 64, 324: 8, 325: len(tile)}
    tags |= {int(name[1:]): value for name, value in changes.items()}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    pages = struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(tile)) + tile + pages)
    return path


@pytest.mark.parametrize("name", ["jpeg2k", "webp", "jpeg", "png", "jpegxl"])
def test_tiles_that_declare_other_sizes_are_not_decoded(tmp_path: Path, name: str) -> None:
    codes = {"jpeg2k": 34712, "webp": 50001, "jpeg": 7, "png": 34933, "jpegxl": 50002}
    encode, code = getattr(imagecodecs, f"{name}_encode"), codes[name]
    colours = (3,) if name == "webp" else ()
    channels = {"t277": 3, "t262": 2} if colours else {}
    reason = "compression JPEGXL.*Store it with deflate" if name == "jpegxl" else "a tile of 2000×1500 pixels where 4096"
    refused(tiff(tmp_path / "bomb.tif", encode(np.zeros((2000, 1500, *colours), np.uint8)), code, **channels), reason)
    if name != "jpegxl":
        small = tiff(tmp_path / "good.tif", encode(np.full((64, 64, *colours), 7, np.uint8)), code, **channels)
        assert read_image(small).shape == (64, 64)


def test_tiffs_of_endless_pages_or_frames_are_refused(tmp_path: Path) -> None:
    started = time.monotonic()
    pages = b"".join(struct.pack("<HI", 0, 8 + 6 * (number + 1)) for number in range(200_000))
    (tmp_path / "pages.tif").write_bytes(b"II*\0" + struct.pack("<I", 8) + pages)
    refused(tmp_path / "pages.tif", "page 1 has no size")
    tags = struct.pack("<H", 2) + b"".join(struct.pack("<HHII", tag, 4, 1, 64) for tag in (256, 257))
    (tmp_path / "circle.tif").write_bytes(b"II*\0" + struct.pack("<I", 8) + tags + struct.pack("<I", 8) + bytes(8))
    refused(tmp_path / "circle.tif", "more than 65536 pages, or pages in a circle")
    for name, sizes in (("frames", "64 64 1 1000000000"), ("channels", "64 64 99999999 1"), ("plane", "60000 60000 1 1")):
        x, y, c, z = sizes.split()
        xml = (
            '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
            f'<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="{x}" SizeY="{y}" SizeC="{c}" SizeZ="{z}" '
            'SizeT="1"><TiffData IFD="0" PlaneCount="1"/></Pixels></Image></OME>'
        )
        path = tmp_path / f"{name}.ome.tif"
        tifffile.imwrite(path, np.zeros((64, 64), np.uint8), description=xml, metadata=None)
        refused(path, rf"{name}\.ome\.tif.*its metadata declare")
    assert time.monotonic() - started < 20


def test_missing_offsets_of_tiles(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        writer.write(np.full((128, 64), 5, np.uint8), tile=(64, 64), compression="zlib")
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        file.pages[0].tags["TileOffsets"].overwrite((file.pages[0].dataoffsets[0],))
    for read in (first_pixels, map_labels, read_header, pyramid_levels):
        read(tmp_path / "a.tif")
    image = map_image(tmp_path / "a.tif")
    assert image is not None and image.array[:, :64].max() == 5 and image.array[:, 64:].shape == (1, 64, 64)


def test_hdf5_chunks_are_decoded_to_no_more_than_their_size(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        data = file.create_dataset("image", (64, 64), np.uint8, chunks=(64, 64), compression="gzip")
        data.id.write_direct_chunk((0, 0), zlib.compress(bytes(2**28), 1))
    with pytest.raises(DataError, match=r"bomb\.h5: the chunk at \(0, 0\) has more than its 4096 bytes"):
        read_image(tmp_path / "bomb.h5")
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        shape = {"shape": (8, 8), "maxshape": (None, None), "chunks": (20_000, 20_000), "compression": "gzip"}
        file.create_dataset("image", dtype=np.uint8, **shape)
    with pytest.raises(DataError, match=r"wide\.h5: chunks of 400000000 bytes for 64 bytes of values"):
        read_image(tmp_path / "wide.h5")


@pytest.mark.parametrize("suffix", [".h5", ".mha", ".nrrd", ".npy", ".nii.gz", ".png", ".tif"])
def test_a_mask_that_does_not_fit_on_the_disk_is_an_error(tmp_path: Path, suffix: str) -> None:
    """With a limit on the size of files, as on a full disk; HDF5 left a truncated file without an error, ITK raised its own."""
    dims = 2 if suffix in (".h5", ".npy", ".png", ".tif") else 3
    indices = np.random.default_rng(0).integers(0, 2, (20, 100, 100)[-dims:])
    like = Image(array=indices[None], path=tmp_path / f"a{suffix}", geometry=geometry_like(suffix, indices, tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(HebbsegError, match=rf"mask{re.escape(suffix)}: could not be written"):
            write_mask(tmp_path / f"mask{suffix}", indices, like, CLASSES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("mask", ".writing"))]
    assert write_mask(tmp_path / f"mask{suffix}", indices, like, CLASSES).stat().st_size > 1000


def geometry_like(suffix: str, indices: np.ndarray, folder: Path) -> Any:
    """Return the geometry of an image of this format."""
    if suffix in (".h5", ".npy", ".png", ".tif"):
        return None
    path = folder / f"image{suffix}"
    sitk.WriteImage(
        sitk.GetImageFromArray(indices.astype(np.uint8).transpose(2, 1, 0) if "nii" in suffix else indices), str(path)
    )
    return read_image(path).geometry
