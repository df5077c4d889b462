"""The structure of TIFF files, checked before tifffile reads it: pages, frames of the metadata, and sizes of encoded tiles.

tifffile follows any number of pages, creates all frames that OME or ImageJ metadata declare, and decodes a JPEG 2000 or WebP
tile at the size it declares itself, whatever the size of the page.
"""

import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import tifffile

from hebbseg.data.cases import DataError
from hebbseg.data.io.limits import EXPORT_AGAIN

MOST_PAGES = 2**16
_MOST_TAGS = 2**12
_SIZE_TAGS = (256, 257)  # width, length
_FORMATS = {42: ("H", 2, "I", 4, 12), 43: ("Q", 8, "Q", 8, 20)}  # count of tags, offset, bytes per tag
_START = 2**16  # bytes of a tile in which its size is searched
_LARGER = 4  # tiles at the edges can be stored at another size
_SLACK = 2**20  # pixels

_C = tifffile.COMPRESSION
_JPEG = (_C.JPEG, _C.OJPEG, _C.ALT_JPEG, _C.JPEG_LOSSY)
_JPEG2000 = (_C.APERIO_JP2000_YCBC, _C.JPEG_2000_LOSSY, _C.APERIO_JP2000_RGB, _C.JPEG2000)
_WEBP = (_C.WEBP, _C.WEBP_DEPRECATED)
_PLAIN = (_C.NONE, _C.CCITTRLE, _C.CCITTFAX3, _C.CCITTFAX4, _C.LZW, _C.ADOBE_DEFLATE, _C.DEFLATE, _C.PACKBITS, _C.LZMA,
          _C.ZSTD, _C.ZSTD_DEPRECATED, _C.PIXARFILM, _C.PIXARLOG)  # fmt: skip


def check_pages(path: Path) -> None:
    """Raise unless the file is a TIFF with at most `MOST_PAGES` pages, each of which has a size."""
    with path.open("rb") as file:
        start = file.read(16)
        order = {b"II": "<", b"MM": ">"}.get(start[:2])
        version = struct.unpack(f"{order}H", start[2:4])[0] if order and len(start) == 16 else None
        if version not in _FORMATS:
            raise _invalid(path, "no TIFF header")
        short, short_bytes, long, long_bytes, tag_bytes = _FORMATS[version]
        at = struct.unpack_from(f"{order}{long}", start, 4 if version == 42 else 8)[0]
        pages = 0
        while at:
            pages += 1
            if pages > MOST_PAGES:
                raise _invalid(path, f"more than {MOST_PAGES} pages, or pages in a circle")
            file.seek(at)
            count = _number(file, f"{order}{short}", short_bytes)
            if count is None or count > _MOST_TAGS:
                break  # tifffile stops at a damaged page
            tags = file.read(count * tag_bytes)
            names = {struct.unpack_from(f"{order}H", tags, place)[0] for place in range(0, len(tags) - 1, tag_bytes)}
            if not names.issuperset(_SIZE_TAGS):
                raise _invalid(path, f"page {pages} has no size")
            at = _number(file, f"{order}{long}", long_bytes) or 0


def check_frames(path: Path, file: tifffile.TiffFile) -> None:
    """Raise if OME or ImageJ metadata declare more frames than `MOST_PAGES`, or planes of another size than the page."""
    images = re.findall(r"<(?:\w+:)?Pixels\b([^>]*)", file.ome_metadata or "")
    for attributes in images:
        sizes = {axis: int(size) for axis, size in re.findall(r'\bSize([XYZCT])\s*=\s*["\'](\d{1,30})["\']', attributes)}
        _check_count(path, [sizes.get(axis, 1) for axis in "ZCT"])
        page = file.pages.first
        declared, stored = (sizes.get("Y"), sizes.get("X")), (page.imagelength, page.imagewidth)
        # Several images of different sizes are refused later, by name.
        if len(images) == 1 and declared not in ((None, None), stored):
            raise _invalid(path, f"its metadata declare {declared[0]}×{declared[1]} pixels, the page {stored[0]}×{stored[1]}")
    imagej: dict[str, Any] = file.imagej_metadata or {}
    for names in (("images",), ("slices", "frames", "channels")):
        _check_count(path, [abs(int(imagej.get(name, 1))) for name in names])


def _check_count(path: Path, sizes: list[int]) -> None:
    if math.prod(sizes) > MOST_PAGES:
        raise _invalid(path, f"its metadata declare {math.prod(sizes)} frames; at most {MOST_PAGES} are allowed")


def check_tile(path: Path, page: Any, data: bytes) -> None:
    """Raise if the encoded bytes of a tile or strip declare an image much larger than a tile, or cannot be checked."""
    compression = page.compression
    if compression in _PLAIN:
        return
    declare = _SIZES.get(compression)
    if declare is None:
        name = getattr(compression, "name", compression)
        raise DataError(path, f"compression {name}", "Store it with deflate, LZW, JPEG or JPEG 2000, or without compression.")
    size = declare(data)
    tile = (page.tilelength * page.tilewidth) if page.is_tiled else page.rowsperstrip * page.imagewidth
    if size is not None and size[0] * size[1] > _LARGER * tile + _SLACK:
        raise _invalid(path, f"a tile of {size[0]}×{size[1]} pixels where {tile} are expected")


def check_tiles(path: Path, file: tifffile.TiffFile, series: Any) -> None:
    """Check all tiles or strips of an image, before it is decoded at once."""
    if series.keyframe.compression in _PLAIN:
        return
    for page in series.pages:
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=False) if page is not None else ():
            if offset and count:
                file.filehandle.seek(offset)
                check_tile(path, series.keyframe, file.filehandle.read(min(count, _START)))


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[:2] == b"\xff\xd8" and at + 9 <= len(data):
        if data[at] != 0xFF:
            at += 1
            continue
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return height, width
        alone = marker in (0x01, 0xFF) or 0xD0 <= marker <= 0xD8
        at += (1 if marker == 0xFF else 2) if alone else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _jpeg2000(data: bytes) -> tuple[int, int] | None:
    at = data.find(b"\xff\x4f\xff\x51")
    if at < 0 or at + 24 > len(data):
        return None
    width, height, left, top = struct.unpack_from(">IIII", data, at + 8)
    return max(0, height - top), max(0, width - left)


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if len(data) < 30 or kind not in (b"VP8 ", b"VP8L", b"VP8X"):
        return None
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    return int.from_bytes(data[27:30], "little") + 1, int.from_bytes(data[24:27], "little") + 1


def _png(data: bytes) -> tuple[int, int] | None:
    if len(data) < 24:
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


_SIZES: dict[int, Callable[[bytes], tuple[int, int] | None]] = {
    **dict.fromkeys(_JPEG, _jpeg), **dict.fromkeys(_JPEG2000, _jpeg2000), **dict.fromkeys(_WEBP, _webp), _C.PNG: _png
}  # fmt: skip


def _number(file: BinaryIO, form: str, size: int) -> int | None:
    content = file.read(size)
    return int(struct.unpack(form, content)[0]) if len(content) == size else None


def _invalid(path: Path, finding: str) -> DataError:
    return DataError(path, f"truncated, damaged or not of the type in its name ({finding})", EXPORT_AGAIN)
