"""Reading and writing images and masks of all supported formats.

Axis order: 2D images are (rows, columns); volumes follow the usual library of their format: NIfTI (x, y, z); TIFF, NRRD,
MetaImage and DICOM (z, y, x); NumPy and HDF5 as stored. ``spacing_mm`` has the order of the array. A mask whose format
has another axis order than its image (a NIfTI mask of a PNG image) is transposed.

Dimension: PNG, JPEG, BMP and GIF are 2D; TIFF is a volume if it has several pages; NIfTI, NRRD, MetaImage and DICOM are
2D if their third axis has length one; for arrays see `hebbseg.data.io.arrays`. OME-Zarr images, which are folders, are 2D.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.dicom_elements import has_signature
from hebbseg.data.io.image_file import (
    Axes,
    FileType,
    Header,
    Image,
    Level,
    MappedLabels,
    RawMask,
    ReadPart,
    checked_level,
)
from hebbseg.data.io.limits import EXPORT_AGAIN, check_header, check_image
from hebbseg.data.io.tiles import part_of
from hebbseg.errors import HebbsegError, explaining, refuse_special

# Suffix → module of hebbseg.data.io, imported on first use.
FORMATS: dict[str, str] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif"), "pillow"),
    **dict.fromkeys((".tif", ".tiff", ".ome.tif", ".ome.tiff"), "tiff"),
    **dict.fromkeys((".nii", ".nii.gz"), "nifti"),
    **dict.fromkeys((".nrrd", ".nhdr", ".mha", ".mhd", ".dcm", ".ima"), "itk"),
    **dict.fromkeys((".npy", ".npz", ".h5", ".hdf5"), "arrays"),
    **{".zarr": "ome_zarr", ".ome.zarr": "ome_zarr"},
}

FOLDERS = (".zarr", ".ome.zarr")  # formats whose images are folders

# Modules of formats with parts and pyramids → module that reads the parts.
_PARTS = {"tiff": "hebbseg.data.io.tiff_map", "ome_zarr": "hebbseg.data.io.ome_zarr"}

# Image format → mask format, for formats that are lossy, cannot store masks, or consist of two files.
MASK_SUFFIX: dict[str, str] = {
    **dict.fromkeys((".jpg", ".jpeg", ".gif"), ".png"),
    **dict.fromkeys((".dcm", ".ima"), ".nii.gz"),
    **{".mhd": ".mha", ".nhdr": ".nrrd"},
}

T = TypeVar("T")


def suffix_of(path: str | Path) -> str:
    """Return ``".nii.gz"`` for ``scan.1.nii.gz``, ``".png"`` for ``a.b.PNG``, ``""`` for unsupported formats."""
    name = Path(path).name.lower()
    matches = [suffix for suffix in FORMATS if name.endswith(suffix)]
    return max(matches, key=len, default="")


def stem_of(path: str | Path) -> str:
    """Return the file name without `suffix_of`; other dots stay."""
    name = Path(path).name
    return name[: len(name) - len(suffix_of(name))]


def axes_of(path: str | Path) -> Axes:
    """Return the axis order of the format of ``path``, from its name."""
    kind = FORMATS.get(suffix_of(path), "itk")
    return "xyz" if kind == "nifti" else "stored" if kind == "arrays" else "zyx"


def read_header(path: str | Path, level: int = 0) -> Header:
    """Return channels, size and spacing, without decoding pixels if the format allows."""
    return _read(path, lambda kind, file: check_header(file, kind.read_header(file, **_at(kind, file, level))))


def read_image(path: str | Path, level: int = 0) -> Image:
    """Read an image (a file, or the folder of a DICOM series), channels first, in its own data type.

    Args:
        path: the file.
        level: of OME-TIFF and OME-Zarr pyramids; 0 is the largest.
    """
    return _read(path, lambda kind, file: check_image(file, kind.read_image(file, **_at(kind, file, level))))


def read_labels(path: str | Path, level: int = 0) -> RawMask:
    """Read a mask with the values of its file; `hebbseg.data.labels.masks` converts them to class indices.

    A mask without a pyramid is read whatever the level.
    """
    return _read(path, lambda kind, file: kind.read_labels(file, **_at(kind, file, level, mask=True)))


def has_parts(path: str | Path) -> bool:
    """Return whether images of this format can be read in parts, from the name of the file."""
    return FORMATS.get(suffix_of(path)) in _PARTS


def map_image(path: str | Path, level: int = 0) -> Image | None:
    """Return a 2D image like `read_image`, but read in parts when it is indexed; None if its format or type has no parts."""

    def mapped(kind: FileType, file: Path) -> Image | None:
        found: Image | None = import_module(_PARTS[_kind(file)]).map_picture(file, level)
        if found is not None:
            check_header(file, Header(channels=found.array.shape[0], shape=found.shape, spacing_mm=found.spacing_mm))
        return found

    return _read(path, mapped) if _PARTS.get(_kind(Path(path))) else None


def map_labels(path: str | Path, level: int = 0) -> MappedLabels | None:
    """Return a 2D mask like `read_labels`, but part by part; None if its format or type has no parts."""

    def mapped(kind: FileType, file: Path) -> MappedLabels | None:
        found: MappedLabels | None = import_module(_PARTS[_kind(file)]).map_labels(file, **_at(kind, file, level, mask=True))
        return found

    return _read(path, mapped) if _PARTS.get(_kind(Path(path))) else None


def pyramid_levels(path: str | Path) -> list[Level]:
    """Return the size and spacing of each level of a pyramid; one level for formats and files without one."""

    def found(kind: FileType, file: Path) -> list[Level]:
        if _kind(file) in _PARTS:
            levels: list[Level] = kind.levels(file)  # type: ignore[attr-defined]
            return levels
        header = kind.read_header(file)
        return [Level(shape=header.shape, spacing_mm=header.spacing_mm)]

    return _read(path, found)


def _at(kind: FileType, path: Path, level: int, *, mask: bool = False) -> dict[str, int]:
    """Return the keywords of `FileType` functions that read this level."""
    if level == 0:
        return {}
    sizes = [each.shape for each in pyramid_levels(path)]
    if mask and len(sizes) == 1:
        return {}
    return {"level": checked_level(path, level, sizes)}


def mask_suffix(path: str | Path) -> str:
    """Return the suffix of predicted masks: that of the image, but PNG for JPEG and GIF, NIfTI for DICOM."""
    suffix = suffix_of(path)
    return MASK_SUFFIX.get(suffix, suffix) or ".nii.gz"


def write_mask(path: str | Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> Path:
    """Write a mask in the format and geometry of its image, with the class values of the user's masks.

    Args:
        path: target file; its suffix is replaced by `mask_suffix`.
        indices: (*spatial) class indices, of the shape of ``like``.
        like: the image from `read_image`.
        classes: value, color or palette color of each index.

    Returns:
        The path of the written file.
    """
    path = Path(path)
    if indices.shape != like.shape:
        raise HebbsegError(f"{path}: mask shape {indices.shape} differs from image shape {like.shape}.")
    if indices.size and (indices.min() < 0 or indices.max() >= len(classes)):
        raise HebbsegError(f"{path}: class index {indices.max()} found, but there are only {len(classes)} classes.")
    suffix = mask_suffix(like.path)
    target = path.with_name(stem_of(path) + suffix)
    if isinstance(like.geometry, dict) and like.geometry.get("pyramid"):
        write_mask_parts(target, partial(part_of, indices), like, classes)
        return target
    kind = _module(FORMATS[suffix_of(like.path)] if suffix_of(like.path) else "itk")
    if suffix in FOLDERS:
        kind.write_mask(target, indices, like, classes)
        return target
    # ITK and HDF5 report a full disk as exceptions of their own.
    with explaining(target, "could not be written", "Free disk space, then try again."), replacing(target) as temporary:
        try:
            kind.write_mask(temporary, indices, like, classes)
        except DataError as error:  # names the temporary file
            raise DataError(target, error.finding, error.remedy) from error
    return target


def write_mask_parts(path: Path, read: ReadPart, like: Image, classes: Sequence[ClassInfo] | None) -> None:
    """Write a mask like `write_mask`, part by part, for an image from `map_image`. Without classes, values are kept."""
    import_module(_PARTS[_kind(like.path)]).write_mask_in_tiles(path, like.shape, read, like, classes)


def match_axes(array: np.ndarray, axes: Axes, wanted: Axes, dims: int) -> np.ndarray:
    """Transpose the first ``dims`` axes to the wanted order; arrays in stored order are returned unchanged."""
    if "stored" in (axes, wanted) or axes == wanted:
        return array
    return array.transpose([*reversed(range(dims)), *range(dims, array.ndim)])


def _module(name: str) -> FileType:
    return cast(FileType, import_module(f"hebbseg.data.io.{name}"))


def _read(path: str | Path, action: Callable[[FileType, Path], T]) -> T:
    path = Path(path)
    with explained(path):
        return action(_module(_kind(path)), path)


def _kind(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix in FORMATS:
        return FORMATS[suffix]
    if path.is_dir() or is_dicom(path):
        return "itk"
    raise DataError(path, f"unsupported file type {path.suffix!r}", f"Allowed: {', '.join(FORMATS)}, DICOM folders.")


def is_dicom(path: Path) -> bool:
    """Return whether a file has the DICOM signature after its preamble; False for a file that cannot be opened."""
    try:
        return has_signature(path)
    except OSError:
        return False


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert any exception of a decoder to a `DataError`."""
    if not path.exists():
        raise DataError(path, "no such file", "Check the path. If the file was moved, restart the command.")
    refuse_special(path, error=DataError)
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(path, "empty file", EXPORT_AGAIN)
    with explaining(path, "truncated, damaged or not of the type in its name", EXPORT_AGAIN, error=DataError):
        yield
