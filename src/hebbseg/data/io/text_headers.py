"""Headers of MetaImage and NRRD, checked before ITK reads the file: ITK crashes or hangs on some invalid ones.

The data are in the same file, or in one file beside the header: a header must not choose which local file is read.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hebbseg.data.cases import DataError
from hebbseg.data.io.limits import EXPORT_AGAIN, check_declared

HEADER_BYTES = 2**20
LINE_BYTES = 4000  # MetaIO has fixed buffers
META_FIELDS = 10_000  # MetaIO needs 33 kB for each
NRRD_FIELD_BYTES = 400  # NrrdIO writes fields into messages of fixed length
_MAX_NUMBER = 1e30

META_BYTES = {"CHAR": 1, "UCHAR": 1, "SHORT": 2, "USHORT": 2, "INT": 4, "UINT": 4, "LONG": 4, "ULONG": 4}
META_BYTES |= {"LONG_LONG": 8, "ULONG_LONG": 8, "FLOAT": 4, "DOUBLE": 8}
# Number of values of each field as a power of NDims; None: as many as given.
_META_VECTORS = {
    **dict.fromkeys(("DimSize", "ElementSpacing", "ElementSize", "Offset", "Position", "Origin", "CenterOfRotation"), 1),
    **dict.fromkeys(("TransformMatrix", "Rotation", "Orientation"), 2),
}
_META_NUMBERS = (
    "ID", "ParentID", "ElementMin", "ElementMax", "ElementNBits", "HeaderSize", "CompressedDataSize",
    "ElementNumberOfChannels", "ElementToIntensityFunctionSlope", "ElementToIntensityFunctionOffset", "SequenceID",
)  # fmt: skip

NRRD_BYTES = {
    **dict.fromkeys(("signed char", "int8", "int8_t", "uchar", "unsigned char", "uint8", "uint8_t"), 1),
    **dict.fromkeys(("short", "short int", "signed short", "signed short int", "int16", "int16_t"), 2),
    **dict.fromkeys(("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"), 2),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t", "uint", "unsigned int", "uint32", "uint32_t", "float"), 4),
    **dict.fromkeys(("longlong", "long long", "long long int", "signed long long", "signed long long int"), 8),
    **dict.fromkeys(("int64", "int64_t", "ulonglong", "unsigned long long", "unsigned long long int"), 8),
    **dict.fromkeys(("uint64", "uint64_t", "double"), 8),
}
_NRRD_ENCODINGS = {"raw": "raw", "gz": "gzip", "gzip": "gzip", "bz2": "gzip", "bzip2": "gzip"}
_NRRD_ENCODINGS |= {"txt": "text", "text": "text", "ascii": "text", "hex": "text"}
_NRRD_VECTORS = ("sizes", "spacings", "thicknesses", "axis mins", "axismins", "axis maxs", "axismaxs", "kinds", "centers",
                 "centerings", "space directions")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """What a header declares: all axes, bits per value, data file (None: this one), and how the values are stored."""

    shape: tuple[int, ...]
    bits: int
    data_file: str | None
    storage: str  # "raw", "gzip" or "text"


def check_meta_image(path: Path, *, limited: bool = True) -> None:
    """Raise `DataError` unless the header of a MetaImage (.mha, .mhd) is valid."""
    fields, start = _meta_fields(path)
    for needed in ("NDims", "DimSize", "ElementType", "ElementDataFile"):
        if needed not in fields:
            raise _invalid(path, f"no {needed}")
    dims = _integer(path, "NDims", fields["NDims"], 2, 4)
    for name, power in _META_VECTORS.items():
        if name in fields:
            numbers = _numbers(path, name, fields[name], dims**power)
            if name in ("ElementSpacing", "ElementSize") and min(numbers) <= 0:
                raise _invalid(path, f"{name} = {fields[name]!r}; allowed are positive numbers")
    for name in _META_NUMBERS:
        if name in fields:
            _numbers(path, name, fields[name], None)
    channels = _integer(path, "ElementNumberOfChannels", fields.get("ElementNumberOfChannels", "1"), 1, 2**16)
    shape = tuple(_integer(path, "DimSize", part, 1, 2**31 - 1) for part in fields["DimSize"].split())
    kind = re.sub(r"_ARRAY$", "", fields["ElementType"].removeprefix("MET_"))
    if kind not in META_BYTES:
        raise _invalid(path, f"ElementType = {fields['ElementType']!r}; allowed are MET_{', MET_'.join(META_BYTES)}")
    _integer(path, "HeaderSize", fields.get("HeaderSize", "0"), -1, path.stat().st_size)
    data = fields["ElementDataFile"]
    text = not _meta_true(fields, "BinaryData", True)
    storage = "gzip" if _meta_true(fields, "CompressedData", False) else "text" if text else "raw"
    local = data.upper() == "LOCAL"
    declared = _Declared(
        shape=(*shape, channels), bits=8 * META_BYTES[kind], data_file=None if local else data, storage=storage
    )
    _check(path, declared, start, limited)


def check_nrrd(path: Path, *, limited: bool = True) -> None:
    """Raise `DataError` unless the header of an NRRD (.nrrd, .nhdr) is valid."""
    fields, start = _nrrd_fields(path)
    for needed in ("dimension", "sizes", "type", "encoding"):
        if needed not in fields:
            raise _invalid(path, f"no field {needed!r}")
    dims = _integer(path, "dimension", fields["dimension"], 2, 5)
    for name in _NRRD_VECTORS:
        if name in fields:
            parts = _nrrd_parts(fields[name])
            if len(parts) != dims:
                raise _invalid(path, f"{name}: {len(parts)} entries for dimension {dims}")
    for name in ("spacings", "space directions", "space origin", "measurement frame", "line skip", "lineskip", "old min"):
        for number in re.findall(r"[^\s(),]+", fields.get(name, "")):
            if number.lower() not in ("none", "nan"):
                _numbers(path, name, number, 1)
    _check_spacing(path, fields)
    for name in ("space dimension", "line skip", "lineskip", "byte skip", "byteskip"):
        if name in fields:
            _integer(path, name, fields[name], -1 if name.startswith("byte") else 0, path.stat().st_size)
    shape = tuple(_integer(path, "sizes", part, 1, 2**31 - 1) for part in fields["sizes"].split())
    kind = NRRD_BYTES.get(fields["type"].lower())
    storage = _NRRD_ENCODINGS.get(fields["encoding"].lower())
    if kind is None:
        raise _invalid(path, f"type {fields['type']!r}; allowed are {', '.join(NRRD_BYTES)}")
    if storage is None:
        raise _invalid(path, f"encoding {fields['encoding']!r}; allowed are {', '.join(_NRRD_ENCODINGS)}")
    data = fields.get("data file", fields.get("datafile"))
    _check(path, _Declared(shape=shape, bits=8 * kind, data_file=data, storage=storage), start, limited)


def _check_spacing(path: Path, fields: Mapping[str, str]) -> None:
    """Raise unless the spatial axes of an NRRD have a spacing: ITK reads NaN as 1 mm, and fails at 0."""
    spacings = fields.get("spacings", "").split()
    kinds = fields.get("kinds", "domain " * len(spacings)).split()
    for spacing, kind in zip(spacings, kinds, strict=False):
        if kind.lower() in ("domain", "space") and (spacing.lower() == "nan" or float(spacing) == 0):
            raise _invalid(path, f"spacings: {' '.join(spacings)!r}, so the spacing of an axis is not known")
    if "nan" in fields.get("space directions", "").lower():
        raise _invalid(path, "space directions: contains nan")


def _check(path: Path, declared: _Declared, header_bytes: int, limited: bool) -> None:
    if declared.data_file is None:
        available = path.stat().st_size - header_bytes
    else:
        available = _beside(path, declared.data_file).stat().st_size
    bits = 16 if declared.storage == "text" else declared.bits  # a digit and a blank
    check_declared(
        path, declared.shape, bits=bits, file_bytes=available, compressed=declared.storage == "gzip", limited=limited
    )


def _beside(path: Path, name: str) -> Path:
    """Return the data file of a header, which must be a plain file in the folder of the header."""
    if name.split(maxsplit=1)[:1] == ["LIST"] or "%" in name:
        raise DataError(
            path, f"its data are in several files ({name!r})", "Convert it to a single file (.mha, .nrrd or .nii.gz)."
        )
    file = path.parent / name
    if "/" in name or "\\" in name or name in ("", ".", "..") or (file.is_symlink() and not path.is_symlink()):
        raise DataError(
            path,
            f"its data file is {name!r}",
            "The data file must lie in the folder of its header, and the header must give its name without a folder.",
        )
    if not file.is_file():
        raise DataError(path, f"its data file {name!r} does not exist", "Copy it into the folder of the header.")
    return file


def _meta_fields(path: Path) -> tuple[dict[str, str], int]:
    """Return the fields of a MetaImage up to ElementDataFile, and the number of bytes of the header."""
    fields: dict[str, str] = {}
    with path.open("rb") as file:
        while line := _line(path, file.readline(LINE_BYTES + 1), file.tell()):
            name, equals, value = (part.strip() for part in line.partition("="))
            if not name and not value:
                continue
            if not equals or not re.fullmatch(r"[\w .|:()\-]{1,200}", name):
                raise _invalid(path, f"{line.strip()[:60]!r} is not a field")
            if name in fields:
                raise _invalid(path, f"{name} is given twice")
            fields[name] = value
            if len(fields) > META_FIELDS:
                raise _invalid(path, f"more than {META_FIELDS} fields")
            if name == "ElementDataFile":
                return fields, file.tell()
    raise _invalid(path, "no ElementDataFile")


def _nrrd_fields(path: Path) -> tuple[dict[str, str], int]:
    """Return the fields of an NRRD, by lower-case name, and the number of bytes of the header."""
    fields: dict[str, str] = {}
    with path.open("rb") as file:
        if not re.fullmatch(rb"NRRD000[1-5]\r?\n", file.readline(20)):
            raise _invalid(path, "it does not start with NRRD0001 … NRRD0005")
        while line := _line(path, file.readline(HEADER_BYTES), file.tell(), longest=HEADER_BYTES - 1):
            if not line.strip():
                break
            if line.startswith("#") or ":=" in line:
                continue
            name, colon, value = (part.strip() for part in line.partition(":"))
            if not colon:
                raise _invalid(path, f"{line.strip()[:60]!r} is not a field")
            if len(line) > NRRD_FIELD_BYTES or not re.fullmatch(r"[a-zA-Z ]+", name):
                raise _invalid(path, f"{line.strip()[:60]!r} is not a field, or too long")
            if name.lower() in fields:
                raise _invalid(path, f"{name} is given twice")
            fields[name.lower()] = value
        return fields, file.tell()


def _line(path: Path, line: bytes, end: int, longest: int = LINE_BYTES) -> str:
    if len(line) > longest or end > HEADER_BYTES:
        raise _invalid(path, "a line or the whole header is too long")
    if b"\0" in line:
        raise _invalid(path, "binary data instead of a field")
    return line.decode("utf-8", "replace")


def _nrrd_parts(value: str) -> list[str]:
    return re.findall(r"\([^)]*\)|[^\s()]+", value)


def _meta_true(fields: Mapping[str, str], name: str, default: bool) -> bool:
    return fields[name][:1] in ("T", "t", "1") if name in fields else default


def _integer(path: Path, name: str, value: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,15}", value) or not least <= int(value) <= most:
        raise _invalid(path, f"{name} = {value[:40]!r}; allowed is an integer from {least} to {most}")
    return int(value)


def _numbers(path: Path, name: str, value: str, count: int | None) -> list[float]:
    parts = value.split()
    if count is not None and len(parts) != count:
        raise _invalid(path, f"{name} has {len(parts)} numbers; {count} are expected")
    for part in parts:
        try:
            valid = math.isfinite(float(part)) and abs(float(part)) < _MAX_NUMBER and "_" not in part
        except ValueError:
            valid = False
        if not valid:
            raise _invalid(path, f"{name} contains {part[:40]!r}, which is not a finite number")
    return [float(part) for part in parts]


def _invalid(path: Path, finding: str) -> DataError:
    return DataError(path, f"truncated, damaged or not of the type in its name (header: {finding})", EXPORT_AGAIN)
