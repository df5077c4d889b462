"""Read and write an image or a mask, whatever the file.

Order of the axes: pictures are rows × columns; volumes are as the usual library of their format gives them, NIfTI
(x, y, z), TIFF, NRRD, MetaImage and DICOM (z, y, x), NumPy and HDF5 as stored. ``spacing_mm`` follows the array.
A mask whose format orders its axes the other way round than its image's (a NIfTI drawn on a PNG) is turned to match.

What is 2D and what is a volume: PNG, JPEG, BMP and GIF are 2D; TIFF is a volume when it has several pages; NIfTI, NRRD,
MetaImage and DICOM are 2D when their third axis is one long; for arrays see `hebbseg.data.io.arrays`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Axes, FileType, Header, Image, RawMask
from hebbseg.errors import HebbsegError

# Suffix → module of hebbseg.data.io, which is loaded when first needed.
FORMATS: dict[str, str] = {
    ".png": "pillow",
    ".jpg": "pillow",
    ".jpeg": "pillow",
    ".bmp": "pillow",
    ".gif": "pillow",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".ome.tif": "tiff",
    ".ome.tiff": "tiff",
    ".nii": "nifti",
    ".nii.gz": "nifti",
    ".nrrd": "itk",
    ".nhdr": "itk",
    ".mha": "itk",
    ".mhd": "itk",
    ".dcm": "itk",
    ".ima": "itk",
    ".npy": "arrays",
    ".npz": "arrays",
    ".h5": "arrays",
    ".hdf5": "arrays",
}

# Formats that lose pixels, or that hold no mask, or that spread over two files: what is written instead.
MASK_SUFFIX: dict[str, str] = {
    ".jpg": ".png",
    ".jpeg": ".png",
    ".gif": ".png",
    ".dcm": ".nii.gz",
    ".ima": ".nii.gz",
    ".mhd": ".mha",
    ".nhdr": ".nrrd",
}

T = TypeVar("T")


def suffix_of(path: str | Path) -> str:
    """``".nii.gz"`` of ``scan.1.nii.gz``, ``".png"`` of ``a.b.PNG``, ``""`` of anything this package does not read."""
    name = Path(path).name.lower()
    matches = [suffix for suffix in FORMATS if name.endswith(suffix)]
    return max(matches, key=len, default="")


def stem_of(path: str | Path) -> str:
    """The name of a file without the suffix that makes it an image; other dots stay."""
    name = Path(path).name
    return name[: len(name) - len(suffix_of(name))]


def axes_of(path: str | Path) -> Axes:
    """The order of axes the format of ``path`` has, from its name alone."""
    kind = FORMATS.get(suffix_of(path), "itk")
    return "xyz" if kind == "nifti" else "stored" if kind == "arrays" else "zyx"


def read_header(path: str | Path) -> Header:
    """Channels, size and spacing without decoding pixels, where the format allows."""
    return _read(path, lambda kind, file: kind.read_header(file))


def read_image(path: str | Path) -> Image:
    """The image at ``path`` (a file, or the folder of a DICOM series), channels first, in its own number type."""
    return _read(path, lambda kind, file: kind.read_image(file))


def read_labels(path: str | Path) -> RawMask:
    """The mask at ``path`` with the values its file has; `hebbseg.data.labels.masks` turns them into classes."""
    return _read(path, lambda kind, file: kind.read_labels(file))


def mask_suffix(path: str | Path) -> str:
    """The suffix of the mask written for an image: its own, but PNG for JPEG and GIF (lossless), NIfTI for DICOM."""
    suffix = suffix_of(path)
    return MASK_SUFFIX.get(suffix, suffix) or ".nii.gz"


def write_mask(path: str | Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> Path:
    """Writes a mask in the format and geometry of the image it belongs to, with the user's own class values.

    Shapes:
        indices: (*spatial) of ``like``, class indices.

    Args:
        path: where to; a suffix of an image format is replaced by the one `mask_suffix` gives, which is returned.
        like: the image as `read_image` gave it.
        classes: index → the user's value, colour or palette colour.
    """
    path = Path(path)
    if indices.shape != like.shape:
        raise HebbsegError(f"{path}: a mask of shape {indices.shape} cannot lie on an image of shape {like.shape}.")
    if indices.size and (indices.min() < 0 or indices.max() >= len(classes)):
        raise HebbsegError(f"{path}: class index {indices.max()} found, {len(classes)} classes known.")
    suffix = mask_suffix(like.path)
    target = path.with_name(stem_of(path) + suffix)
    kind = _module(FORMATS[suffix_of(like.path)] if suffix_of(like.path) else "itk")
    with replacing(target) as temporary:
        kind.write_mask(temporary, indices, like, classes)
    return target


def match_axes(array: np.ndarray, axes: Axes, wanted: Axes, dims: int) -> np.ndarray:
    """Turns the first ``dims`` axes of an array of one order into the other order; a stored order is left alone."""
    if "stored" in (axes, wanted) or axes == wanted:
        return array
    return array.transpose([*reversed(range(dims)), *range(dims, array.ndim)])


def _module(name: str) -> FileType:
    return cast(FileType, import_module(f"hebbseg.data.io.{name}"))


def _read(path: str | Path, action: Callable[[FileType, Path], T]) -> T:
    path = Path(path)
    with _telling(path):
        return action(_module(_kind(path)), path)


def _kind(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix in FORMATS:
        return FORMATS[suffix]
    if path.is_dir() or is_dicom(path):
        return "itk"
    raise DataError(path, f"a file of unknown type {path.suffix!r}", f"Allowed: {', '.join(FORMATS)}, DICOM folders.")


def is_dicom(path: Path) -> bool:
    """Whether a file has the four letters every DICOM file has after its preamble."""
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Turns whatever a decoder throws into the file, the finding and the remedy."""
    if not path.exists():
        raise DataError(path, "no such file", "Check the path; if the file was moved, list the data again.")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(path, "zero bytes", "Copy or export it again, or remove it.")
    try:
        yield
    except HebbsegError:
        raise
    except PermissionError as error:
        raise DataError(path, "no permission to read it", f"chmod u+r {str(path)!r}") from error
    # Every decoder has exceptions of its own, and a damaged file can raise any of them.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            path, f"truncated, damaged or not what its name says ({reason})", "Copy or export it again, or remove it."
        ) from error
