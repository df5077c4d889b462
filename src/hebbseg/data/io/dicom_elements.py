"""The lengths of DICOM elements, checked before GDCM reads the file: it allocates what a damaged length declares."""

import os
from pathlib import Path
from typing import BinaryIO, Literal

from hebbseg.data.cases import DataError
from hebbseg.data.io.limits import EXPORT_AGAIN

_PREAMBLE = 128
_UNDEFINED = 0xFFFFFFFF
_ITEM, _ITEM_END, _SEQUENCE_END = (0xFFFE, 0xE000), (0xFFFE, 0xE00D), (0xFFFE, 0xE0DD)
_TRANSFER_SYNTAX = (0x0002, 0x0010)
_IMPLICIT, _BIG_ENDIAN, _DEFLATED = "1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99"
_LONG_VR = {b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"}
_VR = _LONG_VR | {b"AE", b"AS", b"AT", b"CS", b"DA", b"DS", b"DT", b"FD", b"FL", b"IS", b"LO", b"LT", b"PN", b"SH", b"SL"}
_VR |= {b"SS", b"ST", b"TM", b"UI", b"UL", b"US"}
_MAX_DEPTH = 20
_MAX_ELEMENTS = 1_000_000


def check_dicom(path: Path) -> None:
    """Raise `DataError` unless every element of a DICOM file ends before the file does."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            _Elements(file, size).walk_file()
        except _Damaged as error:
            raise DataError(path, f"truncated, damaged or not of the type in its name ({error})", EXPORT_AGAIN) from None


def has_signature(path: Path) -> bool:
    """Return whether a file has the DICOM signature after its preamble."""
    with path.open("rb") as file:
        return file.read(_PREAMBLE + 4)[_PREAMBLE:] == b"DICM"


class _Damaged(Exception):
    """What is wrong with an element."""


class _Elements:
    """Walks over the elements of a file, without reading their values."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.size = size
        self.explicit = True
        self.order: Literal["little", "big"] = "little"
        self.count = 0

    def walk_file(self) -> None:
        self.file.seek(_PREAMBLE)
        if self.file.read(4) != b"DICM":
            raise _Damaged("it has no DICOM signature")
        syntax = self._walk_meta()
        if syntax == _DEFLATED:
            raise _Damaged("its elements are compressed (deflate), which is not supported")
        self.explicit, self.order = syntax not in ("", _IMPLICIT), "big" if syntax == _BIG_ENDIAN else "little"
        self._walk(self.size, 0)

    def _walk_meta(self) -> str:
        """Walk over group 2, which is always explicit and little-endian; return the transfer syntax."""
        syntax = ""
        while self.file.tell() + 8 <= self.size:
            start = self.file.tell()
            if self.file.read(2) != b"\x02\x00":
                self.file.seek(start)
                break
            self.file.seek(start)
            tag, length, _ = self._header(self.size)
            if tag == _TRANSFER_SYNTAX:
                syntax = self.file.read(min(length, 64)).decode("ascii", "replace").strip("\0 ")
                self.file.seek(-min(length, 64), os.SEEK_CUR)
            self._skip(length, self.size)
        return syntax

    def _walk(self, end: int, depth: int) -> None:
        """Walk over elements up to ``end``, or to the end of an item of undefined length."""
        if depth > _MAX_DEPTH:
            raise _Damaged(f"more than {_MAX_DEPTH} nested sequences")
        while self.file.tell() + 8 <= end:
            tag, length, representation = self._header(end)
            if tag in (_ITEM_END, _SEQUENCE_END):
                return
            start = self.file.tell()
            if length == _UNDEFINED or self._is_sequence(representation, length, end):
                self._walk_items(end if length == _UNDEFINED else start + length, depth, length == _UNDEFINED)
            if length != _UNDEFINED:
                self.file.seek(start)
                self._skip(length, end)

    def _walk_items(self, end: int, depth: int, undefined: bool) -> None:
        while self.file.tell() + 8 <= end:
            tag, length, _ = self._header(end)
            if tag == _SEQUENCE_END:
                return
            if tag != _ITEM:
                raise _Damaged(f"element {tag[0]:04x},{tag[1]:04x} in place of an item")
            if length == _UNDEFINED:
                self._walk(end, depth + 1)
                continue
            start = self.file.tell()
            if start + length > end:
                raise _Damaged(f"an item of {length} bytes at byte {start}, but only {end - start} follow")
            if not undefined:  # items of undefined length may be fragments of pixel data
                self._walk(start + length, depth + 1)
            self.file.seek(start + length)

    def _is_sequence(self, representation: bytes, length: int, end: int) -> bool:
        if representation not in (b"SQ", b"UN", b"") or length < 8:
            return False
        start = self.file.tell()
        found = self.file.read(4)
        self.file.seek(start)
        return found in (b"\xfe\xff\x00\xe0", b"\xff\xfe\xe0\x00") and start + length <= end

    def _header(self, end: int) -> tuple[tuple[int, int], int, bytes]:
        """Return tag, length and value representation (empty if implicit) of the next element."""
        self.count += 1
        if self.count > _MAX_ELEMENTS:
            raise _Damaged(f"more than {_MAX_ELEMENTS} elements")
        start = self.file.tell()
        head = self.file.read(8)
        tag = self._number(head[:2]), self._number(head[2:4])
        representation, length = b"", self._number(head[4:8])
        if self.explicit and tag[0] != 0xFFFE:
            if head[4:6] not in _VR:
                raise _Damaged(f"element {tag[0]:04x},{tag[1]:04x} at byte {start} has an unknown type {head[4:6]!r}")
            representation, length = head[4:6], self._number(head[6:8])
            if representation in _LONG_VR:
                length = self._number(self.file.read(4))
        if length != _UNDEFINED and self.file.tell() + length > end:
            left = end - self.file.tell()
            raise _Damaged(f"element {tag[0]:04x},{tag[1]:04x} at byte {start} declares {length} bytes, but only {left} follow")
        return tag, length, representation

    def _skip(self, length: int, end: int) -> None:
        if length == _UNDEFINED or self.file.tell() + length > end:
            raise _Damaged(f"an element of {length} bytes at byte {self.file.tell()}")
        self.file.seek(length, os.SEEK_CUR)

    def _number(self, data: bytes) -> int:
        return int.from_bytes(data, self.order)
