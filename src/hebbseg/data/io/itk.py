"""NRRD, MetaImage and DICOM with SimpleITK: axes (z, y, x).

A single slice is a 2D image. A DICOM series is a folder of slices; a single DICOM file is 2D unless it has frames. Masks of
DICOM images are written as NIfTI with the same geometry.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.dicom_elements import check_dicom, has_signature
from hebbseg.data.io.image_file import Header, Image, RawMask, user_values
from hebbseg.data.io.limits import check_declared
from hebbseg.data.io.orientation import orientation_of
from hebbseg.data.io.text_headers import check_meta_image, check_nrrd

_CHECKS = {
    **dict.fromkeys((".mha", ".mhd"), ("MetaImageIO", check_meta_image)),
    **dict.fromkeys((".nrrd", ".nhdr"), ("NrrdImageIO", check_nrrd)),
}
_DICOM = "GDCMImageIO"
_TRANSFER_SYNTAX = "0002|0010"
_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2")

# ITK prints warnings directly to the terminal; errors are raised as exceptions.
sitk.ProcessObject.SetGlobalWarningDisplay(False)


@dataclass(frozen=True, kw_only=True)
class ItkGeometry:
    """In ITK's order, x first."""

    size: tuple[int, ...]
    origin: tuple[float, ...]
    spacing: tuple[float, ...]
    direction: tuple[float, ...]


def read_header(path: Path) -> Header:
    files = _series_files(path) if path.is_dir() else [path]
    reader = _reader(files[0])
    size = reader.GetSize()
    if len(files) > 1:
        spacing = (*reader.GetSpacing()[:2], _slice_distance(reader, _reader(files[-1]), len(files)))
        return Header(
            channels=reader.GetNumberOfComponents(),
            shape=(len(files), *size[:2][::-1]),
            spacing_mm=spacing[::-1],
            affine=_affine(reader, spacing),
            orientation=orientation_of(_affine(reader, spacing)),
        )
    dims = _dims(size)
    affine = _affine(reader, reader.GetSpacing()) if len(size) == 3 else None
    return Header(
        channels=reader.GetNumberOfComponents() * int(np.prod(size[3:], dtype=int)),
        shape=size[:dims][::-1],
        spacing_mm=_in_array_order(reader.GetSpacing(), dims),
        affine=affine,
        orientation=orientation_of(affine),
    )


def read_image(path: Path) -> Image:
    image = _read(path)
    array = _channels_first(image)
    spacing = _in_array_order(image.GetSpacing(), array.ndim - 1)
    return Image(
        array=np.ascontiguousarray(array),
        path=path,
        spacing_mm=spacing,
        geometry=geometry_of(image),
        orientation=orientation(image),
    )


def read_volume(path: Path) -> Any | None:
    """Return ITK's image of a volume; None if it has several components."""
    image = _read(path)
    return image if image.GetDimension() == 3 and image.GetNumberOfComponentsPerPixel() == 1 else None


def orientation(image: Any) -> str | None:
    return orientation_of(_affine(image, image.GetSpacing())) if image.GetDimension() == 3 else None


def geometry_of(image: Any) -> ItkGeometry:
    return ItkGeometry(
        size=image.GetSize()[:3],
        origin=image.GetOrigin()[:3],
        spacing=image.GetSpacing()[:3],
        direction=tuple(_direction(image)),
    )


def read_labels(path: Path) -> RawMask:
    return RawMask.from_channels(np.moveaxis(_channels_first(_read(path)), 0, -1), path)  # (C, *spatial) → (*spatial, C)


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    geometry: ItkGeometry = like.geometry
    values = user_values(indices, classes).reshape(geometry.size[::-1])  # restores the third axis of a single slice
    mask = sitk.GetImageFromArray(values)
    mask.SetOrigin(geometry.origin)
    mask.SetSpacing(geometry.spacing)
    mask.SetDirection(geometry.direction)
    sitk.WriteImage(mask, str(path), useCompression=True)


def _reader(path: Path) -> Any:
    """Return ITK's reader with the header read. Only the parser of this file type can be chosen."""
    kind, check = _CHECKS.get(path.suffix.lower(), (_DICOM, None))
    if check is not None:
        check(path, limited=False)
    else:
        check_dicom(path)
    reader = sitk.ImageFileReader()
    reader.SetImageIO(kind)
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    return reader


def _check_size(path: Path, reader: Any, files: list[Path]) -> None:
    """Raise if the declared size does not fit the file, or is larger than the limit."""
    shape = (*reader.GetSize(), reader.GetNumberOfComponents(), len(files))
    dicom = reader.GetImageIO() == _DICOM
    syntax = reader.GetMetaData(_TRANSFER_SYNTAX) if dicom and reader.HasMetaDataKey(_TRANSFER_SYNTAX) else ""
    total = sum(file.stat().st_size for file in files)
    # The data of other formats may be in another file, whose size is checked with the header.
    packed = dicom and syntax.strip("\0 ") not in _UNCOMPRESSED
    check_declared(
        path,
        shape,
        bits=8 * sitk.Image([1, 1], reader.GetPixelID(), 1).GetSizeOfPixelComponent() if dicom else 0,
        file_bytes=total,
        compressed=packed,
    )


def _slice_distance(first: Any, last: Any, slices: int) -> float:
    """Return the mean slice distance, as ITK computes it for a series."""
    return float(np.linalg.norm(np.subtract(last.GetOrigin(), first.GetOrigin())) / (slices - 1))


def _affine(reader: Any, spacing: Sequence[float]) -> tuple[float, ...]:
    """Return the affine, converted from ITK's LPS+ to NIfTI's RAS+."""
    affine = np.eye(4)
    affine[:3, :3] = np.asarray(reader.GetDirection()).reshape(3, 3) * np.asarray(spacing)
    affine[:3, 3] = reader.GetOrigin()
    return tuple(float(part) for part in (np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine).ravel())


def _read(path: Path) -> Any:
    files = _series_files(path) if path.is_dir() else [path]
    first = _reader(files[0])
    _check_size(path, first, files)
    if len(files) == 1:
        return first.Execute()
    reader = sitk.ImageSeriesReader()
    reader.SetImageIO(_DICOM)
    reader.SetFileNames([str(file) for file in files])
    return reader.Execute()


def _series_files(folder: Path) -> list[Path]:
    """Return the slices of a folder's DICOM series in spatial order."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file() and (_is_slice(entry) or has_signature(entry)))
    damaged = [entry for entry in files if not _is_intact(entry)]
    if damaged and len(damaged) < len(files):
        raise _not_a_slice(damaged[0], len(damaged), len(files))
    series = () if damaged else sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
    if not series:
        raise DataError(folder, "no readable DICOM slice in this folder", "Export the series again, one series per folder.")
    if len(series) > 1:
        raise DataError(folder, f"{len(series)} DICOM series in one folder", "Put each series into its own folder.")
    names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), series[0])
    unread = sorted({entry.name for entry in folder.iterdir() if _is_slice(entry)} - {Path(n).name for n in names})
    if unread:
        raise _not_a_slice(folder / unread[0], len(unread), len(names) + len(unread))
    return [Path(name) for name in names]


def _is_intact(path: Path) -> bool:
    try:
        check_dicom(path)
    except DataError:
        return False
    return True


def _not_a_slice(path: Path, count: int, total: int) -> DataError:
    return DataError(
        path,
        f"not a readable slice of the DICOM series ({count} of {total} files)",
        "Copy or export the file again. If it does not belong to the series, remove it.",
    )


def _is_slice(entry: Path) -> bool:
    return entry.suffix.lower() in (".dcm", ".ima", "") and not entry.name.startswith(".") and entry.name != "DICOMDIR"


def _dims(size: tuple[int, ...]) -> int:
    return 2 if len(size) == 2 or size[2] == 1 else 3


def _direction(image: Any) -> Sequence[float]:
    dims = image.GetDimension()
    if dims <= 3:
        return image.GetDirection()
    return np.asarray(image.GetDirection()).reshape(dims, dims)[:3, :3].ravel().tolist()


def _in_array_order(spacing: tuple[float, ...], dims: int) -> tuple[float, ...]:
    return tuple(float(step) for step in spacing[:dims][::-1])


def _channels_first(image: Any) -> np.ndarray:
    array = sitk.GetArrayFromImage(image)
    size = image.GetSize()
    spatial = size[: _dims(size)][::-1]
    components = image.GetNumberOfComponentsPerPixel()
    if components == 1:
        return array.reshape(-1, *spatial)  # ([T,] Z, Y, X) → (T, *spatial)
    return np.moveaxis(array.reshape(*spatial, components), -1, 0)  # (*spatial, C) → (C, *spatial)
