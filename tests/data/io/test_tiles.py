"""Images read in parts: the same values as read whole, and errors that name the tile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from hebbseg.data.cases import DataError
from hebbseg.data.io.formats import map_image, map_labels, pyramid_levels, read_header, read_image, read_labels
from hebbseg.data.io.tiles import TiledArray
from tests.data.pyramids import write_ome_tiff, write_ome_zarr
from tests.data.trees import picture, save


def test_any_part_is_that_of_the_whole_array():
    whole = picture(0, 3, 37, 53)
    decoded = []

    def decode(row: int, column: int) -> np.ndarray:
        decoded.append((row, column))
        return whole[:, row * 16 : row * 16 + 16, column * 8 : column * 8 + 8]

    tiled = TiledArray(shape=(3, 37, 53), dtype=whole.dtype, tile=(16, 8), decode=decode, kept_bytes=2000)
    generator = np.random.default_rng(0)
    for _ in range(200):
        rows, columns = (slice(*sorted(generator.integers(0, 60, 2)), generator.integers(1, 21)) for _ in range(2))
        assert np.array_equal(tiled[:, rows, columns], whole[:, rows, columns])
        assert np.array_equal(tiled[1:2, rows], whole[1:2, rows])
    assert np.array_equal(tiled[..., ::3, ::5], whole[..., ::3, ::5])
    assert np.array_equal(tiled[:], whole)
    with pytest.raises(TypeError, match="positive steps"):
        tiled[:, ::-1]


def test_kept_tiles_are_decoded_once_and_limited_in_memory():
    decoded = []

    def decode(row: int, column: int) -> np.ndarray:
        decoded.append((row, column))
        return np.zeros((1, 10, 10), np.uint8)

    tiled = TiledArray(shape=(1, 100, 100), dtype=np.dtype(np.uint8), tile=(10, 10), decode=decode, kept_bytes=1000)
    for _ in range(3):
        tiled[:, 0:10]  # ten tiles of 100 bytes
    assert len(decoded) == 10
    tiled[:, 10:20]
    tiled[:, 0:10]
    assert len(decoded) == 30


LAYOUTS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "tiles": ((50, 70, 3), {"photometric": "rgb", "tile": (16, 32), "compression": "zlib"}),
    "jpeg": ((50, 70, 3), {"photometric": "rgb", "tile": (16, 32), "compression": "jpeg"}),
    "strips": ((50, 70, 3), {"photometric": "rgb", "rowsperstrip": 7, "compression": "lzw"}),
    "planes": ((3, 50, 70), {"photometric": "rgb", "planarconfig": "separate", "tile": (16, 16), "compression": "zlib"}),
    "opacity": ((50, 70, 4), {"photometric": "rgb", "extrasamples": ["unassalpha"], "tile": (16, 16), "compression": "zlib"}),
    "white is zero": ((50, 70), {"photometric": "miniswhite", "compression": "zlib"}),
    "big-endian": ((50, 70), {"dtype": ">u2", "byteorder": ">", "compression": "zlib", "predictor": True}),
    "channels in pages": (
        (3, 50, 70),
        {"photometric": "minisblack", "ome": True, "metadata": {"axes": "CYX"}, "compression": "zlib"},
    ),
    "palette": ((50, 70), {"photometric": "palette", "colormap": np.arange(768, dtype=np.uint16).reshape(3, 256) * 80}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiff_in_parts_is_tiff_read_whole(layout: str, tmp_path: Path):
    shape, options = LAYOUTS[layout]
    order = options.pop("byteorder", None) if (options := dict(options)) else None
    image = picture(1, *shape).astype(options.pop("dtype", np.uint8))
    tifffile.imwrite(tmp_path / "a.tif", image, **options, **({"byteorder": order} if order else {}))
    parts, whole = map_image(tmp_path / "a.tif"), read_image(tmp_path / "a.tif")
    assert parts is not None and (layout == "channels in pages" or isinstance(parts.array, TiledArray))
    assert parts.array.shape == whole.array.shape and parts.array[:].dtype == whole.array.dtype
    assert np.array_equal(parts.array[:], whole.array)
    assert np.array_equal(parts.array[:, 13:41, 5:66], whole.array[:, 13:41, 5:66])


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_masks_in_parts(tmp_path: Path, compression: str | None):
    mask = picture(2, 40, 60) % 3
    tifffile.imwrite(tmp_path / "mask.tif", mask, tile=(16, 16), compression=compression)
    found = map_labels(tmp_path / "mask.tif")
    assert found is not None
    array, raw = found
    assert np.array_equal(raw(array[:, 3:30, 7:50]).values, mask[3:30, 7:50])
    assert np.array_equal(raw(array[:]).values, read_labels(tmp_path / "mask.tif").values)


def test_formats_without_parts_are_not_mapped(tmp_path: Path):
    save(tmp_path / "a.png", picture(0, 8, 8, 3))
    assert map_image(tmp_path / "a.png") is None and map_labels(tmp_path / "a.png") is None
    tifffile.imwrite(tmp_path / "volume.tif", picture(0, 5, 8, 9), photometric="minisblack")
    assert map_image(tmp_path / "volume.tif") is None


def test_a_truncated_tile_is_named(tmp_path: Path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture(0, 64, 64), tile=(32, 32), compression="zlib")
    with tifffile.TiffFile(path) as file:
        offsets, counts = file.pages[0].dataoffsets, file.pages[0].databytecounts
    data = bytearray(path.read_bytes())
    data[offsets[1] : offsets[1] + counts[1]] = b"\0" * counts[1]
    (tmp_path / "damaged.tif").write_bytes(data)
    damaged = map_image(tmp_path / "damaged.tif")
    assert damaged is not None
    assert damaged.array[:, :32, :32].shape == (1, 32, 32)  # the first tile is intact
    with pytest.raises(DataError, match=r"damaged\.tif: tile 0, 1 \(row, column\) is damaged"):
        damaged.array[:, :32, 32:]
    last = max(range(4), key=offsets.__getitem__)
    (tmp_path / "cut.tif").write_bytes(path.read_bytes()[: offsets[last] + counts[last] // 2])
    cut = map_image(tmp_path / "cut.tif")
    assert cut is not None
    with pytest.raises(DataError, match=r"cut\.tif: truncated: tile \d, \d \(row, column\) has \d+ of \d+ bytes"):
        cut.array[:]


@pytest.mark.parametrize("kind", ["tiff", "zarr 2", "zarr 3"])
def test_levels_of_pyramids(kind: str, tmp_path: Path):
    image = picture(0, 70, 100, 3)
    if kind == "tiff":
        path = write_ome_tiff(tmp_path / "a.ome.tif", image)
    else:
        path = write_ome_zarr(tmp_path / "a.ome.zarr", np.moveaxis(image, -1, 0), version=int(kind[-1]))
    levels = pyramid_levels(path)
    assert [each.shape for each in levels] == [(70, 100), (35, 50), (18, 25)]
    assert np.allclose([each.spacing_mm for each in levels], [[0.0005] * 2, [0.001] * 2, [0.002] * 2])
    for level in range(3):
        expected = np.moveaxis(image[:: 2**level, :: 2**level], -1, 0)
        header, whole, parts = read_header(path, level), read_image(path, level), map_image(path, level)
        assert parts is not None
        assert header.shape == whole.shape == parts.shape == expected.shape[1:] and header.channels == 3
        assert np.array_equal(whole.array, expected) and np.array_equal(parts.array[:], expected)
        assert np.allclose(header.spacing_mm or (), 0.0005 * 2**level) and whole.spacing_mm == header.spacing_mm
    for read in (read_header, read_image, map_image):
        with pytest.raises(DataError, match=r"has no pyramid level 3; its levels are 0 \(70×100\), 1 \(35×50\), 2 \(18×25\)"):
            read(path, 3)


def test_a_level_of_a_file_without_pyramid(tmp_path: Path):
    save(tmp_path / "a.png", picture(0, 8, 9, 3))
    with pytest.raises(DataError, match=r"a\.png: has no pyramid level 1; its levels are 0 \(8×9\)\. Pass --level"):
        read_image(tmp_path / "a.png", 1)
    save(tmp_path / "mask.png", picture(0, 8, 9))
    assert read_labels(tmp_path / "mask.png", 1).values.shape == (8, 9)  # masks have the size of the level


def test_resolution_of_a_level_without_ome_metadata(tmp_path: Path):
    image = picture(0, 64, 64)
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        options = {"tile": (16, 16), "compression": "zlib", "metadata": None}
        writer.write(image, subifds=1, resolution=(20000, 20000), resolutionunit="CENTIMETER", **options)
        writer.write(image[::2, ::2], subfiletype=1, **options)
    levels = pyramid_levels(tmp_path / "a.tif")
    assert len(levels) == 2 and np.allclose([each.spacing_mm for each in levels], [[0.0005] * 2, [0.001] * 2])


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_without_ome_metadata_or_with_depth(version: int, tmp_path: Path):
    import zarr

    zarr.open_group(tmp_path / "plain.zarr", mode="w", zarr_format=version)
    with pytest.raises(DataError, match=r"plain\.zarr: a Zarr group without OME metadata"):
        read_image(tmp_path / "plain.zarr")
    group = zarr.open_group(tmp_path / "deep.zarr", mode="w", zarr_format=version)
    group.create_array("0", shape=(4, 8, 8), chunks=(1, 8, 8), dtype="uint8")
    axes = [{"name": name, "type": "space"} for name in "zyx"]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]
    with pytest.raises(DataError, match=r"deep\.zarr: axes zyx of sizes \(4, 8, 8\).*Only 2D images"):
        read_image(tmp_path / "deep.zarr")
