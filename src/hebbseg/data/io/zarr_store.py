"""Zarr folders that are not trusted: codecs that allocate no more than a chunk needs, and no links out of the folder.

The metadata of an array name its codecs. The store below reads these metadata first: codecs other than those of OME-Zarr are
refused, and decoders are replaced by `decoded`, which stops at the size of a chunk. zarr itself would decode any number of
bytes.
"""

import bz2
import json
import lzma
import math
import os
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from hebbseg.data.cases import DataError
from hebbseg.data.io.limits import EXPORT_AGAIN
from hebbseg.data.io.tiles import LARGEST_TILE
from hebbseg.errors import refuse_special

METADATA = (".zarray", ".zgroup", ".zattrs", "zarr.json")
METADATA_BYTES = 2**24
MOST_LEVELS = 64
# Codecs that change the size of a chunk little or not at all, and compressors.
PLAIN = ("bytes", "endian", "transpose", "crc32c", "crc32", "adler32", "fletcher32", "shuffle", "delta", "fixedscaleoffset",
         "bitround", "packbits")  # fmt: skip
PACKED = ("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma")
_BOUNDED = "hebbseg.bounded"
_SHARDED = "sharding_indexed"
_SLACK = 2**16  # checksums and headers
_ZSTD = b"\x28\xb5\x2f\xfd"
_WIDEST = 8  # bytes per value


class TooLarge(ValueError):
    """A chunk that would be decoded to more bytes than it can have."""


def open_group(path: Path) -> Any:
    """Return the Zarr group of a folder, read-only."""
    zarr, store = _classes()
    try:
        # Consolidated metadata would bypass those of the arrays.
        return zarr.open_group(store(path, read_only=True), mode="r", use_consolidated=False)
    except FileNotFoundError as error:
        finding = "truncated, damaged or not of the type in its name (no zarr.json or .zgroup)"
        raise DataError(path, finding, EXPORT_AGAIN) from error


def stored_bytes(path: Path, array: str) -> int:
    """Return the size of all files of an array."""
    total = 0
    for folder, _, files in os.walk(path / array):
        total += sum(os.stat(os.path.join(folder, name)).st_size for name in files)  # noqa: PTH116, PTH118 - many files
    return total


def decoded(codec: str, data: bytes, limit: int) -> Any:
    """Return decompressed bytes; raises `TooLarge` before more than ``limit`` of them are in memory.

    >>> decoded("zlib", zlib.compress(b"a chunk"), 7)
    b'a chunk'
    """
    if codec in ("zlib", "gzip"):
        return _streamed(lambda: zlib.decompressobj(wbits=47), data, limit)  # 47: either header
    if codec == "bz2":
        return _streamed(bz2.BZ2Decompressor, data, limit)
    if codec == "lzma":
        return _streamed(lzma.LZMADecompressor, data, limit)
    declared = _declared(codec, data)
    if declared is None or declared > limit:
        raise TooLarge(f"it declares {'an unknown number of' if declared is None else declared} bytes, at most {limit} fit")
    if codec == "blosc":
        import imagecodecs

        if int.from_bytes(data[12:16], "little") != len(data):
            raise ValueError("truncated")
        return imagecodecs.blosc_decode(data, out=declared)  # that of numcodecs crashes on damaged chunks
    import numcodecs

    return numcodecs.get_codec({"id": codec}).decode(data)


def _streamed(make: Any, data: bytes, limit: int) -> bytes:
    """Decompress one or several streams one after another."""
    parts, left = [], limit + 1
    while data and left > 0:
        stream = make()
        part = stream.decompress(data, left)
        parts.append(part)
        left -= len(part)
        if not stream.eof and left > 0:
            raise ValueError("truncated")
        data = stream.unused_data
    if left <= 0:
        raise TooLarge(f"more than {limit} bytes")
    return b"".join(parts)


def _declared(codec: str, data: bytes) -> int | None:
    """Return the size in the header of compressed bytes; None if it is not there."""
    if codec == "blosc":
        return int.from_bytes(data[4:8], "little") if len(data) >= 16 else None
    if codec == "lz4":
        return int.from_bytes(data[:4], "little") if len(data) >= 4 else None
    if data[:4] != _ZSTD or len(data) < 6:
        return None
    flags = data[4]
    single, start = flags >> 5 & 1, 5 + (not flags >> 5 & 1) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    found = data[start : start + width]
    if not width or len(found) < width:
        return None
    return int.from_bytes(found, "little") + (256 if width == 2 else 0)


def _bounded_metadata(path: Path, content: bytes) -> bytes:
    """Return the metadata of an array or group with bounded codecs; raise if a codec or chunk is not allowed."""
    found = json.loads(content)
    if not isinstance(found, dict):
        raise DataError(path, f"contains a {type(found).__name__}, not an object", EXPORT_AGAIN)
    if "chunks" in found:
        limit = _limit(path, found["chunks"])
        found["compressor"] = _bounded_codec(path, found.get("compressor"), limit)
        found["filters"] = [_bounded_codec(path, each, limit) for each in found.get("filters") or []] or None
    elif found.get("node_type") == "array":
        chunks = found["chunk_grid"]["configuration"]["chunk_shape"]
        found["codecs"] = _bounded_chain(path, found["codecs"], chunks)
        if found.get("storage_transformers"):
            raise DataError(path, "storage transformers", "Export the image as OME-Zarr.")
    found.pop("consolidated_metadata", None)
    return json.dumps(found).encode()


def _bounded_chain(path: Path, codecs: Any, chunks: Any) -> list[Any]:
    """Return the codecs of version 3, where a shard has codecs of its own."""
    limit, kept = _limit(path, chunks), []
    for each in codecs:
        name, options = (each, {}) if isinstance(each, str) else (each["name"], each.get("configuration", {}))
        if name == _SHARDED:
            inner = _bounded_chain(path, options["codecs"], options["chunk_shape"])
            index = _bounded_chain(path, options.get("index_codecs", ["bytes", "crc32c"]), (2**16,))
            kept.append({"name": name, "configuration": options | {"codecs": inner, "index_codecs": index}})
        elif name in PLAIN:
            kept.append(each)
        else:
            kept.append({"name": _BOUNDED, "configuration": _bounded_codec(path, {"id": name}, limit)})
    return kept


def _bounded_codec(path: Path, codec: Any, limit: int) -> Any:
    if codec is None or codec.get("id") in PLAIN:
        return codec
    name = str(codec.get("id"))
    if name not in PACKED:
        raise DataError(path, f"codec {name[:80]!r}", f"Allowed: {', '.join((*PLAIN, *PACKED))}. Export the image as OME-Zarr.")
    return {"id": _BOUNDED, "codec": name, "limit": limit}


def _limit(path: Path, chunks: Any) -> int:
    """Return the largest size of a decoded chunk in bytes."""
    if not isinstance(chunks, list | tuple) or not all(isinstance(n, int) and n > 0 for n in chunks):
        raise DataError(path, f"chunks of size {str(chunks)[:80]}", f"Sizes must be positive. {EXPORT_AGAIN}")
    return _WIDEST * min(math.prod(chunks), LARGEST_TILE) + _SLACK


@cache
def _classes() -> tuple[Any, Any]:
    """Return zarr and the class of the store; defined here because zarr is optional and slow to import."""
    import asyncio
    from dataclasses import dataclass

    import numcodecs
    import zarr
    from numcodecs.abc import Codec
    from zarr.abc.codec import BytesBytesCodec
    from zarr.registry import register_codec
    from zarr.storage import LocalStore

    class Bounded(Codec):
        """A compressor of version 2."""

        codec_id = _BOUNDED

        def __init__(self, codec: str, limit: int) -> None:
            self.codec, self.limit = codec, limit

        def encode(self, buf: Any) -> Any:
            raise NotImplementedError("read only")

        def decode(self, buf: Any, out: Any = None) -> Any:
            return decoded(self.codec, bytes(buf), self.limit)

    @dataclass(frozen=True)
    class BoundedBytes(BytesBytesCodec):
        """A compressor of version 3."""

        codec: str
        limit: int
        is_fixed_size = False

        @classmethod
        def from_dict(cls, data: Any) -> Any:
            return cls(data["configuration"]["codec"], data["configuration"]["limit"])

        def to_dict(self) -> Any:
            return {"name": _BOUNDED, "configuration": {"codec": self.codec, "limit": self.limit}}

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            found = await asyncio.to_thread(decoded, self.codec, chunk_bytes.to_bytes(), self.limit)
            return chunk_spec.prototype.buffer.from_bytes(bytes(found))

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            raise NotImplementedError

    class Inside(LocalStore):
        """A folder whose metadata have bounded codecs, and of which no file is a link to a place outside."""

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            place = self.root / key
            inside = os.path.realpath(self.root)
            if os.path.commonpath([os.path.realpath(place), inside]) != inside:
                raise DataError(place, "a link to a place outside of the image", "Store the values themselves.")
            if not place.is_dir():
                refuse_special(place, error=DataError)
            described = key.rpartition("/")[2] in METADATA
            if described and place.is_file() and place.stat().st_size > METADATA_BYTES:
                raise DataError(place, f"metadata of more than {METADATA_BYTES} bytes", EXPORT_AGAIN)
            found = await super().get(key, prototype, byte_range)
            if found is None or not described or key.endswith(".zattrs"):
                return found
            return type(found).from_bytes(_bounded_metadata(place, found.to_bytes()))

    numcodecs.register_codec(Bounded)
    register_codec(_BOUNDED, BoundedBytes)
    return zarr, Inside
